//! What each attempt carries: the caller's metadata, its own count, its endpoint's own settings.

#![allow(clippy::unwrap_used)]

mod support;

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;

use support::{Arrival, Fleet, Latch, ProbeClient, Replica, connected, probe, request, wire};
use tokio::net::TcpListener;
use tonic::{
    Request, Status,
    metadata::{MetadataMap, MetadataValue},
    transport::{Certificate, ClientTlsConfig, Endpoint, Identity, Server, ServerTlsConfig},
};
use tonic_hedge::{BudgetPolicy, CallLog, EndpointSpec, Hedge, HedgedChannel, ResponseExt, Retry};

/// An original that waits until its hedge has arrived too; then both answer.
async fn raced(count: u8) -> Fleet {
    let hedged = Latch::closed();
    Fleet::start(count, move |arrival: Arrival| {
        let hedged = hedged.clone();
        async move {
            if arrival.previous() > 0 {
                hedged.open();
            }
            hedged.passed().await;
            arrival.ok()
        }
    })
    .await
}

/// All of it but what differs from attempt to attempt by design.
fn shared(metadata: &MetadataMap) -> Vec<(String, Vec<u8>)> {
    let headers = metadata.clone().into_headers();
    let mut pairs: Vec<_> = headers
        .iter()
        .filter(|(name, _)| {
            let by_design = ["grpc-previous-rpc-attempts", "x-hedge", wire::AUTHORITY];
            !by_design.contains(&name.as_str())
        })
        .map(|(name, value)| (name.to_string(), value.as_bytes().to_vec()))
        .collect();
    // Stable: the order of the values of one name is kept.
    pairs.sort_by(|a, b| a.0.cmp(&b.0));
    pairs
}

/// MD1: ASCII, binary and repeated metadata is byte for byte the same in both attempts, in its
/// order, and the same as a plain channel sends.
#[tokio::test]
async fn md1_same_to_both() {
    let fleet = raced(2).await;
    let mut client = ProbeClient::new(fleet.channel(fleet.builder()).await);
    let message = |id: &str| {
        let mut message = Request::new(request(id));
        let metadata = message.metadata_mut();
        metadata.insert("authorization", "Bearer secret".parse().unwrap());
        for value in ["one", "two", "three, four"] {
            metadata.append("x-list", value.parse().unwrap());
        }
        metadata.insert_bin("x-blob-bin", MetadataValue::from_bytes(&[0, 255, 128, 10]));
        metadata.append_bin("x-blob-bin", MetadataValue::from_bytes(&[]));
        metadata.insert("x-empty", "".parse().unwrap());
        message
    };
    let response = client.get(message("hedged")).await.unwrap();
    assert!(response.hedged());
    let attempts = fleet.seen.of("hedged");
    assert_eq!(attempts.len(), 2);
    assert_eq!(shared(&attempts[0].metadata), shared(&attempts[1].metadata));
    let blobs: Vec<_> = attempts[1]
        .metadata
        .get_all_bin("x-blob-bin")
        .iter()
        .map(|value| value.to_bytes().unwrap())
        .collect();
    assert_eq!(blobs, [&[0, 255, 128, 10][..], &[]]);

    let plain = Endpoint::new(fleet.replicas[0].uri()).unwrap();
    let mut plain = ProbeClient::new(plain.connect().await.unwrap());
    plain.get(message("plain")).await.unwrap();
    let plain = fleet.seen.of("plain");
    let mut hedged = shared(&attempts[0].metadata);
    // The channel tells the server how much the answer matters, where it is not the default.
    hedged.retain(|(name, _)| {
        shared(&plain[0].metadata)
            .iter()
            .any(|(known, _)| known == name)
    });
    assert_eq!(hedged, shared(&plain[0].metadata));
    let extra = shared(&attempts[0].metadata).len() - hedged.len();
    assert_eq!(extra, 0, "{:?}", attempts[0].metadata);
}

/// MD2: the count of attempts before is absent on the first, and each further one has its own.
/// A count that the caller wrote does not survive.
#[tokio::test]
async fn md2_attempt_count() {
    // Two hedges fail, so that all kinds of attempts are started.
    let fleet = Fleet::start(4, |arrival: Arrival| async move {
        match arrival.previous() {
            0 => std::future::pending().await,
            1 | 2 => Err(Status::unavailable("down")),
            _ => arrival.ok(),
        }
    })
    .await;
    let builder = fleet.builder().max_attempts(4);
    let mut client = ProbeClient::new(fleet.channel(builder).await);
    let mut message = Request::new(request("1"));
    let name = "grpc-previous-rpc-attempts";
    message.metadata_mut().insert(name, "7".parse().unwrap());
    message.metadata_mut().append(name, "8".parse().unwrap());
    let response = client.get(message).await.unwrap();
    assert_eq!(response.get_ref().previous_attempts, 3);
    let counts: Vec<_> = fleet
        .seen
        .of("1")
        .iter()
        .map(|arrival| {
            let values = arrival.metadata.get_all(name).iter();
            values
                .map(|value| value.to_str().unwrap().to_owned())
                .collect::<Vec<_>>()
        })
        .collect();
    assert!(counts[0].is_empty());
    assert_eq!(counts[1..], [["1"], ["2"], ["3"]]);
}

/// MD2: retries count too.
#[tokio::test]
async fn md2_retries_count() {
    let fleet = Fleet::start(2, |arrival: Arrival| async move {
        match arrival.previous() {
            2 => arrival.ok(),
            _ => Err(Status::unavailable("down")),
        }
    })
    .await;
    let builder = fleet
        .builder()
        .hedge(Hedge::on_failure())
        .retry(Retry::default().base(Duration::ZERO));
    let mut client = ProbeClient::new(fleet.channel(builder).await);
    client.get(request("1")).await.unwrap();
    let counts: Vec<_> = fleet.seen.of("1").iter().map(Arrival::previous).collect();
    assert_eq!(counts, [0, 1, 2]);
}

/// MD4: each attempt has its endpoint's own authority: `a` by its origin and over TLS, `b` by its
/// address and in the clear.
#[tokio::test]
async fn md4_authority_and_tls_per_endpoint() {
    let hedged = Latch::closed();
    let script = move |arrival: Arrival| {
        let hedged = hedged.clone();
        async move {
            if arrival.previous() > 0 {
                hedged.open();
            }
            hedged.passed().await;
            arrival.ok()
        }
    };
    let ca = Authority::new();
    let tls = ServerTlsConfig::new().identity(ca.issue("replica-a.test"));
    let server = Server::builder().tls_config(tls).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let a = Replica::serve("a", listener, server, script.clone());
    let b = Replica::start("b", script).await;

    let trust = ClientTlsConfig::new()
        .ca_certificate(Certificate::from_pem(ca.pem()))
        .domain_name("replica-a.test");
    let secure = Endpoint::new(format!("https://{}", a.addr)).unwrap();
    let secure = secure
        .tls_config(trust)
        .unwrap()
        .origin("https://replica-a.test".parse().unwrap());
    let plain = Endpoint::new(b.uri()).unwrap();
    let channel = HedgedChannel::builder()
        .endpoints([EndpointSpec::new(secure), EndpointSpec::new(plain)])
        .descriptors(probe::FILE_DESCRIPTOR_SET)
        .hedge(Hedge::after(Duration::from_millis(20)))
        .budget(BudgetPolicy::default().initial(100.0))
        .build()
        .unwrap();
    connected(&channel, 2).await;
    let mut client = ProbeClient::new(channel);
    let response = client.get(request("1")).await.unwrap();
    assert!(response.hedged());
    let authority = |replica: &Replica| {
        let arrivals = replica.seen.of("1");
        assert_eq!(arrivals.len(), 1, "{}", replica.name);
        let value = arrivals[0].metadata.get(wire::AUTHORITY).unwrap();
        value.to_str().unwrap().to_owned()
    };
    assert_eq!(authority(&a), "replica-a.test");
    assert_eq!(authority(&b), b.addr.to_string());
}

/// MD4: a certificate that is not the endpoint's keeps it out; the other serves.
#[tokio::test]
async fn md4_wrong_certificate_is_not_connected() {
    let ca = Authority::new();
    let tls = ServerTlsConfig::new().identity(ca.issue("somebody-else.test"));
    let server = Server::builder().tls_config(tls).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let a = Replica::serve("a", listener, server, |arrival| async move { arrival.ok() });
    let trust = ClientTlsConfig::new()
        .ca_certificate(Certificate::from_pem(ca.pem()))
        .domain_name("replica-a.test");
    let secure = Endpoint::new(format!("https://{}", a.addr)).unwrap();
    let channel = HedgedChannel::builder()
        .endpoints([secure.tls_config(trust).unwrap()])
        .descriptors(probe::FILE_DESCRIPTOR_SET)
        .build()
        .unwrap();
    let status = ProbeClient::new(channel)
        .get(request("1"))
        .await
        .unwrap_err();
    assert_eq!(status.code(), tonic::Code::Unavailable);
    assert!(status.message().contains(&a.addr.to_string()), "{status:?}");
    assert_eq!(a.seen.calls(), 0);
}

/// MD4: a server that wants a client's certificate says so only after TLS 1.3 has let the client
/// in. It is not taken for connected until then, so that no call is lost to it.
#[tokio::test]
async fn md4_without_a_wanted_client_certificate_is_not_connected() {
    let ca = Authority::new();
    let tls = ServerTlsConfig::new()
        .identity(ca.issue("replica-a.test"))
        .client_ca_root(Certificate::from_pem(ca.pem()));
    let server = Server::builder().tls_config(tls).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let a = Replica::serve("a", listener, server, |arrival| async move { arrival.ok() });
    let trust = ClientTlsConfig::new()
        .ca_certificate(Certificate::from_pem(ca.pem()))
        .domain_name("replica-a.test");
    let channel = |trust| {
        let secure = Endpoint::new(format!("https://{}", a.addr)).unwrap();
        HedgedChannel::builder()
            .endpoints([secure.tls_config(trust).unwrap()])
            .descriptors(probe::FILE_DESCRIPTOR_SET)
            .build()
            .unwrap()
    };
    let anonymous = channel(trust.clone());
    for _ in 0..3 {
        let mut client = ProbeClient::new(anonymous.clone());
        let status = client.put(request("1")).await.unwrap_err();
        assert_eq!(status.code(), tonic::Code::Unavailable);
        assert!(
            status.message().contains("client certificate"),
            "{status:?}"
        );
        let log = CallLog::of_status(&status).unwrap();
        assert_eq!(log.attempts().len(), 0, "{log}");
    }
    let known = channel(trust.identity(ca.issue("client.test")));
    ProbeClient::new(known).put(request("2")).await.unwrap();
    assert_eq!(a.seen.calls(), 1);
}

/// A certificate authority of the test's own.
struct Authority {
    issuer: rcgen::Issuer<'static, rcgen::KeyPair>,
    certificate: rcgen::Certificate,
}

impl Authority {
    fn new() -> Self {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut parameters = rcgen::CertificateParams::new(Vec::new()).unwrap();
        parameters.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let certificate = parameters.self_signed(&key).unwrap();
        Self {
            issuer: rcgen::Issuer::new(parameters, key),
            certificate,
        }
    }

    fn pem(&self) -> String {
        self.certificate.pem()
    }

    fn issue(&self, name: &str) -> Identity {
        let key = rcgen::KeyPair::generate().unwrap();
        let parameters = rcgen::CertificateParams::new(vec![name.to_owned()]).unwrap();
        let certificate = parameters.signed_by(&key, &self.issuer).unwrap();
        Identity::from_pem(certificate.pem(), key.serialize_pem())
    }
}

/// MD7: metadata over the server's limit fails the call within its attempts, and does not loop.
#[tokio::test]
async fn md7_metadata_over_the_servers_limit() {
    let fleet = Fleet::start(2, |arrival: Arrival| async move { arrival.ok() }).await;
    let channel = fleet.channel(fleet.builder()).await;
    let mut client = ProbeClient::new(channel.clone());
    let mut message = Request::new(request("1"));
    for index in 0..64 {
        let name: tonic::metadata::MetadataKey<_> = format!("x-{index}").parse().unwrap();
        message
            .metadata_mut()
            .insert(name, "v".repeat(1024).parse().unwrap());
    }
    client.get(message).await.unwrap_err();
    // Three that count, and what never left since the server had closed its connection: capped.
    let get = &channel.measured().methods[0];
    assert!(get.attempts <= 3 + 16, "{get:?}");
}

/// MD5: the caller's extensions, and the method that the generated client puts there, are in every
/// attempt.
#[tokio::test]
async fn md5_extensions_reach_every_attempt() {
    #[derive(Clone)]
    struct Mine;

    let fleet = Fleet::start(2, |arrival: Arrival| async move {
        if arrival.previous() == 0 && arrival.request.id == "extensions" {
            std::future::pending::<()>().await;
        }
        arrival.ok()
    })
    .await;
    let seen = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&seen);
    let builder = fleet.builder().target_with(move |attempt| {
        let method = attempt.extensions().get::<tonic::GrpcMethod<'static>>();
        let mine = attempt.extensions().get::<Mine>().is_some();
        noted
            .lock()
            .push((method.map(|it| it.method().to_owned()), mine));
        None
    });
    let channel = fleet.channel(builder).await;
    seen.lock().clear();
    let mut call = Request::new(request("extensions"));
    call.extensions_mut().insert(Mine);
    ProbeClient::new(channel).get(call).await.unwrap();
    let both = (Some("Get".to_owned()), true);
    assert_eq!(*seen.lock(), [both.clone(), both]);
}
