//! A read that the nodes agree on sees the write before it, whichever node is asked.

use std::error::Error;

use interop::{Outcome, Report, ensure};
use tonic_hedge::{HedgedChannel, ResponseExt as _};

use crate::{
    callers::{MODES, NOT_SLOW, connected, hedged},
    cluster::Cluster,
    kv::{PutRequest, RangeRequest, kv_client::KvClient},
};
use interop::Mode;

const CASE: &str = "linearizable_range";

/// Enough that each node answers some, and that a read outruns a hedge's millisecond now and then.
const ROUNDS: u32 = 200;

pub(crate) async fn run(cluster: &Cluster, report: &mut Report) -> Result<(), Box<dyn Error>> {
    for mode in MODES {
        let channel = hedged(cluster, mode).build()?;
        report.add_in(CASE, mode, reads_its_writes(channel, mode).await);
    }
    report.impossible(CASE, Mode::Slow, NOT_SLOW);
    Ok(())
}

async fn reads_its_writes(channel: HedgedChannel, mode: Mode) -> Outcome {
    let mut client = KvClient::new(channel.clone());
    let key = mode.name().as_bytes();
    let mut hedges = 0;
    for round in 0..ROUNDS {
        let value = round.to_string().into_bytes();
        let put = PutRequest {
            key: key.into(),
            value: value.clone(),
        };
        client.put(put).await?;
        connected(&channel).await;
        let read = RangeRequest {
            key: key.into(),
            ..RangeRequest::default()
        };
        let response = client.range(read).await?;
        hedges += u32::from(response.hedged());
        let kvs = response.into_inner().kvs;
        ensure!(kvs.len() == 1, "{kvs:?}");
        ensure!(kvs[0].value == value, "{kvs:?} in round {round}");
        ensure!(kvs[0].version == i64::from(round) + 1, "{kvs:?}");
    }
    match mode {
        Mode::Off => ensure!(hedges == 0, "{hedges}"),
        Mode::Forced => ensure!(hedges > 0, "{hedges}"),
        _ => {}
    }
    Ok(())
}
