//! Makes calls, and reads their metrics back from a real Prometheus.
//!
//! `interop-metrics CHECK|all`; `interop/run metrics` prepares what it needs and calls this. The
//! calls are the same for each check: they are made once, and then asked about. `look` leaves the
//! asking to a person, at the address that it prints.

mod admission;
mod checks;
mod dashboard;
mod documented;
mod page;
mod prometheus;
#[path = "../../../examples/support/replica.rs"]
mod replica;
mod replicas;
#[path = "../../../examples/support/script.rs"]
mod script;
mod traffic;

use std::{
    collections::BTreeMap, env, error::Error, path::Path, process::ExitCode, time::Duration,
};

use interop::{Outcome, Report};
use tonic_hedge::Lanes;

use admission::Admitted;
use checks::Scraped;
use documented::Metric;
use page::Page;
use prometheus::Prometheus;
use traffic::{BROKEN, REFUSING, Sent, TAIL};

/// Calls and scrapes take a quarter of a minute.
const PATIENCE: Duration = Duration::from_secs(120);

/// Half a minute of calls.
const ROUNDS_TO_SEE: u32 = 3;

#[tokio::main]
async fn main() -> Result<ExitCode, Box<dyn Error>> {
    let usage = "usage: interop-metrics CHECK|all|look";
    let wanted = env::args().nth(1).ok_or(usage)?;
    let folder = env::temp_dir().join(format!("interop-metrics-{}", std::process::id()));
    let outcome = match &*wanted {
        "look" => look(&folder).await.map(|()| ExitCode::SUCCESS),
        _ => check(&wanted, &folder).await,
    };
    // Whatever became of it: the data of one run is of no use to another.
    let _left_behind = std::fs::remove_dir_all(&folder);
    outcome
}

async fn check(wanted: &str, folder: &Path) -> Result<ExitCode, Box<dyn Error>> {
    let checks = tokio::time::timeout(PATIENCE, run(folder)).await;
    let mut checks = checks.unwrap_or_else(|_| Err(format!("no end after {PATIENCE:?}").into()))?;
    if wanted != "all" {
        let names: Vec<_> = checks.iter().map(|(name, _)| name.clone()).collect();
        checks.retain(|(name, _)| name.starts_with(wanted));
        if checks.is_empty() {
            return Err(format!("no check {wanted}; there are: {}", names.join("; ")).into());
        }
    }
    let mut report = Report::new("metrics");
    for (check, outcome) in checks {
        report.add(&check, outcome);
    }
    Ok(report.close()?)
}

/// Makes the calls again and again until standard input ends. The address comes once there is
/// something to see.
async fn look(folder: &Path) -> Result<(), Box<dyn Error>> {
    let page = Page::open().await?;
    let prometheus = Prometheus::start(folder, page.port).await?;
    let rounds = async {
        for round in 1.. {
            let (_channels, _lanes) = calls(&page).await?;
            if round == ROUNDS_TO_SEE {
                println!("{}", prometheus.url());
            }
        }
        Ok::<_, Box<dyn Error>>(())
    };
    let (mut input, mut nowhere) = (tokio::io::stdin(), tokio::io::sink());
    tokio::select! {
        rounds = rounds => rounds?,
        read = tokio::io::copy(&mut input, &mut nowhere) => drop(read?),
    }
    prometheus.stop().await
}

/// Makes all calls, those to channels and those through a lane side by side.
async fn calls(
    page: &Page,
) -> Result<
    (
        (BTreeMap<&'static str, Sent>, impl Sized),
        (Admitted, Lanes),
    ),
    Box<dyn Error>,
> {
    let (traffic, admission) =
        tokio::join!(traffic::run(&page.provider), admission::run(&page.provider));
    Ok((traffic?, admission?))
}

async fn run(folder: &Path) -> Result<Vec<(String, Outcome)>, Box<dyn Error>> {
    let page = Page::open().await?;
    let prometheus = Prometheus::start(folder, page.port).await?;
    let start = prometheus.scraped().await?;
    let ((sent, channels), (admitted, lanes)) = calls(&page).await?;
    let end = prometheus.scraped().await?;
    let scraped = Scraped {
        prometheus: &prometheus,
        time: (start, end),
        sent: &sent,
    };

    let mut checks = vec![("the target is up".to_owned(), scraped.target_is_up().await)];
    let documented = Metric::all()?;
    for metric in &documented {
        checks.push((metric.name.clone(), scraped.is_documented(metric).await));
    }
    let mut add = |name: &str, outcome| checks.push((name.to_owned(), outcome));
    add(
        "no other metric",
        scraped.all_are_documented(&documented).await,
    );
    for target in [TAIL, BROKEN, REFUSING] {
        let mut add = |name: &str, outcome| add(&format!("{target}: {name}"), outcome);
        add(
            "a duration per call",
            scraped.one_duration_per_call(target).await,
        );
        add("attempts started", scraped.attempts_started(target).await);
        add(
            "attempts as logged",
            scraped.attempts_as_logged(target).await,
        );
    }
    add("both durations", scraped.both_durations().await);
    add("hedges", scraped.hedges().await);
    add("replacements", scraped.replacements().await);
    let gates = ["samples", "repeatable", "not_sheddable"];
    add(
        "suppressed by gates",
        scraped.suppressed(TAIL, &gates).await,
    );
    add(
        "suppressed by budget",
        scraped.suppressed(BROKEN, &["budget"]).await,
    );
    add("budget", scraped.budget().await);
    add("breaker", scraped.breaker().await);
    add("threshold", scraped.threshold().await);
    add("latency quantiles", scraped.quantiles().await);
    add("win-rate allowance", scraped.allowance().await);
    add("endpoints", scraped.endpoints().await);
    add("cardinality", scraped.cardinality().await);
    add("lanes", scraped.lanes(admitted).await);
    for (number, query) in (1..).zip(documented::queries()?) {
        add(
            &format!("documented query {number}"),
            scraped.finds(&query).await,
        );
    }
    checks.extend(dashboard::checks(&prometheus, (start, end)).await?);
    // Until here: what is gone has no gauges.
    drop((channels, lanes));
    prometheus.stop().await?;
    Ok(checks)
}
