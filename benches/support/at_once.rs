//! The service that is called: it answers at once.

use std::{
    future,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use tonic::{Request, Response, Status, Streaming, codegen::BoxStream, metadata::MetadataValue};

use probe::{ProbeReply, ProbeRequest, probe_server::Probe};

/// The generated code of `proto/hedge/testing/v1/probe.proto`.
#[allow(missing_docs, unreachable_pub)]
pub(crate) mod probe {
    tonic::include_proto!("hedge.testing.v1");
}

/// Answers at once, with as many bytes as the request wants.
#[derive(Clone, Debug, Default)]
pub(crate) struct AtOnce {
    /// Where it is there, each second request to its owners gets no answer, the first one first:
    /// each original, if each is hedged.
    pub(crate) mute: Option<Arc<AtomicUsize>>,
}

type Answer = Result<Response<ProbeReply>, Status>;

fn answer(request: &Request<ProbeRequest>) -> Answer {
    let bytes = request.get_ref().response_bytes as usize;
    let mut response = Response::new(ProbeReply {
        payload: vec![0; bytes],
        ..ProbeReply::default()
    });
    // The server would put one of its own here that changes each second, and both sides would have
    // to index it anew: under valgrind that is each few calls.
    let date = MetadataValue::from_static("Thu, 01 Jan 2026 00:00:00 GMT");
    response.metadata_mut().insert("date", date);
    Ok(response)
}

#[tonic::async_trait]
impl Probe for AtOnce {
    type WatchStream = BoxStream<ProbeReply>;
    type ChatStream = BoxStream<ProbeReply>;

    async fn get(&self, request: Request<ProbeRequest>) -> Answer {
        if let Some(requests) = &self.mute
            // Relaxed: only the number counts.
            && requests.fetch_add(1, Ordering::Relaxed) % 2 == 0
        {
            future::pending::<()>().await;
        }
        answer(&request)
    }
    async fn put(&self, request: Request<ProbeRequest>) -> Answer {
        answer(&request)
    }
    async fn keyed(&self, request: Request<ProbeRequest>) -> Answer {
        answer(&request)
    }
    async fn vetoed(&self, request: Request<ProbeRequest>) -> Answer {
        answer(&request)
    }
    async fn off(&self, request: Request<ProbeRequest>) -> Answer {
        answer(&request)
    }
    async fn tuned(&self, request: Request<ProbeRequest>) -> Answer {
        answer(&request)
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
