//! gRPC's HTTP/2 interop cases, as a server sees them that is in its rights and one that is not:
//! each with hedging off, and with every call hedged.
//!
//! The cases are described in grpc/grpc, `doc/http2-interop-test-descriptions.md`.

#![allow(clippy::unwrap_used)]

mod support;

use support::{
    ProbeClient, ProbeRequest, probe,
    raw::{Last, Manner, NO_ERROR, Raw, Step, script, status},
    request,
};
use tokio::task::JoinSet;
use tonic::Code;
use tonic_hedge::{BudgetPolicy, EndpointState, Hedge, HedgedChannel, ResponseExt};

/// As many bytes as the cases' descriptions have in each answer.
const SIZE: usize = 314_159;

/// The two ways in which each case is run.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Mode {
    /// One attempt for each call, in one place.
    Off,
    /// Two at once, in two places that do the same.
    Hedged,
}

const MODES: [Mode; 2] = [Mode::Off, Mode::Hedged];

/// The servers of one case, all of one script, and a channel that is connected to them.
struct Case {
    mode: Mode,
    servers: Vec<Raw>,
    channel: HedgedChannel,
}

impl Case {
    /// Servers that do `steps` to each of their streams, numbered from 0.
    async fn start(
        mode: Mode,
        manner: Manner,
        steps: impl Fn(usize) -> Vec<Step> + Clone + Send + Sync + 'static,
    ) -> Self {
        let count = match mode {
            Mode::Off => 1,
            Mode::Hedged => 2,
        };
        let mut servers = Vec::new();
        for _ in 0..count {
            servers.push(Raw::with(manner, script(steps.clone())).await);
        }
        let builder = HedgedChannel::builder()
            .endpoints(servers.iter().map(Raw::uri))
            .descriptors(probe::FILE_DESCRIPTOR_SET)
            .budget(BudgetPolicy::default().initial(100.0))
            .max_attempts(2)
            .without_breaker();
        let builder = match mode {
            Mode::Off => builder,
            Mode::Hedged => builder.hedge(Hedge::immediately()),
        };
        let channel = builder.build().unwrap();
        Self {
            mode,
            servers,
            channel,
        }
    }

    /// The first call of a case that has one; only then are all servers connected.
    async fn warm(&self) {
        self.call("warm").await.unwrap();
        support::eventually("all are connected", || {
            let endpoints = self.channel.measured().endpoints;
            endpoints.iter().all(|e| e.state == EndpointState::Ready)
        })
        .await;
    }

    /// `Put`, which is sent once, or `Get`, which is hedged.
    async fn call(&self, id: &str) -> Result<tonic::Response<probe::ProbeReply>, tonic::Status> {
        let mut client = ProbeClient::new(self.channel.clone());
        let message = ProbeRequest {
            payload: vec![0; 271_828],
            ..request(id)
        };
        match self.mode {
            Mode::Off => client.put(message).await,
            Mode::Hedged => client.get(message).await,
        }
    }
}

/// A message of [`SIZE`] bytes.
fn large() -> Vec<u8> {
    use prost::Message as _;
    let reply = probe::ProbeReply {
        payload: vec![7; SIZE],
        ..probe::ProbeReply::default()
    };
    let reply = reply.encode_to_vec();
    let len = u32::try_from(reply.len()).unwrap().to_be_bytes();
    [&[0][..], &len, &reply].concat()
}

fn whole() -> Vec<Step> {
    vec![Step::Body, Step::Head, Step::Data(large()), status("0")]
}

/// A stream that ends in a reset at any point is an error, and nothing of it is handed out. hyper
/// takes a reset with NO_ERROR for the end of the body: `codes` are what a body that ends there is to
/// tonic, which reads that of an only attempt, and to the channel, which reads the others'.
async fn reset_after(what: &str, codes: [Code; 2], steps: impl Fn() -> Vec<Step>) {
    for (mode, expected) in MODES.into_iter().zip(codes) {
        let steps = steps();
        let case = Case::start(mode, Manner::default(), move |_| steps.clone()).await;
        for _ in 0..5 {
            let error = case.call("1").await.unwrap_err();
            let code = error.code();
            assert_eq!(code, expected, "{what}, {mode:?}: {error:?}");
        }
        for server in &case.servers {
            assert!(server.log(|log| log.connections) <= 1, "{what}, {mode:?}");
        }
    }
}

#[tokio::test]
async fn rst_after_header() {
    let steps = || vec![Step::Body, Step::Head, Step::Reset(NO_ERROR)];
    reset_after("header", [Code::Unknown; 2], steps).await;
}

#[tokio::test]
async fn rst_after_data() {
    let steps = || {
        vec![
            Step::Body,
            Step::Head,
            Step::Data(large()),
            Step::Reset(NO_ERROR),
        ]
    };
    reset_after("data", [Code::Unknown; 2], steps).await;
}

#[tokio::test]
async fn rst_during_data() {
    let half = || large()[..SIZE / 2].to_vec();
    let steps = || {
        vec![
            Step::Body,
            Step::Head,
            Step::Data(half()),
            Step::Reset(NO_ERROR),
        ]
    };
    reset_after("half of the data", [Code::Internal, Code::Unknown], steps).await;
}

/// GOAWAY after the first answer: the second call has a new connection.
#[tokio::test]
async fn goaway() {
    for mode in MODES {
        let case = Case::start(mode, Manner::default(), |number| match number {
            0 => [vec![Step::GoAway(Last::This, NO_ERROR)], whole()].concat(),
            _ => whole(),
        })
        .await;
        case.warm().await;
        for id in 0..5 {
            let response = case.call(&id.to_string()).await.unwrap();
            assert_eq!(response.get_ref().payload, vec![7; SIZE]);
        }
        let told = case
            .servers
            .iter()
            .filter(|server| server.log(|log| log.streams > 1))
            .count();
        assert_eq!(told, case.servers.len());
        for server in &case.servers {
            let streams = server.log(|log| log.by_connection.clone());
            assert_eq!(streams.len(), 2, "{mode:?}");
            assert_eq!(streams[0], 1, "{mode:?}: {streams:?}");
        }
    }
}

/// PINGs before, between and after the frames of an answer are all acknowledged.
#[tokio::test]
async fn ping() {
    for mode in MODES {
        let case = Case::start(mode, Manner::default(), |_| {
            let mut steps = vec![Step::Ping];
            for step in whole() {
                steps.extend([step, Step::Ping]);
            }
            steps
        })
        .await;
        for id in 0..20 {
            let response = case.call(&id.to_string()).await.unwrap();
            assert_eq!(response.get_ref().payload, vec![7; SIZE]);
        }
        let mut answered = 0;
        for server in &case.servers {
            // A loser's stream may be reset before its last ones go out.
            server
                .until("pings", |log| log.ponged >= 2 * log.streams)
                .await;
            answered += server.log(|log| log.streams);
        }
        assert!(answered >= 20, "{mode:?}");
    }
}

/// MAX_CONCURRENT_STREAMS of 1: fifteen calls at once all have their answer, one after the other.
#[tokio::test]
async fn max_streams() {
    for mode in MODES {
        let manner = Manner {
            streams: Some(1),
            ..Manner::default()
        };
        let case = Case::start(mode, manner, |_| whole()).await;
        case.warm().await;
        let case = std::sync::Arc::new(case);
        let mut calls = JoinSet::new();
        for id in 0..15 {
            let case = std::sync::Arc::clone(&case);
            calls.spawn(async move { case.call(&id.to_string()).await });
        }
        for call in calls.join_all().await {
            let response = call.unwrap();
            assert_eq!(response.get_ref().payload, vec![7; SIZE]);
            assert_eq!(response.hedged(), mode == Mode::Hedged);
        }
        for server in &case.servers {
            assert_eq!(server.log(|log| log.most_open), 1, "{mode:?}");
            assert_eq!(server.log(|log| log.connections), 1, "{mode:?}");
        }
        support::settled(&case.channel).await;
    }
}
