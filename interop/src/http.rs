//! What the checks need of HTTP: the query APIs of the programs that they read back from.

use std::{error::Error, net::TcpListener};

use bytes::Bytes;
use http::Uri;
use http_body_util::{BodyExt as _, Empty};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use serde_json::Value;

/// A server on a port of 127.0.0.1 that answers in JSON.
#[derive(Clone, Debug)]
pub struct Api {
    port: u16,
    client: Client<HttpConnector, Empty<Bytes>>,
}

impl Api {
    /// The one on this port.
    pub fn on(port: u16) -> Self {
        Self {
            port,
            client: Client::builder(TokioExecutor::new()).build_http(),
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
        let uri: Uri = format!("{}{path}", self.url()).parse()?;
        let answer = self.client.get(uri).await?;
        let status = answer.status();
        let body = answer.into_body().collect().await?.to_bytes();
        if !status.is_success() {
            return Err(format!("{path}: {status}: {}", String::from_utf8_lossy(&body)).into());
        }
        Ok(serde_json::from_slice(&body)?)
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
