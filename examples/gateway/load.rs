//! The incident, played to a gateway that runs elsewhere.

use std::{error::Error, future::Future, io, pin::pin, time::Duration};

use tokio::time::{Instant, sleep};

use crate::{
    args::Load,
    region::Region,
    remote::Remote,
    replay::{
        Directed, Figures, STEP, Told,
        drive::{Callers, Saw, drive},
        figures::Sent,
        plan::{Phase, Plan},
    },
    tokens::Spent,
};

/// Another load meets other draws.
const SEED: u64 = 0x10ad;

/// Prints what the callers saw, and says whether they came to the end of it: not where `stopped` ends
/// before. The regions there are then as they are without a load, also where something fails.
pub(crate) async fn load(
    asked: &Load,
    stopped: impl Future<Output = io::Result<()>>,
) -> Result<bool, Box<dyn Error>> {
    let remote = Remote::new(&asked.uri)?;
    let stats = remote.stats().await?;
    let grpc = stats["grpc"]
        .as_str()
        .ok_or_else(|| format!("{}: it does not say where its front is", asked.uri))?;
    let names = stats["regions"].as_array().into_iter().flatten();
    let regions = names.filter_map(|it| Region::named(it["name"].as_str()?));
    let mut there = There {
        regions: regions.map(|it| (it, None)).collect(),
        remote,
        told: Told::default(),
    };
    let callers = [Callers::connect(grpc).await?];
    let plan = Plan::lasting(asked.length);
    let start = Instant::now();
    let stop = direct(&plan, start, &mut there, stopped);
    let played = drive(&plan, SEED, start, &callers, stop).await;
    let at = start.elapsed();
    let healed = there.heal().await;
    let (saw, stopped) = played?;
    for saw in &saw {
        print!("{}", text(saw, &plan, at, stopped.is_some()));
    }
    if let Some(why) = &stopped {
        eprintln!("{why}, after {:.0} s", at.as_secs_f64());
    }
    healed.map_err(|error| format!("the regions may be as they were: {error}"))?;
    Ok(stopped.is_none())
}

/// What one gateway's callers saw in the phases that have begun.
fn text(saw: &Saw, plan: &Plan, at: Duration, stopped: bool) -> String {
    // What the gateway sends to its replicas is on its own page.
    let figures = Figures::new(saw, Spent::default(), Sent::default(), [Sent::default(); 5]);
    let mut text = String::new();
    for phase in Phase::ALL {
        let (begin, end) = plan.span(phase);
        if begin >= at {
            break;
        }
        let cut = if end > at { " (cut short)" } else { "" };
        let seen = figures.interactive(phase).text();
        text += &format!("{}{cut}: {seen}\n", phase.name());
    }
    if at > plan.span(Phase::Slow).0 {
        let cut = if stopped {
            " (jobs that had ended)"
        } else {
            ""
        };
        text += &format!("batch{cut}: {}\n", figures.batch.text());
    }
    text
}

/// Does there what the plan says, until it is stopped or cannot, and says why. It ends between two
/// requests: one that was sent and not awaited might come after those that heal.
async fn direct(
    plan: &Plan,
    start: Instant,
    there: &mut There,
    stopped: impl Future<Output = io::Result<()>>,
) -> String {
    let mut stopped = pin!(stopped);
    loop {
        if let Err(error) = there.follow(plan, start.elapsed()).await {
            return error.to_string();
        }
        tokio::select! {
            () = sleep(STEP) => {}
            stopped = &mut stopped => {
                return stopped.map_or_else(|error| error.to_string(), |()| "stopped".to_owned());
            }
        }
    }
}

/// The gateway that is played to.
struct There {
    remote: Remote,
    /// As they are to be, and the floor and the errors that they were last told.
    regions: Vec<(Region, Option<(Duration, f64)>)>,
    told: Told,
}

impl There {
    /// Makes it as the plan says for a time.
    async fn follow(&mut self, plan: &Plan, at: Duration) -> io::Result<()> {
        if let Some(begun) = self.told.tell(plan, at) {
            self.remote.enter(Some(begun)).await?;
        }
        let wanted = Directed::of(plan, at);
        for (region, done) in &mut self.regions {
            wanted.tell(region);
            let now = Some((region.floor(), region.errors()));
            // Most of the time nothing changes.
            if *done != now {
                self.remote.change(region).await?;
                *done = now;
            }
        }
        Ok(())
    }

    /// Makes it healthy, as far as it can.
    async fn heal(&self) -> io::Result<()> {
        let mut healed = Ok(());
        for (region, _) in &self.regions {
            region.set_floor(Duration::ZERO);
            region.set_errors(0.0);
            healed = healed.and(self.remote.change(region).await);
        }
        healed.and(self.remote.enter(None).await)
    }
}
