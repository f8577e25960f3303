//! A replica of the search service that is as fast as it can be, but for one call in fifty.

use std::{
    io,
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request, Response, Status, transport::Server};

use crate::search::{
    BuyReply, BuyRequest, FindReply, FindRequest,
    search_server::{Search, SearchServer},
};

/// How often a call is slow, over all replicas: rarely enough for a p95 not to see it.
const ONE_IN: u32 = 50;

/// How long a slow call takes: far over what a fast one can take on a busy machine.
const PAUSE: Duration = Duration::from_secs(2);

static CALLS: AtomicU32 = AtomicU32::new(1);

struct Replica;

/// Starts one on a free port and returns its address.
pub async fn start() -> io::Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = format!("http://{}", listener.local_addr()?);
    let server = Server::builder()
        .add_service(SearchServer::new(Replica))
        .serve_with_incoming(TcpListenerStream::new(listener));
    tokio::spawn(server);
    Ok(address)
}

#[tonic::async_trait]
impl Search for Replica {
    async fn find(&self, request: Request<FindRequest>) -> Result<Response<FindReply>, Status> {
        // Only a count: nothing else is ordered by it.
        if CALLS.fetch_add(1, Ordering::Relaxed).is_multiple_of(ONE_IN) {
            tokio::time::sleep(PAUSE).await;
        }
        let titles = vec![format!("On {}", request.into_inner().query)];
        Ok(Response::new(FindReply { titles }))
    }

    async fn explain(&self, request: Request<FindRequest>) -> Result<Response<FindReply>, Status> {
        self.find(request).await
    }

    async fn buy(&self, _: Request<BuyRequest>) -> Result<Response<BuyReply>, Status> {
        Ok(Response::new(BuyReply {}))
    }
}
