//! The page that Prometheus scrapes: `/metrics` in its text format, as an application serves it.

use std::{convert::Infallible, error::Error, sync::Arc};

use bytes::Bytes;
use http::{HeaderValue, Response, header::CONTENT_TYPE};
use http_body_util::Full;
use hyper::{server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use opentelemetry_sdk::{Resource, metrics::SdkMeterProvider};
use prometheus::{Registry, TEXT_FORMAT, TextEncoder};
use tokio::{net::TcpListener, task::JoinHandle};

/// A meter provider, and the page that shows what it was told. Dropped, the page is gone.
pub(crate) struct Page {
    pub(crate) provider: Arc<SdkMeterProvider>,
    pub(crate) port: u16,
    server: JoinHandle<()>,
}

impl Page {
    pub(crate) async fn open() -> Result<Self, Box<dyn Error>> {
        let registry = Registry::new();
        let reader = opentelemetry_prometheus::exporter()
            .with_registry(registry.clone())
            .build()?;
        let resource = Resource::builder().with_service_name("interop-metrics");
        let provider = SdkMeterProvider::builder()
            .with_resource(resource.build())
            .with_reader(reader)
            .build();
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let port = listener.local_addr()?.port();
        let server = tokio::spawn(async move {
            while let Ok((connection, _)) = listener.accept().await {
                let registry = registry.clone();
                let answer = service_fn(move |_| {
                    let page = page(&registry);
                    async { Ok::<_, Infallible>(page) }
                });
                tokio::spawn(
                    http1::Builder::new().serve_connection(TokioIo::new(connection), answer),
                );
            }
        });
        Ok(Self {
            provider: Arc::new(provider),
            port,
            server,
        })
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        self.server.abort();
    }
}

fn page(registry: &Registry) -> Response<Full<Bytes>> {
    match TextEncoder::new().encode_to_string(&registry.gather()) {
        Ok(text) => {
            let mut page = Response::new(Full::from(text));
            let format = HeaderValue::from_static(TEXT_FORMAT);
            page.headers_mut().insert(CONTENT_TYPE, format);
            page
        }
        Err(error) => {
            let mut page = Response::new(Full::from(error.to_string()));
            *page.status_mut() = http::StatusCode::INTERNAL_SERVER_ERROR;
            page
        }
    }
}
