//! Serializable reads, which any node answers alone, while the nodes stop in turn: plain tonic and a
//! `HedgedChannel` in each mode, side by side.

use std::{error::Error, time::Duration};

use interop::{Mode, Outcome, Report, Told, ensure, open_loop};
use tokio::task::JoinSet;
use tonic::Request;
use tonic_hedge::BudgetPolicy;

use crate::{
    callers::{Caller, MODES, NOT_SLOW, connected, hedged},
    cluster::{Cluster, NODES},
    kv::{PutRequest, RangeRequest},
};

const CASE: &str = "serializable_range";

/// Keys that are read in turn.
const KEYS: u32 = 100;

/// Between two calls of one caller.
const PACE: Duration = Duration::from_millis(10);

/// Half a minute of them: each node stops once.
const CALLS: u32 = 3_000;

/// Longer than a stop: what waits for a node that stopped is late, and no error.
const DEADLINE: Duration = Duration::from_secs(5);

pub(crate) async fn run(cluster: &Cluster, report: &mut Report) -> Result<(), Box<dyn Error>> {
    let mut callers = vec![("plain tonic".to_owned(), Caller::plain(cluster)?)];
    write(&callers[0].1).await?;
    for mode in MODES {
        let channel = hedged(cluster, mode).build()?;
        let caller = Caller::hedged(&channel);
        caller.clone().range(request(0)).await?;
        connected(&channel).await;
        callers.push((format!("hedging {}", mode.name()), caller));
    }

    let before = cluster.requests("Range").await?;
    let mut running = JoinSet::new();
    for (number, (_, caller)) in callers.iter().cloned().enumerate() {
        running.spawn(async move {
            let call = |key| caller.clone().range(request(key));
            (number, open_loop(CALLS, PACE, call).await)
        });
    }
    cluster.stop_in_turn(NODES).await?;
    let mut told = vec![Told::default(); callers.len()];
    while let Some(ended) = running.join_next().await {
        let (number, of_one) = ended?;
        told[number] = of_one?;
    }
    let served = cluster.requests("Range").await? - before;

    print(&callers, &told);
    for (mode, of_mode) in MODES.into_iter().zip(&told[1..]) {
        report.add_in(CASE, mode, is_better(mode, of_mode, &told[0]));
    }
    report.impossible(CASE, Mode::Slow, NOT_SLOW);
    report.add("requests_by_etcd", are_those_logged(served, &told));
    Ok(())
}

async fn write(caller: &Caller) -> Result<(), Box<dyn Error>> {
    for key in 0..KEYS {
        let put = PutRequest {
            key: name(key),
            value: vec![b'v'; 100],
        };
        caller.clone().put(Request::new(put)).await?;
    }
    Ok(())
}

fn request(number: u32) -> Request<RangeRequest> {
    let mut request = Request::new(RangeRequest {
        key: name(number % KEYS),
        serializable: true,
        ..RangeRequest::default()
    });
    request.set_timeout(DEADLINE);
    request
}

fn name(key: u32) -> Vec<u8> {
    format!("range/{key}").into_bytes()
}

/// What README.md shows.
fn print(callers: &[(String, Caller)], told: &[Told]) {
    println!(
        "etcd     | caller | calls | errors | p50 ms | p99 ms | p99.9 ms | extra | hedges | won |"
    );
    println!("etcd     | --- | --- | --- | --- | --- | --- | --- | --- | --- |");
    for ((name, _), told) in callers.iter().zip(told) {
        let [p50, p99, p999] =
            [0.5, 0.99, 0.999].map(|share| told.quantile(share).as_secs_f64() * 1e3);
        println!(
            "etcd     | {name} | {} | {} | {p50:.1} | {p99:.1} | {p999:.1} | {} | {} | {} |",
            told.calls(),
            told.failed(),
            told.extra,
            told.hedges,
            told.hedges_won
        );
    }
}

/// No call fails, and the budget bounds the price; hedged as a user would, the tail is shorter. Where
/// nearly every call wants a hedge the budget is empty when a node stops, so there the tail is luck.
fn is_better(mode: Mode, told: &Told, plain: &Told) -> Outcome {
    ensure!(told.failed() == 0, "{:?}", told.codes);
    let budget = BudgetPolicy::default();
    let most = budget.initial + budget.ratio * f64::from(CALLS);
    ensure!(told.extra as f64 <= most, "{} of {most}", told.extra);
    match mode {
        Mode::Off => ensure!(told.hedges == 0, "{}", told.hedges),
        _ => ensure!(told.hedges_won > 0, "{}", told.hedges_won),
    }
    if mode == Mode::On {
        let (p99, plains) = (told.quantile(0.99), plain.quantile(0.99));
        ensure!(p99 < plains, "{p99:?}, plain tonic's is {plains:?}");
    }
    Ok(())
}

/// What the nodes served is what was sent, by the call logs: all that somebody waited for, and no more
/// than all. A cancelled attempt that its node had not yet read may be in neither.
fn are_those_logged(served: u64, told: &[Told]) -> Outcome {
    let sent: u64 = told.iter().map(|it| it.sent).sum();
    let discarded: u64 = told.iter().map(|it| it.discarded).sum();
    ensure!(served <= sent, "{served} served, {sent} sent");
    ensure!(
        served >= sent - discarded,
        "{served} served, {sent} sent, {discarded} of them discarded"
    );
    println!("etcd     served {served}, sent {sent}, of them discarded {discarded}");
    Ok(())
}
