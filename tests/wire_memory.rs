//! Memory, counted by an allocator of this binary's own: one test after the other.

#![allow(clippy::unwrap_used)]

mod support;

use std::{convert::Infallible, sync::Arc, time::Duration};

use opentelemetry_sdk::metrics::{InMemoryMetricExporter, PeriodicReader, SdkMeterProvider};
use parking_lot::const_mutex;
use peak_alloc::PeakAlloc;
use support::{
    Arrival, ProbeClient, ProbeRequest, Replica, probe,
    raw::{
        CONTINUATION, END_HEADERS, HEADERS, Manner, Raw, Step, block as raw_block, header, ok,
        script, status,
    },
    request,
};
use tokio::task::JoinSet;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::{Code, codec::CompressionEncoding, transport::Endpoint};
use tonic_hedge::{
    BudgetPolicy, EndpointMeasured, EndpointState, Hedge, HedgedChannel, ResponseExt,
};
use tower::discover::Change;

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

/// FA12: headers without end cost their connection, and the memory of what the client takes of them:
/// one block of 20 MiB, and CONTINUATION frames that never say that they are the last.
#[test]
fn fa12_endless_headers() {
    let _alone = ALONE.lock();
    runtime().block_on(async {
        let part = || raw_block(&[header("x-part", &"x".repeat(16_000))]);
        let status = || raw_block(&[header(":status", "200")]);
        // 1,300 times 16 KB are 20 MiB; 2 MiB of frame headers alone.
        let cases = [
            ("one block", 1_300, part(), END_HEADERS),
            ("a flood", 100_000, part(), 0),
            ("empty frames", 200_000, vec![], 0),
        ];
        for (what, count, part, end) in cases {
            let bad = vec![
                Step::Body,
                Step::Frames(1, HEADERS, 0, status()),
                Step::Frames(count, CONTINUATION, 0, part),
                Step::Frames(1, CONTINUATION, end, vec![]),
            ];
            let good = Replica::fast("good").await;
            let steps = script(move |number| match number {
                0 => ok("warm"),
                _ => bad.clone(),
            });
            let raw = Raw::start(steps).await;
            let channel = channel(
                [raw.uri(), good.uri()],
                Hedge::after(Duration::from_secs(10)),
            );
            connected(&channel).await;
            let mut client = ProbeClient::new(channel.clone());
            let before = MEMORY.current_usage();
            MEMORY.reset_peak_usage();
            // Until the picker forgets that its first answer was the slower one, if it was.
            for _ in 0..100_000 {
                // Its answer to the first stream, and the other's to any.
                client.off(request("1")).await.unwrap();
                if raw.log(|log| log.streams) > 1 {
                    break;
                }
            }
            assert!(raw.log(|log| log.streams) > 1, "{what}");
            let measured = channel.measured();
            let off = measured.method("hedge.testing.v1.Probe/Off").unwrap();
            assert!(off.retries > 0, "{what}: {measured:?}");
            let peak = MEMORY.peak_usage().saturating_sub(before);
            assert!(peak < 2 << 20, "{what}: {peak} bytes");
        }
    });
}

/// BL3, BL4: requests that wait to be replayed are kept once, however many attempts send them: with
/// a hundred of nearly 1 MiB in flight, each in two places, the client holds a hundred MiB.
#[test]
fn bl3_replayed_requests_are_kept_once() {
    const CALLS: usize = 100;
    const SIZE: usize = (1 << 20) - 100;
    let _alone = ALONE.lock();
    runtime().block_on(async {
        // Reads no more than its window, so that what is kept is the client's.
        let manner = Manner {
            grants: false,
            ..Manner::default()
        };
        let steps = || script(|number| if number == 0 { ok("warm") } else { vec![] });
        let a = Raw::with(manner, steps()).await;
        let b = Raw::with(manner, steps()).await;
        let channel = channel([a.uri(), b.uri()], Hedge::immediately());
        for raw in [&a, &b] {
            // Its warm stream.
            let alone = self::channel([raw.uri(), raw.uri()], Hedge::on_failure());
            ProbeClient::new(alone).put(request("warm")).await.unwrap();
        }
        let before = MEMORY.current_usage();
        let mut calls = JoinSet::new();
        for id in 0..CALLS {
            let mut client = ProbeClient::new(channel.clone());
            calls.spawn(async move {
                let payload = vec![7; SIZE];
                let id = id.to_string();
                client
                    .get(ProbeRequest {
                        payload,
                        ..request(&id)
                    })
                    .await
            });
        }
        support::eventually("all are in two places", || {
            let endpoints = channel.measured().endpoints;
            let in_flight: u32 = endpoints.iter().map(|endpoint| endpoint.in_flight).sum();
            in_flight as usize == 2 * CALLS
        })
        .await;
        let kept = MEMORY.current_usage() - before;
        assert!(kept < CALLS * SIZE * 6 / 5, "{kept} bytes");
        // When their callers are gone, at most what the losers at each endpoint may keep; and
        // nothing without a connection.
        calls.shutdown().await;
        let falls_below = async |limit: usize| {
            let kept = || MEMORY.current_usage().saturating_sub(before);
            support::eventually("it is given back", || kept() < limit).await;
        };
        falls_below(2 * (16 << 20) + (4 << 20)).await;
        drop((a, b));
        falls_below(4 << 20).await;
    });
}

/// EC6: endpoints that come and go under load leave no memory, no socket and no series of metrics.
#[test]
fn ec6_churn_leaves_nothing() {
    let _alone = ALONE.lock();
    runtime().block_on(async {
        let script = |arrival: Arrival| async move { arrival.ok() };
        let stays = Replica::start("stays", script).await;
        let comes = Replica::start("comes", script).await;
        let (changes, receiver) = tokio::sync::mpsc::unbounded_channel();
        let exporter = InMemoryMetricExporter::default();
        let reader = PeriodicReader::builder(exporter.clone()).build();
        let metering = SdkMeterProvider::builder().with_reader(reader).build();
        let channel = HedgedChannel::builder()
            .discover(UnboundedReceiverStream::new(receiver))
            .descriptors(probe::FILE_DESCRIPTOR_SET)
            .hedge(Hedge::immediately())
            .meter_provider(Arc::new(metering.clone()))
            .build()
            .unwrap();
        let change = |key: u32, replica: Option<&Replica>| {
            let change = match replica {
                Some(replica) => Change::Insert(key, Endpoint::new(replica.uri()).unwrap()),
                None => Change::Remove(key),
            };
            changes.send(Ok::<_, Infallible>(change)).unwrap();
        };
        change(0, Some(&stays));
        support::connected(&channel, 1).await;
        let churn = async |rounds: std::ops::Range<u32>| {
            let mut client = ProbeClient::new(channel.clone());
            for key in rounds {
                change(key, Some(&comes));
                if key % 20 == 0 {
                    support::until_measured(&channel, "it is connected", |measured| {
                        let ready = |e: &&EndpointMeasured| e.state == EndpointState::Ready;
                        measured.endpoints.iter().filter(ready).count() == 2
                    })
                    .await;
                    client.get(request("1")).await.unwrap();
                }
                change(key, None);
                if key % 20 == 0 {
                    support::until_measured(&channel, "it is gone", |m| m.endpoints.len() == 1)
                        .await;
                }
            }
            support::settled(&channel).await;
            stays.seen.forget();
            comes.seen.forget();
            MEMORY.current_usage()
        };
        let before = churn(1..2_000).await;
        support::eventually("connections close", || sockets() <= 12).await;
        let open = sockets();
        let after = churn(2_000..12_000).await;
        assert!(
            after.saturating_sub(before) < 2 << 20,
            "{before} before, {after} after"
        );
        support::eventually("sockets close", || sockets() <= open).await;
        metering.force_flush().unwrap();
        let exported = format!("{:?}", exporter.get_finished_metrics().unwrap().last());
        assert!(exported.contains(&stays.addr.to_string()), "{exported}");
        assert!(!exported.contains(&comes.addr.to_string()), "{exported}");
    });
}

/// Sockets of this process; none where there is no way to see them.
fn sockets() -> usize {
    let Ok(open) = std::fs::read_dir("/proc/self/fd") else {
        return 0;
    };
    let targets = open.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    targets
        .filter(|target| target.to_string_lossy().starts_with("socket:"))
        .count()
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
