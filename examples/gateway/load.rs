//! Users and a batch flood for a gateway that runs elsewhere.

use std::error::Error;

use tokio::time::Instant;

use crate::{
    args::Load,
    quantile::quantile,
    replay::{
        caller::Ended,
        drive::{Callers, drive},
        plan::{Phase, Plan},
    },
};

/// Another load meets other draws.
const SEED: u64 = 0x10ad;

/// Returns what is to be printed.
pub(crate) async fn load(asked: &Load) -> Result<String, Box<dyn Error>> {
    let callers = Callers::connect(&asked.uri).await?;
    let plan = Plan::of_one(Phase::Slow, asked.length);
    let saw = drive(&plan, SEED, Instant::now(), &[callers]).await?;
    let mut text = String::new();
    for saw in saw {
        let count = |of: fn(Ended) -> bool| saw.sessions.iter().filter(|it| of(it.ended)).count();
        let answered = || saw.sessions.iter().filter(|it| it.ended == Ended::Answered);
        let first: Vec<_> = answered().filter_map(|it| it.first).collect();
        let total: Vec<_> = answered().map(|it| it.total).collect();
        let sheds: u32 = saw.jobs.iter().map(|it| it.shed).sum();
        let done = saw.jobs.iter().filter(|it| it.done).count();
        text += &format!(
            "interactive: {} calls, {} answered, {} shed, {} failed, {} left\n",
            saw.sessions.len(),
            total.len(),
            count(|it| it == Ended::Shed),
            count(|it| matches!(it, Ended::Failed(_))),
            count(|it| it == Ended::Left),
        );
        let ms = |of: &[_], q| quantile(of.to_vec(), q);
        text += &format!(
            "  first token p50 {:.0} ms, p99 {:.0} ms; whole answer p50 {:.0} ms, p99 {:.0} ms\n",
            ms(&first, 0.5),
            ms(&first, 0.99),
            ms(&total, 0.5),
            ms(&total, 0.99),
        );
        text += &format!(
            "batch: {} jobs, {done} done; {sheds} calls shed\n",
            saw.jobs.len(),
        );
    }
    Ok(text)
}
