//! Some seconds of calls through a lane that lets in one at a time.

use std::{error::Error, sync::Arc, time::Duration};

use opentelemetry_sdk::metrics::SdkMeterProvider;
use tokio::time::{Instant, sleep};
use tonic::{Code, Request, transport::Endpoint};
use tonic_hedge::{LanePolicy, Lanes};
use tower::Layer as _;

use crate::{
    replica::Replica,
    replicas::{AsAsked, Fate},
    script::{
        probe::{ProbeRequest, probe_client::ProbeClient},
        service,
    },
    traffic::LENGTH,
};

/// What their metrics call the lanes.
pub(crate) const LANES: &str = "front";

/// Between two times that two calls come at once.
const PAUSE: Duration = Duration::from_millis(50);

/// How many calls the lane let in, and how many it shed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Admitted {
    pub(crate) admitted: u64,
    pub(crate) shed: u64,
}

/// Makes the calls. The lanes stay, since their gauges go with them.
pub(crate) async fn run(
    metrics: &Arc<SdkMeterProvider>,
) -> Result<(Admitted, Lanes), Box<dyn Error>> {
    let policy = LanePolicy::default().minimum(1).maximum(1);
    let lanes = Lanes::builder()
        .lane("only", policy)
        .name(LANES)
        .meter_provider(metrics.clone())
        .build()?;
    let replica = Replica::start(service(AsAsked)).await?;
    let channel = Endpoint::from_shared(replica.uri())?.connect().await?;
    let client = ProbeClient::new(lanes.client_layer().layer(channel));

    let mut admitted = Admitted::default();
    let start = Instant::now();
    while start.elapsed() < LENGTH {
        let (mut one, mut other) = (client.clone(), client.clone());
        let (one, other) = tokio::join!(one.get(request()), other.get(request()));
        for result in [one, other] {
            match result.map_err(|status| status.code()) {
                Ok(_) => admitted.admitted += 1,
                Err(Code::ResourceExhausted) => admitted.shed += 1,
                Err(code) => return Err(format!("{code:?} behind a lane").into()),
            }
        }
        sleep(PAUSE).await;
    }
    Ok((admitted, lanes))
}

fn request() -> Request<ProbeRequest> {
    Request::new(ProbeRequest {
        id: Fate::Quick.call(0).to_string(),
        ..ProbeRequest::default()
    })
}
