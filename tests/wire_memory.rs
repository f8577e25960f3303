//! Memory, counted by an allocator of this binary's own: one test after the other.

#![allow(clippy::unwrap_used)]

mod support;

use std::time::Duration;

use parking_lot::const_mutex;
use peak_alloc::PeakAlloc;
use support::{
    Arrival, ProbeClient, Replica, probe,
    raw::{Raw, Step, header, ok, script, status},
    request,
};
use tokio::task::JoinSet;
use tonic::{Code, codec::CompressionEncoding};
use tonic_hedge::{BudgetPolicy, EndpointState, Hedge, HedgedChannel, ResponseExt};

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

/// The count is the whole process's.
static ALONE: parking_lot::Mutex<()> = const_mutex(());

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
}

fn channel(uris: [String; 2], hedge: Hedge) -> HedgedChannel {
    HedgedChannel::builder()
        .endpoints(uris)
        .descriptors(probe::FILE_DESCRIPTOR_SET)
        .hedge(hedge)
        .budget(
            BudgetPolicy::default()
                .ratio(1.0)
                .capacity(100_000.0)
                .initial(100_000.0),
        )
        .without_breaker()
        .build()
        .unwrap()
}

async fn connected(channel: &HedgedChannel) {
    ProbeClient::new(channel.clone())
        .put(request("warm"))
        .await
        .unwrap();
    support::eventually("all connected", || {
        let endpoints = channel.measured().endpoints;
        endpoints
            .iter()
            .all(|endpoint| endpoint.state == EndpointState::Ready)
    })
    .await;
}

/// ML1: calls, half of them hedged, leave nothing behind.
#[test]
fn ml1_flat() {
    const WARM_UP: usize = 3_000;
    // A minute's worth on demand: HEDGE_CALLS=100000.
    let calls_wanted = std::env::var("HEDGE_CALLS")
        .ok()
        .and_then(|calls| calls.parse().ok());
    let wanted = calls_wanted.unwrap_or(8_000);
    let _alone = ALONE.lock();
    runtime().block_on(async {
        // Forgets what it saw: an arrival's record would be a leak of the test's own.
        let script = |arrival: Arrival| async move { arrival.ok() };
        let (a, b) = (
            Replica::start("a", script).await,
            Replica::start("b", script).await,
        );
        let channel = channel([a.uri(), b.uri()], Hedge::immediately());
        connected(&channel).await;
        let calls = async |calls: usize| {
            let mut running = JoinSet::new();
            for id in 0..calls {
                let mut client = ProbeClient::new(channel.clone());
                running.spawn(async move {
                    // `Off` is not hedged.
                    match id % 2 {
                        0 => client.get(request("1")).await.map(drop),
                        _ => client.off(request("1")).await.map(drop),
                    }
                });
                if running.len() >= 32 {
                    running.join_next().await.unwrap().unwrap().unwrap();
                }
            }
            for result in running.join_all().await {
                result.unwrap();
            }
            support::eventually("nothing is in flight", || {
                let endpoints = channel.measured().endpoints;
                endpoints.iter().all(|endpoint| endpoint.in_flight == 0)
            })
            .await;
            a.seen.forget();
            b.seen.forget();
            MEMORY.current_usage()
        };
        let before = calls(WARM_UP).await;
        println!("{before} bytes live");
        let after = calls(wanted).await;
        let grown = after.saturating_sub(before);
        // h2 remembers up to 4,096 streams that it has reset, on each connection.
        assert!(grown < 1 << 20, "{grown} bytes more after {wanted} calls");
        let measured = channel.measured();
        let get = measured.method("hedge.testing.v1.Probe/Get").unwrap();
        assert_eq!(get.hedges, get.calls, "{measured:?}");
    });
}

/// BL9: a response that grows a thousandfold when it is decompressed is refused at tonic's own
/// limit; another endpoint's answer is not in its way.
#[test]
fn bl9_gzip_bomb() {
    const GROWN: usize = 64 << 20;
    const LIMIT: usize = 4 << 20;
    let _alone = ALONE.lock();
    let bomb = bomb(GROWN);
    runtime().block_on(async {
        let mut framed = vec![1];
        framed.extend(u32::try_from(bomb.len()).unwrap().to_be_bytes());
        framed.extend(bomb);
        let bomb = vec![
            Step::HeadOf(vec![
                header(":status", "200"),
                header("content-type", "application/grpc"),
                header("grpc-encoding", "gzip"),
            ]),
            Step::Data(framed),
            status("0"),
        ];
        let script = script(move |number| match number {
            0 => ok("warm"),
            _ => bomb.clone(),
        });
        let bomber = Raw::start(script.clone()).await;
        let other = Raw::start(script).await;
        let channel = channel(
            [bomber.uri(), other.uri()],
            Hedge::after(Duration::from_secs(10)),
        );
        connected(&channel).await;
        let mut client = ProbeClient::new(channel.clone())
            .accept_compressed(CompressionEncoding::Gzip)
            .max_decoding_message_size(LIMIT);
        let before = MEMORY.current_usage();
        MEMORY.reset_peak_usage();
        let error = client.get(request("1")).await.unwrap_err();
        assert!(
            matches!(error.code(), Code::OutOfRange | Code::ResourceExhausted),
            "{error}"
        );
        let peak = MEMORY.peak_usage() - before;
        assert!(
            peak < LIMIT + (16 << 20),
            "{peak} bytes for a message over {LIMIT}"
        );

        // The bomb is a whole answer to the race; a failure would have been beaten.
        let good = Replica::fast("good").await;
        let channel = self::channel([bomber.uri(), good.uri()], Hedge::immediately());
        let mut client = ProbeClient::new(channel).accept_compressed(CompressionEncoding::Gzip);
        let mut good = 0;
        for _ in 0..20 {
            match client.get(request("2")).await {
                Ok(response) => {
                    assert_eq!(response.get_ref().replica, "good");
                    assert!(response.call_log().is_some());
                    good += 1;
                }
                Err(error) => {
                    assert!(matches!(
                        error.code(),
                        Code::OutOfRange | Code::ResourceExhausted
                    ));
                }
            }
        }
        assert!(good > 0);
    });
}

/// `len` zeros in gzip (RFC 1951, 1952): one block of fixed codes, repeating itself 258 bytes at
/// a time.
fn bomb(len: usize) -> Vec<u8> {
    let mut bits = Bits::default();
    // The last block, fixed codes.
    bits.push(0b1, 1);
    bits.push(0b01, 2);
    // The literal 0.
    bits.push_code(0b0011_0000, 8);
    for _ in 0..len / 258 {
        // Length 258, distance 1.
        bits.push_code(0b1100_0101, 8);
        bits.push_code(0, 5);
    }
    // The end of the block.
    bits.push_code(0, 7);
    let mut gzip = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];
    gzip.extend(bits.finish());
    // No checksum: nobody gets there.
    gzip.extend([0; 8]);
    gzip
}

#[derive(Default)]
struct Bits {
    bytes: Vec<u8>,
    last: u32,
    count: u32,
}

impl Bits {
    /// The least significant bit first.
    fn push(&mut self, value: u32, count: u32) {
        self.last |= value << self.count;
        self.count += count;
        while self.count >= 8 {
            self.bytes.push(self.last as u8);
            self.last >>= 8;
            self.count -= 8;
        }
    }

    /// A Huffman code: the most significant bit first.
    fn push_code(&mut self, code: u32, count: u32) {
        self.push(code.reverse_bits() >> (32 - count), count);
    }

    fn finish(mut self) -> Vec<u8> {
        if self.count > 0 {
            self.bytes.push(self.last as u8);
        }
        self.bytes
    }
}
