//! What this process holds: a channel that is gone has left nothing.

use std::{error::Error, fs, time::Duration};

use interop::Outcome;
use tokio::{
    runtime::Handle,
    time::{sleep, timeout},
};

/// A detached attempt runs to its deadline, and a slow close takes its time.
const PATIENCE: Duration = Duration::from_secs(15);

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(50);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Standing {
    /// Of this runtime, the replicas' included.
    tasks: usize,
    /// Sockets most of all, on both sides of the proxy.
    descriptors: usize,
}

impl Standing {
    pub(crate) fn now() -> Result<Self, Box<dyn Error>> {
        Ok(Self {
            tasks: Handle::current().metrics().num_alive_tasks(),
            descriptors: fs::read_dir("/proc/self/fd")?.count(),
        })
    }

    /// Waits until no more is held than this.
    pub(crate) async fn returns(self) -> Outcome {
        let returned = async {
            loop {
                let now = Self::now()?;
                if now.tasks <= self.tasks && now.descriptors <= self.descriptors {
                    return Ok::<_, Box<dyn Error>>(());
                }
                sleep(PAUSE).await;
            }
        };
        match timeout(PATIENCE, returned).await {
            Ok(returned) => returned,
            Err(_) => Err(format!("{:?}, at the start {self:?}", Self::now()?).into()),
        }
    }
}
