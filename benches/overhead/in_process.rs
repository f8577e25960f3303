//! The same calls to an immediate service in the caller's own process, over a pipe of memory: no
//! socket, no other process, and the service's own work counted with the client's.

use std::io;

use hyper_util::rt::TokioIo;
use tonic::transport::{Channel, Endpoint, Server};
use tonic_hedge::{EndpointSpec, Hedge, HedgedChannel};
use tower::discover::Change;

use crate::{
    Outcome,
    at_once::{
        AtOnce,
        probe::{FILE_DESCRIPTOR_SET, probe_client::ProbeClient, probe_server::ProbeServer},
    },
    case::{Case, Client, NEVER},
};

/// A pipe holds what a call sends many times over.
const PIPE: usize = 64 << 10;

/// A client of `case`, with its server beside it.
pub(crate) async fn client(case: Case) -> Outcome<Client> {
    if case == Case::Plain {
        return Ok(Client::Plain(ProbeClient::new(channel().await?)));
    }
    let spec = EndpointSpec::channel("in process", channel().await?);
    let change = Ok::<_, io::Error>(Change::Insert(0, spec));
    let channel = HedgedChannel::builder()
        .discover(tokio_stream::once(change))
        .descriptors(FILE_DESCRIPTOR_SET)
        .hedge(Hedge::at(0.95).minimum_delay(NEVER))
        .build()?;
    let client = ProbeClient::new(channel);
    Ok(match case {
        Case::Hedgeable => Client::Hedgeable(client),
        _ => Client::Once(client),
    })
}

async fn channel() -> Outcome<Channel> {
    let (near, far) = tokio::io::duplex(PIPE);
    let serving = Server::builder().add_service(ProbeServer::new(AtOnce));
    let incoming = tokio_stream::once(Ok::<_, io::Error>(far));
    tokio::spawn(serving.serve_with_incoming(incoming));
    let mut near = Some(near);
    let connector = tower::service_fn(move |_| {
        let near = near.take().map(TokioIo::new);
        std::future::ready(near.ok_or_else(|| io::Error::other("the pipe is used")))
    });
    let endpoint = Endpoint::from_static("http://in.process");
    Ok(endpoint.connect_with_connector(connector).await?)
}
