//! The gateway's web side: its page, what the page shows, and chat for those who have no gRPC.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use axum::{
    Router,
    body::Body,
    extract::{Path, Query, Request, State},
    http::{
        HeaderMap, HeaderValue, Method, StatusCode,
        header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HOST, ORIGIN, RETRY_AFTER},
    },
    middleware::{Next, from_fn, map_response},
    response::{Html, IntoResponse, Response},
    routing::{get, post},
};
use futures_util::{StreamExt as _, stream};
use parking_lot::Mutex;
use serde_json::json;
use tokio::{task::JoinHandle, time::Instant};
use tonic::{Code, Status};
use tonic_hedge::{BreakerState, EndpointState, InheritLayer, StatusExt as _};

use crate::{
    api::ChatRequest,
    closing::{Closing, bind},
    gateway::Gateway,
    metrics::Metrics,
    stats::stats,
};

/// The page. It asks nobody but this server.
const PAGE: &str = include_str!("page.html");

/// And is kept from it.
const POLICY: &str = "default-src 'none'; connect-src 'self'; img-src 'self' data:; \
                      script-src 'unsafe-inline'; style-src 'unsafe-inline'";

/// What the page is told of a replay that runs.
pub(crate) type Phase = Arc<Mutex<Option<&'static str>>>;

/// Dropped, it is gone.
pub(crate) struct Web {
    addr: SocketAddr,
    closing: Closing,
    server: JoinHandle<()>,
}

#[derive(Clone)]
struct Shown {
    gateway: Arc<Gateway>,
    metrics: Metrics,
    phase: Phase,
    began: Instant,
}

impl Web {
    pub(crate) async fn start(
        gateway: Arc<Gateway>,
        metrics: Metrics,
        phase: Phase,
        addr: SocketAddr,
    ) -> std::io::Result<Self> {
        let listener = bind("--web", addr).await?;
        let addr = listener.local_addr()?;
        let router = router(Shown {
            gateway,
            metrics,
            phase,
            began: Instant::now(),
        });
        let closing = Closing::default();
        let (asked, open) = (closing.asked(), closing.open());
        let server = tokio::spawn(async move {
            let _open = open;
            let serving = axum::serve(listener, router).with_graceful_shutdown(asked);
            if let Err(error) = serving.await {
                eprintln!("page {addr}: {error}");
            }
        });
        Ok(Self {
            addr,
            closing,
            server,
        })
    }

    /// Takes no more requests, and waits for those that are under way, for a while.
    pub(crate) async fn close(&self) {
        self.closing.close().await;
    }

    pub(crate) fn uri(&self) -> String {
        format!("http://{}", self.addr)
    }
}

impl Drop for Web {
    fn drop(&mut self) {
        self.server.abort();
    }
}

fn router(shown: Shown) -> Router {
    // The same lanes as the gRPC front's: who comes by HTTP takes a place there too.
    let mut chat = Router::new().route("/chat", post(ask));
    chat = chat.layer(InheritLayer::new());
    if let Some(lanes) = &shown.gateway.lanes {
        chat = chat.layer(lanes.server_layer());
    }
    chat = chat.layer(map_response(shed));
    Router::new()
        .route("/", get(page))
        .route("/healthz", get(health))
        .route("/stats.json", get(numbers))
        .route("/metrics", get(exported))
        .route("/region/{name}", post(change))
        .merge(chat)
        .layer(from_fn(from_here))
        .with_state(shown)
}

/// Refuses what a page from elsewhere asks a browser to change: who is on this machine may, but not
/// whoever's pages they look at.
async fn from_here(request: Request, next: Next) -> Response {
    let changes = request.method() != Method::GET;
    if changes && is_from_elsewhere(request.headers()) {
        return (StatusCode::FORBIDDEN, "not from another page\n").into_response();
    }
    next.run(request).await
}

/// A browser says whose page it is that asks; others say nothing.
fn is_from_elsewhere(headers: &HeaderMap) -> bool {
    let Some(origin) = headers.get(ORIGIN) else {
        return false;
    };
    let origin = origin.to_str().ok().and_then(|it| it.split_once("://"));
    let host = headers.get(HOST).and_then(|it| it.to_str().ok());
    origin.is_none_or(|(_, page)| Some(page) != host)
}

/// A lane's refusal is nothing but a head.
async fn shed(response: Response) -> Response {
    let header = |name| response.headers().get(name).and_then(|it| it.to_str().ok());
    let Some(lane) = header("x-lane-shed") else {
        return response;
    };
    let again = header(RETRY_AFTER.as_str()).unwrap_or("1");
    let text = format!("the lane {lane} has no place: come again in {again} s\n");
    response.map(|_| Body::from(text))
}

async fn page() -> impl IntoResponse {
    ([(CONTENT_SECURITY_POLICY, POLICY)], Html(PAGE))
}

/// Whether a call would have a chance.
async fn health(State(shown): State<Shown>) -> (StatusCode, &'static str) {
    let measured = shown.gateway.channel.measured();
    let mut breakers = measured.breakers.iter();
    let mut endpoints = measured.endpoints.iter();
    if !endpoints.any(|it| it.state == EndpointState::Ready) {
        (StatusCode::SERVICE_UNAVAILABLE, "no replica is connected\n")
    } else if breakers.any(|it| it.state == BreakerState::Open) {
        (StatusCode::SERVICE_UNAVAILABLE, "the breaker is open\n")
    } else {
        (StatusCode::OK, "ok\n")
    }
}

async fn numbers(State(shown): State<Shown>) -> impl IntoResponse {
    let phase = *shown.phase.lock();
    let up = shown.began.elapsed().as_secs_f64();
    let body = stats(&shown.gateway, phase, up).to_string();
    let head = [
        (CONTENT_TYPE, "application/json"),
        (CACHE_CONTROL, "no-store"),
    ];
    (head, body)
}

async fn exported(State(shown): State<Shown>) -> Response {
    match shown.metrics.text() {
        Ok(text) => ([(CONTENT_TYPE, prometheus::TEXT_FORMAT)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

/// What a person does to a region: `POST /region/east?floor_ms=560&errors=0.85`.
async fn change(
    State(shown): State<Shown>,
    Path(name): Path<String>,
    Query(asked): Query<Vec<(String, f64)>>,
) -> (StatusCode, String) {
    let Some(region) = shown.gateway.fleet.region(&name) else {
        return (StatusCode::NOT_FOUND, format!("no region {name}\n"));
    };
    for (key, value) in asked {
        match (key.as_str(), value) {
            // A minute is slower than anybody waits.
            ("floor_ms", 0.0..=60_000.0) => {
                region.set_floor(Duration::from_secs_f64(value / 1e3));
            }
            ("errors", 0.0..=1.0) => region.set_errors(value),
            _ => {
                let wrong = format!("{key}={value}: not floor_ms to 60000, nor errors to 1\n");
                return (StatusCode::BAD_REQUEST, wrong);
            }
        }
    }
    let (floor_ms, errors) = (region.floor().as_secs_f64() * 1e3, region.errors());
    let set = json!({"name": region.name, "floor_ms": floor_ms, "errors": errors});
    (StatusCode::OK, format!("{set}\n"))
}

/// The body is the prompt; the answer comes as text, token by token.
async fn ask(State(shown): State<Shown>, prompt: String) -> Response {
    let request = ChatRequest {
        prompt,
        ..ChatRequest::default()
    };
    let mut answer = match shown.gateway.front.ask(request).await {
        Ok(answer) => answer,
        Err(status) => return refused(&status),
    };
    // Before the first token a failure still has a status.
    let first = match answer.next().await {
        Some(Err(status)) => return refused(&status),
        first => first,
    };
    let tokens = stream::iter(first).chain(answer);
    let body = Body::from_stream(tokens.map(|token| token.map(|token| token.text)));
    ([(CONTENT_TYPE, "text/plain; charset=utf-8")], body).into_response()
}

fn refused(status: &Status) -> Response {
    let code = match status.code() {
        Code::ResourceExhausted => StatusCode::TOO_MANY_REQUESTS,
        Code::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        Code::DeadlineExceeded => StatusCode::GATEWAY_TIMEOUT,
        _ => StatusCode::BAD_GATEWAY,
    };
    let mut response = (code, format!("{}\n", status.message())).into_response();
    if let Some(retry) = status.retry_after() {
        // HTTP knows only whole seconds.
        let seconds = HeaderValue::from(retry.as_secs() + u64::from(retry.subsec_nanos() > 0));
        response.headers_mut().insert(RETRY_AFTER, seconds);
    }
    response
}
