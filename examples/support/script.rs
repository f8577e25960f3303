//! The Probe service whose unary methods do what a script says.

use std::future::Future;

use tonic::{Request, Response, Status, Streaming, codegen::BoxStream, metadata::MetadataMap};

use probe::{
    ProbeReply, ProbeRequest,
    probe_server::{Probe, ProbeServer},
};

/// The generated code of `proto/hedge/testing/v1/probe.proto`.
#[allow(missing_docs, unreachable_pub)]
pub(crate) mod probe {
    tonic::include_proto!("hedge.testing.v1");
}

/// What a replica does with an attempt.
pub(crate) trait Script: Send + Sync + 'static {
    /// Answers, when it likes. Dropped before its end, the attempt was cancelled.
    fn answer(&self, arrival: Arrival) -> impl Future<Output = Result<(), Status>> + Send;
}

/// An attempt as it reached a replica.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    /// The same for all attempts of a call.
    pub(crate) call: u64,
    /// Attempts of the call before this one.
    pub(crate) before: u64,
}

impl Arrival {
    /// Draws for this attempt, independent of its call's other attempts, and the same whichever
    /// channel sends it: two channels then differ by what they do, not by their luck.
    pub(crate) fn draws(self) -> fastrand::Rng {
        // More than a call ever has attempts.
        fastrand::Rng::with_seed(self.call * 64 + self.before)
    }
}

/// The Probe service by a script.
pub(crate) fn service<S: Script>(script: S) -> ProbeServer<Scripted<S>> {
    ProbeServer::new(Scripted(script))
}

pub(crate) struct Scripted<S>(S);

impl<S: Script> Scripted<S> {
    async fn answer(&self, request: Request<ProbeRequest>) -> Answer {
        let id = &request.get_ref().id;
        let arrival = Arrival {
            call: id
                .parse()
                .map_err(|_| Status::invalid_argument("an id is a number here"))?,
            before: attempts_before(request.metadata()),
        };
        self.0.answer(arrival).await?;
        Ok(Response::new(ProbeReply {
            id: request.into_inner().id,
            ..ProbeReply::default()
        }))
    }
}

/// The header that tells a server which attempt of its call it has got; absent on the first.
fn attempts_before(metadata: &MetadataMap) -> u64 {
    metadata
        .get("grpc-previous-rpc-attempts")
        .and_then(|value| value.to_str().ok()?.parse().ok())
        .unwrap_or(0)
}

type Answer = Result<Response<ProbeReply>, Status>;

#[tonic::async_trait]
impl<S: Script> Probe for Scripted<S> {
    type WatchStream = BoxStream<ProbeReply>;
    type ChatStream = BoxStream<ProbeReply>;

    async fn get(&self, request: Request<ProbeRequest>) -> Answer {
        self.answer(request).await
    }
    async fn put(&self, request: Request<ProbeRequest>) -> Answer {
        self.answer(request).await
    }
    async fn keyed(&self, request: Request<ProbeRequest>) -> Answer {
        self.answer(request).await
    }
    async fn vetoed(&self, request: Request<ProbeRequest>) -> Answer {
        self.answer(request).await
    }
    async fn off(&self, request: Request<ProbeRequest>) -> Answer {
        self.answer(request).await
    }
    async fn tuned(&self, request: Request<ProbeRequest>) -> Answer {
        self.answer(request).await
    }
    async fn watch(&self, _: Request<ProbeRequest>) -> Result<Response<Self::WatchStream>, Status> {
        Err(Status::unimplemented("scripts answer unary calls"))
    }
    async fn upload(&self, _: Request<Streaming<ProbeRequest>>) -> Answer {
        Err(Status::unimplemented("scripts answer unary calls"))
    }
    async fn chat(
        &self,
        _: Request<Streaming<ProbeRequest>>,
    ) -> Result<Response<Self::ChatStream>, Status> {
        Err(Status::unimplemented("scripts answer unary calls"))
    }
}
