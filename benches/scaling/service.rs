//! Servers in this process that answer every path with an empty message and OK.

use std::{convert::Infallible, io, net::SocketAddr};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, header::CONTENT_TYPE};
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, server::conn::http2, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpListener,
};
use tonic::{
    body::Body,
    transport::{Channel, Endpoint},
};
use tonic_hedge::HedgedChannel;
use tower::Service;

use crate::Outcome;

/// A pipe holds what a call sends many times over.
const PIPE: usize = 64 << 10;

const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");
const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const OK: HeaderValue = HeaderValue::from_static("0");

/// A channel over a pipe of memory.
pub(crate) async fn piped() -> Outcome<Channel> {
    let (near, far) = tokio::io::duplex(PIPE);
    tokio::spawn(serve(far));
    let mut near = Some(near);
    let connector = tower::service_fn(move |_| {
        let near = near.take().map(TokioIo::new);
        std::future::ready(near.ok_or_else(|| io::Error::other("the pipe is used")))
    });
    let endpoint = Endpoint::from_static("http://in.process");
    Ok(endpoint.connect_with_connector(connector).await?)
}

/// Listens at a port of its own.
pub(crate) async fn listen() -> Outcome<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            tokio::spawn(serve(socket));
        }
    });
    Ok(address)
}

async fn serve(stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static) {
    let serving = http2::Builder::new(TokioExecutor::new())
        .serve_connection(TokioIo::new(stream), service_fn(answer));
    // It ends with its client.
    let _ended = serving.await;
}

async fn answer(_: Request<Incoming>) -> Result<Response<Body>, Infallible> {
    let status = HeaderMap::from_iter([(GRPC_STATUS, OK)]);
    // A message's prefix alone.
    let body = Full::new(Bytes::from_static(&[0; 5]));
    let body = body.with_trailers(std::future::ready(Some(Ok(status))));
    let mut response = Response::new(Body::new(body));
    response.headers_mut().insert(CONTENT_TYPE, GRPC);
    Ok(response)
}

/// Makes one call to the path.
pub(crate) async fn call(channel: &mut HedgedChannel, path: &str) -> Outcome<()> {
    let mut request = Request::post(path).body(Body::empty())?;
    request.headers_mut().insert(CONTENT_TYPE, GRPC);
    let response = channel.call(request).await?;
    let answer = response.into_body().collect().await?;
    match answer.trailers().and_then(|it| it.get(GRPC_STATUS)) {
        Some(status) if *status == OK => Ok(()),
        _ => Err("a call was not answered".into()),
    }
}
