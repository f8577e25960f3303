//! The service that is called: it answers at once.

use tonic::{Request, Response, Status, Streaming, codegen::BoxStream};

use probe::{ProbeReply, ProbeRequest, probe_server::Probe};

/// The generated code of `proto/hedge/testing/v1/probe.proto`.
#[allow(missing_docs, unreachable_pub)]
pub(crate) mod probe {
    tonic::include_proto!("hedge.testing.v1");
}

/// Answers at once.
pub(crate) struct AtOnce;

type Answer = Result<Response<ProbeReply>, Status>;

fn answer() -> Answer {
    Ok(Response::new(ProbeReply::default()))
}

#[tonic::async_trait]
impl Probe for AtOnce {
    type WatchStream = BoxStream<ProbeReply>;
    type ChatStream = BoxStream<ProbeReply>;

    async fn get(&self, _: Request<ProbeRequest>) -> Answer {
        answer()
    }
    async fn put(&self, _: Request<ProbeRequest>) -> Answer {
        answer()
    }
    async fn keyed(&self, _: Request<ProbeRequest>) -> Answer {
        answer()
    }
    async fn vetoed(&self, _: Request<ProbeRequest>) -> Answer {
        answer()
    }
    async fn off(&self, _: Request<ProbeRequest>) -> Answer {
        answer()
    }
    async fn tuned(&self, _: Request<ProbeRequest>) -> Answer {
        answer()
    }
    async fn watch(&self, _: Request<ProbeRequest>) -> Result<Response<Self::WatchStream>, Status> {
        Err(Status::unimplemented("not measured"))
    }
    async fn upload(&self, _: Request<Streaming<ProbeRequest>>) -> Answer {
        Err(Status::unimplemented("not measured"))
    }
    async fn chat(
        &self,
        _: Request<Streaming<ProbeRequest>>,
    ) -> Result<Response<Self::ChatStream>, Status> {
        Err(Status::unimplemented("not measured"))
    }
}
