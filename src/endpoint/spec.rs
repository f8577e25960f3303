//! What the user says about one endpoint: where it is, or the channel that leads there.

use std::{
    fmt,
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use http::Uri;
use tonic::transport::{Channel, Endpoint as TonicEndpoint};

/// One endpoint of a channel: a [`tonic::transport::Endpoint`] that the channel connects itself,
/// or a ready-made [`Channel`].
///
/// Of the tonic endpoint all settings apply, with these exceptions:
/// - `http2_max_concurrent_reset_streams` is set to 4096, whatever it was: h2 remembers 50
///   cancelled streams otherwise, and late frames on forgotten ones end the connection.
/// - `local_address` cannot be read back from it: give it here too.
/// - Without `connect_timeout`, TCP has 1 s and the whole handshake 5 s.
///
/// ```
/// use tonic::transport::Endpoint;
/// use tonic_hedge::EndpointSpec;
///
/// let endpoint = Endpoint::from_static("http://10.0.0.1:50051");
/// let spec = EndpointSpec::new(endpoint).locality("eu-west-1a");
/// assert_eq!(spec.name(), Some("10.0.0.1:50051"));
/// ```
///
/// # TLS
///
/// Is the tonic endpoint's: an `https` URI and its `tls_config`, with one of tonic's features
/// `tls-ring` and `tls-aws-lc`. An endpoint by address has to present a certificate for that
/// address, unless `domain_name` says for which name.
///
/// An endpoint whose certificate is wrong, or that refuses this client's, is not connected, so no
/// attempt goes there and the others serve. [`Measured::endpoints`](crate::Measured::endpoints)
/// says why, and so does the UNAVAILABLE of a call for which no endpoint is left. It is tried again
/// with growing pauses.
///
/// ```
/// use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};
/// use tonic_hedge::HedgedChannel;
///
/// # fn build(authority: &str, certificate: &str, key: &str) -> Result<HedgedChannel, Box<dyn std::error::Error>> {
/// let tls = ClientTlsConfig::new()
///     .ca_certificate(Certificate::from_pem(authority))
///     .identity(Identity::from_pem(certificate, key)) // where the servers ask for it
///     .domain_name("search.internal");
/// let endpoint = |uri| Endpoint::from_static(uri).tls_config(tls.clone());
/// let channel = HedgedChannel::builder()
///     .endpoints([endpoint("https://10.0.0.1:50051")?, endpoint("https://10.0.0.2:50051")?])
///     .build()?;
/// # Ok(channel)
/// # }
/// ```
#[derive(Clone)]
pub struct EndpointSpec {
    pub(super) route: Route,
    pub(super) name: Option<Arc<str>>,
    pub(super) locality: Option<Arc<str>>,
    /// For telemetry: the host and port that the user wrote.
    pub(super) server: Option<(Arc<str>, u16)>,
}

/// How an attempt gets to an endpoint.
#[derive(Clone)]
pub(super) enum Route {
    /// The channel connects, and knows when the connection is lost.
    Dial {
        /// Shared by all addresses of a name.
        endpoint: Arc<TonicEndpoint>,
        /// Where to dial instead of at the endpoint's URI: an address that its name resolved to.
        to: Option<SocketAddr>,
        local_address: Option<IpAddr>,
    },
    /// tonic connects; a lost connection shows when a call fails. For Unix sockets, whose path
    /// a tonic endpoint does not tell.
    Tonic(Box<TonicEndpoint>),
    /// Somebody else connects: nothing can be known.
    Made(Channel),
}

impl EndpointSpec {
    /// An endpoint that the channel connects itself.
    pub fn new(endpoint: TonicEndpoint) -> Self {
        let uri = endpoint.uri().clone();
        // What tonic puts in the place of the path of a Unix socket. A host of this very name
        // is connected all the same, only by tonic.
        if uri == Uri::from_static("http://tonic") {
            return Self::of(Route::Tonic(Box::new(endpoint)), None, None);
        }
        let server = server_of(&uri);
        let name = server
            .as_ref()
            .map(|(_, port)| format!("{}:{port}", uri.host().unwrap_or_default()).into());
        let route = Route::Dial {
            endpoint: Arc::new(endpoint),
            to: None,
            local_address: None,
        };
        Self::of(route, name, server)
    }

    /// An endpoint behind a channel that somebody else made, for example with a connector of
    /// their own. It is taken as always connected, since nothing can be known of it. Make it with
    /// `http2_max_concurrent_reset_streams(4096)`, as endpoints by address are: with tonic's default a
    /// connection under many hedges forgets which streams it has reset, and may be closed for it.
    pub fn channel(name: impl Into<Arc<str>>, channel: Channel) -> Self {
        Self::of(Route::Made(channel), Some(name.into()), None)
    }

    /// One address of a name: everything but the address is as the name's endpoint has it, TLS
    /// server name and authority included.
    pub(super) fn resolved(endpoint: Arc<TonicEndpoint>, to: SocketAddr) -> Self {
        let server = server_of(endpoint.uri());
        let route = Route::Dial {
            endpoint,
            to: Some(to),
            local_address: None,
        };
        Self::of(route, Some(to.to_string().into()), server)
    }

    fn of(route: Route, name: Option<Arc<str>>, server: Option<(Arc<str>, u16)>) -> Self {
        Self {
            route,
            name,
            locality: None,
            server,
        }
    }

    /// Where the endpoint is: a zone, a rack, a region. A hedge goes to another locality than its
    /// original if one is connected. Default: none.
    #[must_use]
    pub fn locality(mut self, locality: impl Into<Arc<str>>) -> Self {
        self.locality = Some(locality.into());
        self
    }

    /// The name in logs and spans. Default: `host:port`. Two endpoints of one name are one
    /// place to a hedge, which never goes to a place that its call already uses.
    #[must_use]
    pub fn named(mut self, name: impl Into<Arc<str>>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// The local address to connect from. Default: the system's choice. Has no effect on a
    /// ready-made channel or a Unix socket.
    #[must_use]
    pub fn local_address(mut self, address: IpAddr) -> Self {
        if let Route::Dial { local_address, .. } = &mut self.route {
            *local_address = Some(address);
        }
        self
    }

    /// The name, if it has one: a Unix socket gets its name from the channel.
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }
}

impl From<TonicEndpoint> for EndpointSpec {
    fn from(endpoint: TonicEndpoint) -> Self {
        Self::new(endpoint)
    }
}

impl fmt::Debug for EndpointSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EndpointSpec")
            .field("name", &self.name)
            .field("locality", &self.locality)
            .finish_non_exhaustive()
    }
}

/// Host and port of a URI; the port is the scheme's when it names none.
pub(super) fn server_of(uri: &Uri) -> Option<(Arc<str>, u16)> {
    // Brackets belong to the URI's syntax, not to an IPv6 address.
    let host = uri.host()?.trim_start_matches('[').trim_end_matches(']');
    let default = if uri.scheme_str() == Some("https") {
        443
    } else {
        80
    };
    Some((host.into(), uri.port_u16().unwrap_or(default)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(uri: &'static str) -> EndpointSpec {
        EndpointSpec::new(TonicEndpoint::from_static(uri))
    }

    #[test]
    fn a_name_is_host_and_port() {
        assert_eq!(spec("http://10.0.0.1:50051").name(), Some("10.0.0.1:50051"));
        assert_eq!(spec("http://search").name(), Some("search:80"));
        assert_eq!(spec("https://search").name(), Some("search:443"));
        assert_eq!(spec("http://[::1]:50051").name(), Some("[::1]:50051"));
        assert_eq!(spec("http://[::1]:1").server, Some(("::1".into(), 1)));
    }

    #[test]
    fn a_unix_socket_is_left_to_tonic() {
        let spec = spec("unix:///run/search.sock");
        assert_eq!(spec.name(), None);
        assert!(matches!(spec.route, Route::Tonic(_)));
    }

    #[test]
    fn an_address_keeps_the_name_for_telemetry() {
        let name = Arc::new(TonicEndpoint::from_static("https://search:8443"));
        let spec = EndpointSpec::resolved(name, "10.0.0.1:8443".parse().unwrap());
        assert_eq!(spec.name(), Some("10.0.0.1:8443"));
        assert_eq!(spec.server, Some(("search".into(), 8443)));
    }
}
