//! The incident, played to a gateway that runs elsewhere.

use std::{error::Error, io, time::Duration};

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
    stopped,
    tokens::Spent,
};

/// Another load meets other draws.
const SEED: u64 = 0x10ad;

/// Prints what the callers saw, and says whether they came to the end of it. Whatever ends it, the
/// regions there are as they are without a load.
pub(crate) async fn load(asked: &Load) -> Result<bool, Box<dyn Error>> {
    let remote = Remote::new(&asked.uri)?;
    let stats = remote.stats().await?;
    let grpc = stats["grpc"]
        .as_str()
        .ok_or_else(|| format!("{}: it does not say where its front is", asked.uri))?;
    let names = stats["regions"].as_array().into_iter().flatten();
    let regions: Vec<_> = names
        .filter_map(|it| Region::named(it["name"].as_str()?))
        .collect();
    let callers = [Callers::connect(grpc)
        .await
        .map_err(|error| format!("{grpc}: {error}"))?];
    let plan = Plan::lasting(asked.length);
    let start = Instant::now();
    let stop = async {
        tokio::select! {
            error = direct(&plan, start, &remote, &regions) => error.to_string(),
            stopped = stopped() => stopped.map_or_else(|error| error.to_string(), |()| "stopped".to_owned()),
        }
    };
    let played = drive(&plan, SEED, start, &callers, stop).await;
    let at = start.elapsed();
    let reset = reset(&remote, &regions).await;
    let (saw, stopped) = played?;
    for saw in &saw {
        print!("{}", text(saw, &plan, at));
    }
    if let Some(why) = &stopped {
        eprintln!("{why}, after {:.0} s", at.as_secs_f64());
    }
    reset?;
    Ok(stopped.is_none())
}

/// What one gateway's callers saw in the phases that have begun.
fn text(saw: &Saw, plan: &Plan, at: Duration) -> String {
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
    text += &format!("batch: {}\n", figures.batch.text());
    text
}

/// Makes the regions there healthy again.
async fn reset(remote: &Remote, regions: &[Region]) -> io::Result<()> {
    for region in regions {
        region.set_floor(Duration::ZERO);
        region.set_errors(0.0);
        remote.change(region).await?;
    }
    Ok(())
}

/// Does to the regions there what the plan says, until it cannot.
async fn direct(plan: &Plan, start: Instant, remote: &Remote, regions: &[Region]) -> io::Error {
    let mut done = Vec::new();
    let mut told = Told::default();
    loop {
        let at = start.elapsed();
        told.tell(plan, at);
        let wanted = Directed::of(plan, at);
        for (number, region) in regions.iter().enumerate() {
            wanted.tell(region);
            let now = (region.floor(), region.errors());
            // Most of the time nothing changes.
            if done.get(number) == Some(&now) {
                continue;
            }
            if let Err(error) = remote.change(region).await {
                return error;
            }
            done.resize(regions.len(), now);
            done[number] = now;
        }
        sleep(STEP).await;
    }
}
