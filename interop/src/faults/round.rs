//! One fault, met by a channel in each mode side by side: warm, then with the fault, then healed.

use std::{error::Error, future::pending, time::Duration};

use interop::{Mode, Outcome, Told};
use tokio::{
    task::{JoinError, JoinSet},
    time::interval,
};

use crate::{
    caller::{CALLS, Caller},
    fault::{Extent, Fault},
    replica::{Arrivals, Replica},
    standing::Standing,
    toxiproxy::Toxiproxy,
};

/// The modes with a meaning.
const MODES: [Mode; 3] = [Mode::Off, Mode::On, Mode::Forced];

/// Replicas.
const REPLICAS: usize = 3;

/// Between two times that a replica hangs up.
const HANG_UP: Duration = Duration::from_secs(1);

/// What the calls go to.
pub(crate) struct World {
    replicas: Vec<Replica>,
    arrivals: Arrivals,
    proxy: Toxiproxy,
    /// Before there was any channel.
    standing: Standing,
}

pub(crate) struct Round {
    pub(crate) rows: Vec<Row>,
    /// Whether anything was left when the channels were gone.
    pub(crate) left: Outcome,
}

/// What one channel made of the fault.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) fault: Fault,
    pub(crate) extent: Extent,
    pub(crate) mode: Mode,
    pub(crate) repeatable: Calls,
    pub(crate) others: Calls,
    /// From the fault's end; `None` if it did not.
    pub(crate) healed: Option<Duration>,
}

/// What became of calls of one kind.
#[derive(Clone, Debug)]
pub(crate) struct Calls {
    pub(crate) told: Told,
    /// How often they arrived at replicas.
    pub(crate) arrived: u64,
    /// The most of one call.
    pub(crate) most_arrived: u64,
}

impl World {
    /// Takes every fault away.
    pub(crate) async fn clear(&self) -> Result<(), Box<dyn Error>> {
        self.proxy.clear().await
    }

    pub(crate) async fn start() -> Result<Self, Box<dyn Error>> {
        let arrivals = Arrivals::default();
        let mut replicas = Vec::new();
        for _ in 0..REPLICAS {
            replicas.push(Replica::start(arrivals.clone()).await?);
        }
        let ports: Vec<_> = replicas.iter().map(|it| it.port).collect();
        let proxy = Toxiproxy::start(&ports).await?;
        Ok(Self {
            replicas,
            arrivals,
            proxy,
            standing: Standing::now()?,
        })
    }

    pub(crate) async fn round(
        &self,
        fault: Fault,
        extent: Extent,
    ) -> Result<Round, Box<dyn Error>> {
        let name = format!("{}/{}", fault.name(), extent.name());
        let mut callers = Vec::new();
        for mode in MODES {
            let caller = Caller::new(self.proxy.uris(), &name, mode)?;
            caller.warm_up().await?;
            callers.push(caller);
        }

        let hit = extent.replicas(REPLICAS);
        self.proxy.inject(fault, hit).await?;
        let met = tokio::select! {
            met = each(&callers, |it| meet(it, fault)) => met?,
            never = self.hang_up(fault, hit) => never,
        };
        self.proxy.clear().await?;
        let healed = each(&callers, |it| async move { Ok(it.heals().await) }).await?;

        let rows = callers.iter().zip(met).zip(healed);
        let rows = rows.map(|((caller, (repeatable, others)), healed)| Row {
            fault,
            extent,
            mode: caller.mode,
            repeatable: self.calls(repeatable, &caller.id("get")),
            others: self.calls(others, &caller.id("put")),
            healed,
        });
        let rows = rows.collect();
        drop(callers);
        Ok(Round {
            rows,
            left: self.standing.returns().await,
        })
    }

    fn calls(&self, told: Told, prefix: &str) -> Calls {
        let (arrived, most_arrived) = self.arrivals.of(prefix);
        Calls {
            told,
            arrived,
            most_arrived,
        }
    }

    /// As a slow close wants it: else there is nothing to close.
    async fn hang_up<T>(&self, fault: Fault, replicas: usize) -> T {
        if fault != Fault::SlowClose {
            return pending().await;
        }
        let mut due = interval(HANG_UP);
        loop {
            due.tick().await;
            self.replicas[..replicas].iter().for_each(Replica::hang_up);
        }
    }

    pub(crate) async fn stop(self) -> Result<(), Box<dyn Error>> {
        self.proxy.stop().await
    }
}

async fn meet(caller: Caller, fault: Fault) -> Result<(Told, Told), JoinError> {
    // One of the others that meets a slow replica teaches the picker to leave it alone, and then no
    // repeatable call might meet it.
    let after = if fault.is_silent() { CALLS / 2 } else { 0 };
    tokio::try_join!(caller.repeatable(), caller.others(after))
}

/// What each of them comes to, side by side.
async fn each<T, F>(callers: &[Caller], work: impl Fn(Caller) -> F) -> Result<Vec<T>, JoinError>
where
    T: Send + 'static,
    F: Future<Output = Result<T, JoinError>> + Send + 'static,
{
    let mut running = JoinSet::new();
    for (number, caller) in callers.iter().cloned().enumerate() {
        let work = work(caller);
        running.spawn(async move { (number, work.await) });
    }
    let mut done = Vec::new();
    while let Some(ended) = running.join_next().await {
        let (number, outcome) = ended?;
        done.push((number, outcome?));
    }
    done.sort_by_key(|(number, _)| *number);
    Ok(done.into_iter().map(|(_, outcome)| outcome).collect())
}
