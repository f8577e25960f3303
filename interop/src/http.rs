//! What the checks need of HTTP: the APIs of the programs that they ask and steer.

use std::{error::Error, net::TcpListener};

use bytes::Bytes;
use http::{Method, Request, header::CONTENT_TYPE};
use http_body_util::{BodyExt as _, Full};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use serde_json::Value;

/// A server on a port of 127.0.0.1 that answers in JSON.
#[derive(Clone, Debug)]
pub struct Api {
    port: u16,
    client: Client<HttpConnector, Full<Bytes>>,
}

impl Api {
    /// The one on this port.
    pub fn on(port: u16) -> Self {
        Self {
            port,
            // None is kept: a check may count what is left over.
            client: Client::builder(TokioExecutor::new())
                .pool_max_idle_per_host(0)
                .build_http(),
        }
    }

    /// Its address.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// What it answers to this path and query.
    ///
    /// # Errors
    /// No answer, or one that is no success, or no JSON.
    pub async fn get(&self, path: &str) -> Result<Value, Box<dyn Error>> {
        let body = self.ask(Method::GET, path, Bytes::new()).await?;
        Ok(serde_json::from_slice(&body)?)
    }

    /// As [`get`](Self::get), where the answer is text.
    ///
    /// # Errors
    /// No answer, or one that is no success, or no text.
    pub async fn text(&self, path: &str) -> Result<String, Box<dyn Error>> {
        let body = self.ask(Method::GET, path, Bytes::new()).await?;
        Ok(String::from_utf8(body.into())?)
    }

    /// Sends it this, and returns its answer; `null` if that is empty.
    ///
    /// # Errors
    /// No answer, or one that is no success, or no JSON.
    pub async fn post(&self, path: &str, body: &Value) -> Result<Value, Box<dyn Error>> {
        let body = Bytes::from(body.to_string());
        let answer = self.ask(Method::POST, path, body).await?;
        match answer.is_empty() {
            true => Ok(Value::Null),
            false => Ok(serde_json::from_slice(&answer)?),
        }
    }

    async fn ask(&self, method: Method, path: &str, body: Bytes) -> Result<Bytes, Box<dyn Error>> {
        let request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.url()))
            .header(CONTENT_TYPE, "application/json")
            .body(Full::new(body))?;
        let answer = self.client.request(request).await?;
        let status = answer.status();
        let body = answer.into_body().collect().await?.to_bytes();
        if !status.is_success() {
            return Err(format!("{path}: {status}: {}", String::from_utf8_lossy(&body)).into());
        }
        Ok(body)
    }
}

/// Ports that nothing uses. All are held until all are found, so that they differ.
///
/// # Errors
/// There are not so many.
pub fn free_ports<const N: usize>() -> Result<[u16; N], Box<dyn Error>> {
    let mut listeners = Vec::new();
    for _ in 0..N {
        listeners.push(TcpListener::bind("127.0.0.1:0")?);
    }
    let mut ports = [0; N];
    for (port, listener) in ports.iter_mut().zip(&listeners) {
        *port = listener.local_addr()?.port();
    }
    Ok(ports)
}

/// As a value in a URL's query.
pub fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'-' | b'_' => {
                escaped.push(char::from(byte));
            }
            _ => escaped.push_str(&format!("%{byte:02X}")),
        }
    }
    escaped
}
