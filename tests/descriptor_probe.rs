//! `build.rs` end to end: the probe's generated code, its descriptor set, and one call.

// clippy.toml lets tests unwrap, but not the helpers beside them.
#![allow(clippy::unwrap_used)]

use std::{fs, path::Path};

use tonic::{Request, Response, Status, Streaming};

#[allow(missing_docs, unreachable_pub)]
pub mod probe {
    tonic::include_proto!("hedge.testing.v1");
}

use probe::{
    ProbeReply, ProbeRequest,
    probe_client::ProbeClient,
    probe_server::{Probe, ProbeServer},
};

/// Answers `Get` with the request's id.
struct Replica;

type Reply = Result<Response<ProbeReply>, Status>;
type Replies = tokio_stream::Empty<Result<ProbeReply, Status>>;

#[tonic::async_trait]
impl Probe for Replica {
    type WatchStream = Replies;
    type ChatStream = Replies;

    async fn get(&self, request: Request<ProbeRequest>) -> Reply {
        Ok(Response::new(ProbeReply {
            replica: "one".to_owned(),
            id: request.into_inner().id,
            ..ProbeReply::default()
        }))
    }
    async fn put(&self, _: Request<ProbeRequest>) -> Reply {
        Err(Status::unimplemented("put"))
    }
    async fn keyed(&self, _: Request<ProbeRequest>) -> Reply {
        Err(Status::unimplemented("keyed"))
    }
    async fn vetoed(&self, _: Request<ProbeRequest>) -> Reply {
        Err(Status::unimplemented("vetoed"))
    }
    async fn off(&self, _: Request<ProbeRequest>) -> Reply {
        Err(Status::unimplemented("off"))
    }
    async fn tuned(&self, _: Request<ProbeRequest>) -> Reply {
        Err(Status::unimplemented("tuned"))
    }
    async fn watch(&self, _: Request<ProbeRequest>) -> Result<Response<Replies>, Status> {
        Ok(Response::new(tokio_stream::empty()))
    }
    async fn upload(&self, _: Request<Streaming<ProbeRequest>>) -> Reply {
        Err(Status::unimplemented("upload"))
    }
    async fn chat(&self, _: Request<Streaming<ProbeRequest>>) -> Result<Response<Replies>, Status> {
        Ok(Response::new(tokio_stream::empty()))
    }
}

#[tokio::test]
async fn the_generated_client_calls_the_generated_server() {
    // No socket: the client is handed the server's service itself.
    let mut client = ProbeClient::new(ProbeServer::new(Replica));
    let request = ProbeRequest {
        id: "a".to_owned(),
        ..ProbeRequest::default()
    };
    let reply = client.get(request).await.unwrap().into_inner();
    assert_eq!((reply.replica.as_str(), reply.id.as_str()), ("one", "a"));
}

#[test]
fn the_set_names_the_service_and_carries_the_options() {
    let has = |needle: &[u8]| {
        probe::FILE_DESCRIPTOR_SET
            .windows(needle.len())
            .any(|window| window == needle)
    };
    assert!(has(b"hedge/testing/v1/probe.proto"));
    // `Vetoed`: level IDEMPOTENT (field 34), then extension 50811 holding `idempotent: false`.
    assert!(has(&[0x90, 0x02, 0x02, 0xda, 0xe7, 0x18, 0x02, 0x08, 0x00]));
}

/// The build crate carries its own copy, since a published crate holds its own files only.
#[test]
fn both_copies_of_hedge_proto_are_equal() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |path: &str| fs::read_to_string(root.join(path)).unwrap();
    assert_eq!(
        read("proto/hedge/v1/hedge.proto"),
        read("tonic-hedge-build/proto/hedge/v1/hedge.proto"),
    );
}
