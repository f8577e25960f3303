//! The gateway's web side: its page, what the page shows, and chat for those who have no gRPC.

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

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
use serde_json::{Value, json};
use tokio::{task::JoinHandle, time::Instant};
use tonic::{Code, Status};
use tonic_hedge::{BreakerState, EndpointState, InheritLayer, StatusExt as _};

use crate::{
    api::ChatRequest,
    closing::{Closing, bind},
    gateway::Gateway,
    metrics::Metrics,
    replay::plan,
    stats::stats,
};

/// The page. It asks nobody but this server.
const PAGE: &str = include_str!("page.html");

/// And is kept from it.
const POLICY: &str = "default-src 'none'; connect-src 'self'; img-src 'self' data:; \
                      script-src 'unsafe-inline'; style-src 'unsafe-inline'";

/// What the page is told of a replay that runs, or of a load from elsewhere.
pub(crate) type Phase = Arc<Mutex<Option<plan::Phase>>>;

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

    /// Takes no more requests, and says whether those that are under way have ended after a while.
    pub(crate) async fn close(&self) -> bool {
        self.closing.close().await
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
        .route("/phase/{key}", post(enter))
        .merge(chat)
        .layer(from_fn(from_here))
        .with_state(shown)
}

/// Refuses what a page from elsewhere asks a browser to change: who is on this machine may, but not
/// whoever's pages they look at.
async fn from_here(request: Request, next: Next) -> Response {
    let changes = request.method() != Method::GET;
    if changes && is_from_elsewhere(request.headers()) {
        return wrong(StatusCode::FORBIDDEN, "not from another page");
    }
    next.run(request).await
}

/// A browser says whose page it is that asks; others say nothing. A name that leads here is nobody's
/// word: whoever owns it may have turned it here a moment ago.
fn is_from_elsewhere(headers: &HeaderMap) -> bool {
    let Some(origin) = headers.get(ORIGIN) else {
        return false;
    };
    let origin = origin.to_str().ok().and_then(|it| it.split_once("://"));
    let host = headers.get(HOST).and_then(|it| it.to_str().ok());
    // A port that is HTTP's own is left out.
    let name = host.map_or("", |it| it.rsplit_once(':').map_or(it, |(name, _)| name));
    let is_address = name == "localhost" || name.parse::<Ipv4Addr>().is_ok();
    !is_address || origin.is_none_or(|(_, page)| Some(page) != host)
}

/// A lane's refusal is nothing but a head.
async fn shed(response: Response) -> Response {
    let lane = response.headers().get("x-lane-shed");
    let Some(lane) = lane.filter(|_| response.status() == StatusCode::TOO_MANY_REQUESTS) else {
        return response;
    };
    let lane = lane.to_str().unwrap_or_default();
    let text = format!("the lane {lane} has no place");
    let (mut head, _) = response.into_parts();
    let told = wrong(head.status, &text);
    head.headers.extend(told.headers().clone());
    Response::from_parts(head, told.into_body())
}

/// What is wrong, as all answers here that are not for a person say it.
fn wrong(code: StatusCode, text: &str) -> Response {
    (code, Json(json!({"error": text}))).into_response()
}

struct Json(Value);

impl IntoResponse for Json {
    fn into_response(self) -> Response {
        let kind = [(CONTENT_TYPE, "application/json")];
        (kind, format!("{}\n", self.0)).into_response()
    }
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
    let phase = shown.phase.lock().map(plan::Phase::name);
    let up = shown.began.elapsed().as_secs_f64();
    let numbers = stats(&shown.gateway, phase, up);
    ([(CACHE_CONTROL, "no-store")], Json(numbers))
}

async fn exported(State(shown): State<Shown>) -> Response {
    match shown.metrics.text() {
        Ok(text) => ([(CONTENT_TYPE, prometheus::TEXT_FORMAT)], text).into_response(),
        Err(error) => wrong(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
    }
}

/// What a person does to a region: `POST /region/east?floor_ms=560&errors=0.85`. All of it, or nothing.
async fn change(
    State(shown): State<Shown>,
    Path(name): Path<String>,
    Query(asked): Query<Vec<(String, String)>>,
) -> Response {
    let Some(region) = shown.gateway.fleet.region(&name) else {
        return wrong(StatusCode::NOT_FOUND, &format!("no region {name}"));
    };
    let (mut floor, mut errors) = (None, None);
    for (key, value) in asked {
        match (key.as_str(), value.parse()) {
            // A minute is slower than anybody waits.
            ("floor_ms", Ok(ms @ 0.0..=60_000.0)) => floor = Some(ms),
            ("errors", Ok(share @ 0.0..=1.0)) => errors = Some(share),
            _ => {
                let text = format!("{key}={value}: floor_ms is 0 to 60000, errors 0 to 1");
                return wrong(StatusCode::BAD_REQUEST, &text);
            }
        }
    }
    if let Some(ms) = floor {
        region.set_floor(Duration::from_secs_f64(ms / 1e3));
    }
    if let Some(share) = errors {
        region.set_errors(share);
    }
    let floor_ms = region.floor().as_secs_f64() * 1e3;
    let set = json!({"name": region.name, "floor_ms": floor_ms, "errors": region.errors()});
    Json(set).into_response()
}

/// What a load from elsewhere tells the page: `POST /phase/calm`, and `none` when it is over.
async fn enter(State(shown): State<Shown>, Path(key): Path<String>) -> Response {
    let phase = plan::Phase::ALL.into_iter().find(|it| it.key() == key);
    if phase.is_none() && key != plan::NONE {
        return wrong(StatusCode::NOT_FOUND, &format!("no phase {key}"));
    }
    *shown.phase.lock() = phase;
    Json(json!({"phase": phase.map(plan::Phase::name)})).into_response()
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
    let mut response = wrong(code, status.message());
    if let Some(retry) = status.retry_after() {
        // HTTP knows only whole seconds.
        let seconds = HeaderValue::from(retry.as_secs() + u64::from(retry.subsec_nanos() > 0));
        response.headers_mut().insert(RETRY_AFTER, seconds);
    }
    response
}
