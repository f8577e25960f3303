//! Measures the runtime's timer lag for a channel that asked for it.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;
use tonic_hedge_engine::measure::Lag;

use crate::background::Background;

/// A timer each 20 ms: saturation is seen within that, for fifty wake-ups a second and channel.
const PERIOD: Duration = Duration::from_millis(20);

/// Runs one timer after the other, from the first call on, for as long as the channel lives.
#[derive(Debug)]
pub(crate) struct Sampler {
    lag: Arc<Lag>,
    background: Background,
}

impl Sampler {
    pub(crate) fn new(lag: Lag) -> Self {
        Self {
            lag: Arc::new(lag),
            background: Background::default(),
        }
    }

    pub(crate) fn lag(&self) -> &Lag {
        &self.lag
    }

    /// Starts it, unless it runs. `epoch` is the channel's.
    pub(crate) fn ensure_started(&self, epoch: Instant) {
        self.background.ensure_started(|| {
            let lag = Arc::clone(&self.lag);
            async move {
                loop {
                    let due = Instant::now() + PERIOD;
                    lag.due(due.saturating_duration_since(epoch));
                    tokio::time::sleep_until(due).await;
                    lag.ran(epoch.elapsed());
                }
            }
        });
    }
}
