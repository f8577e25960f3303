//! tonic's channels to servers in this process, over pipes of memory: no socket, no other process.

use std::io;

use futures_util::Stream;
use hyper_util::rt::TokioIo;
use tonic::transport::{Channel, Endpoint, Server};
use tonic_hedge::EndpointSpec;
use tower::discover::Change;

use crate::{
    args::Outcome,
    at_once::{AtOnce, probe::probe_server::ProbeServer},
};

/// A pipe holds what a call sends many times over.
const BYTES: usize = 64 << 10;

/// Three endpoints, each a channel of its own.
pub(crate) async fn three(
    service: AtOnce,
) -> Outcome<impl Stream<Item = io::Result<Change<usize, EndpointSpec>>> + Send + Unpin + 'static> {
    let mut found = Vec::new();
    for number in 0..3 {
        let channel = channel(service.clone()).await?;
        let spec = EndpointSpec::channel(format!("pipe {number}"), channel);
        found.push(Ok(Change::Insert(number, spec)));
    }
    Ok(tokio_stream::iter(found))
}

pub(crate) async fn channel(service: AtOnce) -> Outcome<Channel> {
    let (near, far) = tokio::io::duplex(BYTES);
    let serving = Server::builder().add_service(ProbeServer::new(service));
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
