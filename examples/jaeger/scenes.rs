//! The scenes: what happens in each, and what its trace shows.

use std::{error::Error, time::Duration};

use opentelemetry::{
    Context,
    trace::{
        FutureExt as _, Span as _, TraceContextExt as _, TraceId, Tracer as _, TracerProvider as _,
    },
};
use opentelemetry_sdk::trace::SdkTracerProvider;
use tonic::Request;
use tonic_hedge::{BudgetPolicy, Criticality, Hedge, HedgedChannel, RequestExt as _};

use crate::{
    fleet::Fleet,
    script::probe::{self, ProbeRequest, probe_client::ProbeClient},
};

/// Calls of the scene `Usual`: twice as many as the threshold needs.
const USUAL_CALLS: u64 = 40;

/// In the order in which they are played. The failures come last: the gate `error_rate` would
/// keep every later hedge back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scene {
    Usual,
    HedgeWins,
    OriginalWins,
    NotIdempotent,
    Sheddable,
    NoBudget,
    Retried,
    Failed,
}

/// The service whose calls are shown.
pub(crate) struct Shop {
    provider: SdkTracerProvider,
    channel: HedgedChannel,
    /// A channel that has no token to spend on a hedge.
    broke: HedgedChannel,
}

impl Scene {
    pub(crate) const ALL: [Self; 8] = [
        Self::Usual,
        Self::HedgeWins,
        Self::OriginalWins,
        Self::NotIdempotent,
        Self::Sheddable,
        Self::NoBudget,
        Self::Retried,
        Self::Failed,
    ];

    /// A call's id tells the replicas its scene.
    pub(crate) fn of_call(id: u64) -> Self {
        let scene = usize::try_from(id).ok().and_then(|id| Self::ALL.get(id));
        scene.copied().unwrap_or(Self::Usual)
    }

    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Usual => "usual calls",
            Self::HedgeWins => "the hedge wins",
            Self::OriginalWins => "the original wins",
            Self::NotIdempotent => "held back: not idempotent",
            Self::Sheddable => "held back: sheddable",
            Self::NoBudget => "held back: no budget",
            Self::Retried => "retried",
            Self::Failed => "failed",
        }
    }

    pub(crate) fn look_for(self) -> &'static str {
        match self {
            Self::Usual => {
                "Forty calls, one after the other. The first twenty say why they would not be \
                 hedged: gate 5, samples. From then on there is a threshold, and a call within it \
                 is one attempt and no events."
            }
            Self::HedgeWins => {
                "Two attempts that overlap, on two replicas, each with its replica's span under it. \
                 On the call: seven hedge.gate events that all hold, hedge.started, hedge.discarded, \
                 hedge.won. The original is discarded, and no error."
            }
            Self::OriginalWins => {
                "As before, but the hedge is the attempt that is discarded: hedge.discarded."
            }
            Self::NotIdempotent => {
                "One attempt. Put says nothing in its .proto, so gate 2, repeatable, does not hold: \
                 hedge.suppressed with hedge.reason=repeatable, and not an attempt more."
            }
            Self::Sheddable => {
                "One attempt, slower than hedge.threshold; the request is sheddable: gate 7, \
                 not_sheddable."
            }
            Self::NoBudget => {
                "One attempt on a channel that has nothing left to spend: gate 6, budget, observed \
                 0 of the 1 that a hedge costs."
            }
            Self::Retried => {
                "Two attempts, one after the other: the first failed with UNAVAILABLE, the second \
                 is a retry and won. The call is no error."
            }
            Self::Failed => {
                "Every attempt failed, and with the last one the call: error.type=UNAVAILABLE."
            }
        }
    }
}

impl Shop {
    pub(crate) async fn open(
        fleet: &Fleet,
        provider: SdkTracerProvider,
    ) -> Result<Self, Box<dyn Error>> {
        let builder = || {
            HedgedChannel::builder()
                .endpoints(fleet.uris())
                .descriptors(probe::FILE_DESCRIPTOR_SET)
                .tracer_provider(&provider)
        };
        // On a machine that is busy with other things, what is usual can be slow.
        let hedge = Hedge::at(0.9).maximum_delay(Duration::from_millis(100));
        let channel = builder().hedge(hedge).build()?;
        let broke = builder()
            .hedge(Hedge::after(Duration::from_millis(20)))
            .budget(BudgetPolicy::default().initial(0.0).ratio(0.0))
            .build()?;
        Ok(Self {
            provider,
            channel,
            broke,
        })
    }

    /// Plays a scene as one trace, whose root is a span of the shop's own.
    pub(crate) async fn play(&self, scene: Scene) -> Result<TraceId, Box<dyn Error>> {
        let root = self.provider.tracer("shop").start(scene.title());
        let id = root.span_context().trace_id();
        let playing = self.calls(scene);
        playing.with_context(Context::new().with_span(root)).await?;
        Ok(id)
    }

    async fn calls(&self, scene: Scene) -> Result<(), Box<dyn Error>> {
        let mut client = ProbeClient::new(self.channel.clone());
        let request = Request::new(ProbeRequest {
            id: (scene as u64).to_string(),
            ..ProbeRequest::default()
        });
        match scene {
            Scene::Usual => usual(client).await,
            Scene::HedgeWins | Scene::OriginalWins | Scene::Retried => {
                client.get(request).await?;
                Ok(())
            }
            Scene::NotIdempotent => {
                client.put(request).await?;
                Ok(())
            }
            Scene::Sheddable => {
                client
                    .get(request.criticality(Criticality::Sheddable))
                    .await?;
                Ok(())
            }
            Scene::NoBudget => {
                ProbeClient::new(self.broke.clone()).get(request).await?;
                Ok(())
            }
            Scene::Failed => match client.get(request).await {
                Err(_) => Ok(()),
                Ok(_) => Err("the call that was to fail did not".into()),
            },
        }
    }
}

/// One after the other: at once they would wait for each other, and teach that.
async fn usual(mut client: ProbeClient<HedgedChannel>) -> Result<(), Box<dyn Error>> {
    for number in 0..USUAL_CALLS {
        let id = Scene::ALL.len() as u64 + number;
        let request = ProbeRequest {
            id: id.to_string(),
            ..ProbeRequest::default()
        };
        client.get(request).await?;
    }
    Ok(())
}
