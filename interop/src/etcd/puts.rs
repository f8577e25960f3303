//! Writes while the nodes stop in turn: whatever becomes of a call, etcd executes it once at most.
//!
//! Each call writes a key of its own. So a key's version is how often its call was executed, and the
//! store's revision rises by the number of calls that were.

use std::{collections::BTreeMap, error::Error, sync::Arc, time::Duration};

use interop::{Mode, Outcome, Report, Told, ensure, open_loop};
use parking_lot::Mutex;
use tokio::task::{JoinError, JoinSet};
use tonic::Request;
use tonic_hedge::HedgedChannel;

use crate::{
    callers::{Caller, MODES, NOT_SLOW, connected, hedged},
    cluster::Cluster,
    kv::{KeyValue, PutRequest, RangeRequest, RangeResponse},
};

const CASE: &str = "put_once";

/// Between two writes of one channel.
const PACE: Duration = Duration::from_millis(40);

/// Twenty seconds of them, with two stops: the leader's, and one more.
const CALLS: u32 = 500;
const STOPS: usize = 2;

/// A tenth of a stop: many a call ends before its node has read it, and the node executes it later.
const SHORT: Duration = Duration::from_millis(200);

/// Longer than a stop and an election.
const LONG: Duration = Duration::from_secs(5);

/// What the writes of one channel came to.
struct Written {
    told: Told,
    /// The keys of those that were answered with OK.
    acknowledged: Vec<Vec<u8>>,
}

pub(crate) async fn run(cluster: &Cluster, report: &mut Report) -> Result<(), Box<dyn Error>> {
    let mut channels = Vec::new();
    for mode in MODES {
        // One that opens would keep calls from the nodes that are in trouble: the very ones.
        let channel = hedged(cluster, mode).without_breaker().build()?;
        Caller::hedged(&channel).range(read_one()).await?;
        connected(&channel).await;
        channels.push((mode, channel));
    }
    let before = state(cluster).await?;
    let served_before = cluster.requests("Put").await?;

    let mut running = JoinSet::new();
    for (mode, channel) in &channels {
        running.spawn(calls(*mode, channel.clone()));
    }
    cluster.stop_in_turn(STOPS).await?;
    let mut written = BTreeMap::new();
    while let Some(ended) = running.join_next().await {
        let (mode, of_mode) = ended??;
        written.insert(mode.name(), of_mode);
    }
    let served = cluster.requests("Put").await? - served_before;
    let after = state(cluster).await?;

    for (mode, channel) in &channels {
        let written = &written[mode.name()];
        let executed = executed(*mode, &after.kvs);
        println!(
            "etcd     hedging {}: {CALLS} puts, {} executed, ended {:?}",
            mode.name(),
            executed.len(),
            written.told.codes
        );
        report.add_in(CASE, *mode, once(*mode, channel, written, &executed));
    }
    report.impossible(CASE, Mode::Slow, NOT_SLOW);
    report.add("puts_in_trouble", trouble(&written));
    report.add("puts_by_revision", by_revision(&before, &after));
    report.add("puts_by_etcd", by_etcd(served, &written));
    Ok(())
}

/// Writes, and reads on the same channel, so that it hedges all the while.
async fn calls(mode: Mode, channel: HedgedChannel) -> Result<(Mode, Written), JoinError> {
    let acknowledged = Arc::new(Mutex::new(Vec::new()));
    let caller = Caller::hedged(&channel);
    let puts = open_loop(CALLS, PACE, |number| {
        let key = key(mode, number);
        let mut put = Request::new(PutRequest {
            key: key.clone(),
            value: key.clone(),
        });
        put.set_timeout(if number % 2 == 0 { SHORT } else { LONG });
        let (caller, acknowledged) = (caller.clone(), Arc::clone(&acknowledged));
        async move {
            let result = caller.put(put).await;
            if result.is_ok() {
                acknowledged.lock().push(key);
            }
            result
        }
    });
    let reads = open_loop(CALLS, PACE, |_| caller.clone().range(read_one()));
    let (told, _) = tokio::try_join!(puts, reads)?;
    let acknowledged = acknowledged.lock().clone();
    Ok((mode, Written { told, acknowledged }))
}

fn key(mode: Mode, number: u32) -> Vec<u8> {
    format!("put/{}/{number:04}", mode.name()).into_bytes()
}

fn read_one() -> Request<RangeRequest> {
    let mut read = Request::new(RangeRequest {
        key: b"put/none".into(),
        serializable: true,
        ..RangeRequest::default()
    });
    read.set_timeout(LONG);
    read
}

/// All keys and the revision, as the nodes agree on them at one moment.
async fn state(cluster: &Cluster) -> Result<RangeResponse, Box<dyn Error>> {
    let all = RangeRequest {
        key: b"put/".into(),
        range_end: b"put0".into(),
        ..RangeRequest::default()
    };
    let state = Caller::plain(cluster)?.range(Request::new(all)).await?;
    Ok(state.into_inner())
}

fn executed(mode: Mode, all: &[KeyValue]) -> BTreeMap<Vec<u8>, i64> {
    let prefix = format!("put/{}/", mode.name()).into_bytes();
    let of_mode = all.iter().filter(|it| it.key.starts_with(&prefix));
    of_mode.map(|it| (it.key.clone(), it.version)).collect()
}

fn once(
    mode: Mode,
    channel: &HedgedChannel,
    written: &Written,
    executed: &BTreeMap<Vec<u8>, i64>,
) -> Outcome {
    let again = executed.iter().find(|(_, version)| **version != 1);
    ensure!(again.is_none(), "{again:?}");
    let lost = written
        .acknowledged
        .iter()
        .find(|key| !executed.contains_key(*key));
    ensure!(lost.is_none(), "{lost:?}");
    ensure!(written.told.most_sent == 1, "{}", written.told.most_sent);
    // Reads were hedged meanwhile, and writes could have been.
    let measured = channel.measured();
    let range = measured.method("etcdserverpb.KV/Range").ok_or("no reads")?;
    match mode {
        Mode::Off => ensure!(range.hedges == 0, "{range:?}"),
        _ => ensure!(range.hedges > 0, "{range:?}"),
    }
    Ok(())
}

/// The stops met some writes: else the rest shows nothing.
fn trouble(written: &BTreeMap<&str, Written>) -> Outcome {
    let expired = |it: &Written| it.told.codes.get("DEADLINE_EXCEEDED").copied();
    let expired: u64 = written.values().filter_map(expired).sum();
    ensure!(expired > 0, "{expired} ended by their deadline");
    Ok(())
}

fn by_revision(before: &RangeResponse, after: &RangeResponse) -> Outcome {
    let revision = |state: &RangeResponse| state.header.as_ref().map_or(0, |it| it.revision);
    let rose = revision(after) - revision(before);
    ensure!(before.kvs.is_empty(), "{}", before.kvs.len());
    ensure!(
        rose == after.kvs.len() as i64,
        "{rose}, {} keys",
        after.kvs.len()
    );
    println!("etcd     revision rose by {rose}, {} keys", after.kvs.len());
    Ok(())
}

fn by_etcd(served: u64, written: &BTreeMap<&str, Written>) -> Outcome {
    let sent: u64 = written.values().map(|it| it.told.sent).sum();
    let acknowledged: usize = written.values().map(|it| it.acknowledged.len()).sum();
    ensure!(served <= sent, "{served} served, {sent} sent");
    ensure!(
        served >= acknowledged as u64,
        "{served}, {acknowledged} acknowledged"
    );
    println!("etcd     puts: served {served}, sent {sent}, acknowledged {acknowledged}");
    Ok(())
}
