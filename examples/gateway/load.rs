//! The incident, played to a gateway that runs elsewhere.

use std::{error::Error, io};

use tokio::time::{Instant, sleep};

use crate::{
    args::Load,
    region::Region,
    remote::Remote,
    replay::{
        Directed, Figures, STEP,
        drive::{Callers, drive},
        figures::Sent,
        plan::{Phase, Plan},
    },
    tokens::Spent,
};

/// Another load meets other draws.
const SEED: u64 = 0x10ad;

/// Returns what is to be printed.
pub(crate) async fn load(asked: &Load) -> Result<String, Box<dyn Error>> {
    let remote = Remote::new(&asked.uri)?;
    let stats = remote.stats().await?;
    let grpc = stats["grpc"]
        .as_str()
        .ok_or("it does not say where its front is")?;
    let names = stats["regions"].as_array().into_iter().flatten();
    let regions: Vec<_> = names
        .filter_map(|it| Region::named(it["name"].as_str()?))
        .collect();
    let callers = Callers::connect(grpc).await?;
    let plan = Plan::lasting(asked.length);
    let (start, callers) = (Instant::now(), [callers]);
    let saw = tokio::select! {
        saw = drive(&plan, SEED, start, &callers) => saw?,
        error = direct(&plan, start, &remote, &regions) => return Err(error.into()),
    };
    let mut text = String::new();
    for saw in saw {
        // What the gateway sends to its replicas is on its own page.
        let figures = Figures::new(
            &saw,
            Spent::default(),
            Sent::default(),
            [Sent::default(); 5],
        );
        for phase in Phase::ALL {
            text += &format!("{}: {}\n", phase.name(), figures.interactive(phase).text());
        }
        text += &format!("batch: {}\n", figures.batch.text());
    }
    Ok(text)
}

/// Does to the regions there what the plan says, until it cannot.
async fn direct(plan: &Plan, start: Instant, remote: &Remote, regions: &[Region]) -> io::Error {
    let mut done = Vec::new();
    loop {
        let wanted = Directed::of(plan, start.elapsed());
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
