//! A Jaeger of our own: started on free ports, asked by its query API.

use std::{error::Error, fs::File, path::Path, process::Stdio, time::Duration};

use interop::http::{Api, escaped, free_ports};
use serde_json::Value;
use tokio::{
    process::{Child, ChildStdin, Command},
    time::{sleep, timeout},
};

use crate::trace::Trace;

/// How long a trace may take to appear, and Jaeger to start; only a failing check waits for it.
const PATIENCE: Duration = Duration::from_secs(30);

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(50);

/// Runs until it is stopped, or until this process ends: its standard input closes then.
pub(crate) struct Jaeger {
    otlp_grpc: u16,
    otlp_http: u16,
    query: Api,
    input: ChildStdin,
    child: Child,
}

impl Jaeger {
    /// Starts one and waits until it answers; what it prints goes to `log`.
    pub(crate) async fn start(log: &Path) -> Result<Self, Box<dyn Error>> {
        let [otlp_grpc, otlp_http, query, query_grpc] = free_ports()?;
        let log_file = File::create(log)?;
        let mut child = Command::new("interop/jaeger/start")
            .env("JAEGER_OTLP_GRPC_PORT", otlp_grpc.to_string())
            .env("JAEGER_OTLP_HTTP_PORT", otlp_http.to_string())
            .env("JAEGER_QUERY_PORT", query.to_string())
            .env("JAEGER_QUERY_GRPC_PORT", query_grpc.to_string())
            .stdin(Stdio::piped())
            .stdout(log_file.try_clone()?)
            .stderr(log_file)
            .spawn()?;
        let input = child.stdin.take().ok_or("no input")?;
        let mut jaeger = Self {
            otlp_grpc,
            otlp_http,
            query: Api::on(query),
            input,
            child,
        };
        let ready = async {
            while jaeger.query.get("/api/services").await.is_err() {
                if let Some(status) = jaeger.child.try_wait()? {
                    return Err(format!("Jaeger ended: {status}; see {}", log.display()).into());
                }
                sleep(PAUSE).await;
            }
            Ok::<_, Box<dyn Error>>(())
        };
        timeout(PATIENCE, ready)
            .await
            .map_err(|_| format!("Jaeger does not answer; see {}", log.display()))??;
        Ok(jaeger)
    }

    /// Where it takes OTLP over gRPC.
    pub(crate) fn otlp_grpc(&self) -> String {
        format!("http://127.0.0.1:{}", self.otlp_grpc)
    }

    /// Where it takes OTLP over HTTP.
    pub(crate) fn otlp_http(&self) -> String {
        format!("http://127.0.0.1:{}", self.otlp_http)
    }

    /// The trace `id`, once it has at least so many spans.
    pub(crate) async fn trace(&self, id: &str, spans: usize) -> Result<Trace, Box<dyn Error>> {
        let path = format!("/api/traces/{id}");
        let mut seen = 0;
        let whole = async {
            loop {
                // It answers 404 until the trace is there.
                if let Ok(traces) = self.traces(&path).await
                    && let Some(trace) = traces.into_iter().next()
                {
                    seen = trace.spans.len();
                    if seen >= spans {
                        return trace;
                    }
                }
                sleep(PAUSE).await;
            }
        };
        let whole = timeout(PATIENCE, whole).await;
        whole.map_err(|_| format!("trace {id}: {seen} of {spans} spans arrived").into())
    }

    /// A trace with a span of this service and name that has these tags, once there is one.
    pub(crate) async fn find(
        &self,
        service: &str,
        span: &str,
        tags: &[(&str, &str)],
    ) -> Result<Trace, Box<dyn Error>> {
        let tags: serde_json::Map<_, _> = tags
            .iter()
            .map(|(key, value)| ((*key).to_owned(), Value::from(*value)))
            .collect();
        let path = format!(
            "/api/traces?limit=1&service={}&operation={}&tags={}",
            escaped(service),
            escaped(span),
            escaped(&Value::Object(tags).to_string()),
        );
        let found = async {
            loop {
                if let Some(trace) = self.traces(&path).await?.into_iter().next() {
                    return Ok(trace);
                }
                sleep(PAUSE).await;
            }
        };
        let found = timeout(PATIENCE, found).await;
        found.unwrap_or_else(|_| Err(format!("{path} finds nothing").into()))
    }

    /// Ends it, and waits until its ports are free.
    pub(crate) async fn stop(mut self) -> Result<(), Box<dyn Error>> {
        drop(self.input);
        timeout(PATIENCE, self.child.wait()).await??;
        Ok(())
    }

    async fn traces(&self, path: &str) -> Result<Vec<Trace>, Box<dyn Error>> {
        let answer = self.query.get(path).await?;
        let traces = answer["data"].as_array().map_or(&[][..], Vec::as_slice);
        traces.iter().map(Trace::read).collect()
    }
}
