//! A gateway that runs elsewhere, by its web side.

use std::{fmt::Display, io, time::Duration};

use serde_json::Value;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::{
    region::Region,
    replay::plan::{NONE, Phase},
};

/// What asks it: HTTP/1 on a connection for each request.
pub(crate) struct Remote {
    host: String,
}

impl Remote {
    /// By the address of its page.
    pub(crate) fn new(page: &str) -> Result<Self, String> {
        let host = page
            .strip_prefix("http://")
            .map(|it| it.trim_end_matches('/'));
        let host = host.filter(|it| !it.is_empty() && !it.contains('/'));
        match host {
            Some(host) => Ok(Self {
                host: host.to_owned(),
            }),
            None => Err(format!(
                "{page} is not the address of a page, http://HOST:PORT"
            )),
        }
    }

    /// What the page shows.
    pub(crate) async fn stats(&self) -> io::Result<Value> {
        const PATH: &str = "/stats.json";
        let body = self.ask("GET", PATH).await?;
        serde_json::from_str(&body).map_err(|error| self.wrong(PATH, error))
    }

    /// Makes a region there as this one is.
    pub(crate) async fn change(&self, region: &Region) -> io::Result<()> {
        let floor = region.floor().as_secs_f64() * 1e3;
        let path = format!(
            "/region/{}?floor_ms={floor}&errors={}",
            region.name,
            region.errors()
        );
        self.ask("POST", &path).await.map(|_| ())
    }

    /// Tells the page there what runs.
    pub(crate) async fn enter(&self, phase: Option<Phase>) -> io::Result<()> {
        let key = phase.map_or(NONE, Phase::key);
        self.ask("POST", &format!("/phase/{key}")).await.map(|_| ())
    }

    /// The body of the answer.
    async fn ask(&self, method: &str, path: &str) -> io::Result<String> {
        /// It is on this machine, or near.
        const PATIENCE: Duration = Duration::from_secs(5);
        let host = &self.host;
        let text = tokio::time::timeout(PATIENCE, async {
            let mut stream = TcpStream::connect(host.as_str()).await?;
            let head = format!(
                "{method} {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
            );
            stream.write_all(head.as_bytes()).await?;
            let mut text = String::new();
            stream.read_to_string(&mut text).await?;
            io::Result::Ok(text)
        })
        .await
        .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
        .map_err(|error| self.wrong(path, error))?;
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        let status = head.lines().next().unwrap_or("no answer");
        match status.split(' ').nth(1) {
            Some("200") => Ok(body.to_owned()),
            _ => Err(self.wrong(path, status)),
        }
    }

    fn wrong(&self, path: &str, what: impl Display) -> io::Error {
        io::Error::other(format!("http://{}{path}: {what}", self.host))
    }
}
