//! linkerd2#14731: the task behind a buffered connection was gone, and whoever used it next panicked.
//!
//! Right: a call on it ends with a status, and a channel that makes its own connections heals.

use tokio::runtime::{Builder, Runtime};
use tonic::{Code, transport::Endpoint};
use tonic_hedge::{EndpointSpec, Hedge, HedgedChannel};
use tower::discover::Change;

use crate::support::{ProbeClient, Replica, probe, request};

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

#[test]
fn gone_with_its_runtime() {
    let servers = Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let a = servers.block_on(Replica::fast("a"));
    let first = runtime();

    let own = HedgedChannel::builder()
        .endpoints([a.uri()])
        .descriptors(probe::FILE_DESCRIPTOR_SET)
        .hedge(Hedge::immediately())
        .build()
        .unwrap();
    let made = first.block_on(async {
        let made = Endpoint::new(a.uri()).unwrap().connect().await.unwrap();
        let spec = EndpointSpec::channel("made", made);
        let changes = [Ok::<_, std::io::Error>(Change::Insert(0, spec))];
        HedgedChannel::builder()
            .discover(tokio_stream::iter(changes))
            .descriptors(probe::FILE_DESCRIPTOR_SET)
            .build()
            .unwrap()
    });
    for channel in [&own, &made] {
        let mut client = ProbeClient::new(channel.clone());
        first.block_on(client.get(request("1"))).unwrap();
    }
    drop(first);

    for _ in 0..3 {
        let next = runtime();
        let mut client = ProbeClient::new(made.clone());
        for _ in 0..3 {
            let status = next.block_on(client.put(request("2"))).unwrap_err();
            assert_eq!(status.code(), Code::Unavailable, "{status:?}");
        }
        let mut client = ProbeClient::new(own.clone());
        next.block_on(client.get(request("3"))).unwrap();
        next.block_on(client.put(request("3"))).unwrap();
    }
}
