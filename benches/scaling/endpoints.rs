//! 1 to 1,000 endpoints: the time of a pick, and an endpoint's memory beyond tonic's channel.

use std::{hint::black_box, net::SocketAddr, time::Duration};

use futures_util::future::try_join_all;
use tonic::transport::{Channel, Endpoint};
use tonic_hedge::{EndpointSpec, EndpointState, Hedge, HedgedChannel, bench::Inside};

use crate::{
    Outcome, bytes,
    report::Row,
    runtime, service,
    timing::{Size, compare},
};

const SIZES: [usize; 4] = [1, 3, 100, 1_000];

/// Picks in a round.
const PICKS: usize = 20_000;

const NOW: Duration = Duration::from_secs(1);

/// Connected endpoints whose memory is measured: each is two sockets of this process.
const CONNECTED: usize = 200;

/// The time of picks.
pub(crate) fn times() -> Outcome<Vec<Row>> {
    let runtime = runtime()?;
    let _entered = runtime.enter();
    let everywhere = channels(|_| None)?;
    let in_zones = channels(|index| Some(["a", "b", "c"][index % 3]))?;
    let in_one_zone = channels(|_| Some("a"))?;
    let mut rows = compare(
        "pick, original",
        PICKS,
        picks(&everywhere, |inside, picks| {
            for _ in 0..picks {
                black_box(inside.choice(NOW));
            }
        }),
    );
    rows.extend(compare(
        "pick, original, and a clone of tonic's channel",
        PICKS,
        picks(&everywhere, |inside, picks| {
            for _ in 0..picks {
                black_box(inside.original(NOW));
            }
        }),
    ));
    let hedge = |inside: &Inside<'_>, picks: usize| {
        let Some(original) = inside.original(NOW) else {
            return;
        };
        for _ in 0..picks {
            black_box(inside.hedge_choice(NOW, &original));
        }
    };
    // One endpoint has no place for a hedge.
    for (name, channels) in [
        ("pick, hedge", &everywhere),
        ("pick, hedge, 3 zones", &in_zones),
        ("pick, hedge, 1 zone", &in_one_zone),
    ] {
        rows.extend(compare(name, PICKS, picks(&channels[1..], hedge)));
    }
    rows.extend(compare(
        "gate, other endpoint",
        PICKS,
        picks(&everywhere[1..], |inside, picks| {
            let Some(original) = inside.original(NOW) else {
                return;
            };
            for _ in 0..picks {
                black_box(inside.could_hedge(&original));
            }
        }),
    ));
    Ok(rows)
}

/// A channel of each size, with endpoints that are taken as connected.
fn channels(zone: impl Fn(usize) -> Option<&'static str>) -> Outcome<Vec<HedgedChannel>> {
    let channels = SIZES.into_iter().map(|size| {
        let specs = (0..size).map(|index| {
            let spec = EndpointSpec::channel(name(index), lazy());
            match zone(index) {
                Some(zone) => spec.locality(zone),
                None => spec,
            }
        });
        Ok(HedgedChannel::builder().endpoints(specs).build()?)
    });
    channels.collect()
}

fn picks<'a>(
    channels: &'a [HedgedChannel],
    run: impl Fn(&Inside<'_>, usize) + Copy + 'a,
) -> Vec<Size<'a>> {
    let sizes = channels.iter().zip(&SIZES[SIZES.len() - channels.len()..]);
    sizes
        .map(|(channel, &size)| {
            let inside = Inside::of(channel);
            Size {
                size,
                run: Box::new(move |times| run(&inside, times)),
            }
        })
        .collect()
}

fn name(index: usize) -> String {
    format!("10.0.{}.{}:50051", index / 250, index % 250)
}

fn lazy() -> Channel {
    Endpoint::from_static("http://127.0.0.1:1").connect_lazy()
}

/// Bytes of an endpoint, beyond those of a tonic channel that is in the same state.
pub(crate) fn memory() -> Outcome<Vec<Row>> {
    let mut rows = Vec::new();
    for size in [100, 1_000] {
        rows.push(Row::bytes("endpoint, ready-made", size, ready_made(size)?));
        rows.push(Row::bytes(
            "endpoint, before the first call",
            size,
            idle(size)?,
        ));
    }
    let (plain, ours) = runtime()?.block_on(connected())?;
    rows.push(Row::bytes(
        "endpoint, connected: tonic's and its server's",
        CONNECTED,
        plain,
    ));
    rows.push(Row::bytes(
        "endpoint, connected: beyond that",
        CONNECTED,
        ours - plain,
    ));
    Ok(rows)
}

fn ready_made(size: usize) -> Outcome<f64> {
    let runtime = runtime()?;
    let _entered = runtime.enter();
    let before = bytes();
    let plain: Vec<_> = (0..size).map(|_| lazy()).collect();
    let between = bytes();
    let specs = (0..size).map(|index| EndpointSpec::channel(name(index), lazy()));
    let channel = HedgedChannel::builder().endpoints(specs).build()?;
    let ours = bytes() - between;
    drop((plain, channel));
    Ok((ours - (between - before)) / size as f64)
}

fn idle(size: usize) -> Outcome<f64> {
    let runtime = runtime()?;
    let _entered = runtime.enter();
    let endpoint = |index| Endpoint::from_shared(format!("http://{}", name(index)));
    let before = bytes();
    let plain = (0..size).map(|index| Ok(endpoint(index)?.connect_lazy()));
    let plain = plain.collect::<Outcome<Vec<_>>>()?;
    let between = bytes();
    let endpoints = (0..size).map(endpoint).collect::<Result<Vec<_>, _>>()?;
    let channel = HedgedChannel::builder().endpoints(endpoints).build()?;
    let ours = bytes() - between;
    drop((plain, channel));
    Ok((ours - (between - before)) / size as f64)
}

/// Of tonic's channels and of ours, each connected to the same servers, which are in this process.
async fn connected() -> Outcome<(f64, f64)> {
    let mut addresses = Vec::new();
    for _ in 0..CONNECTED {
        addresses.push(service::listen().await?);
    }
    let endpoint = |address: &SocketAddr| Endpoint::from_shared(format!("http://{address}"));
    let before = bytes();
    let plain = addresses
        .iter()
        .map(endpoint)
        .collect::<Result<Vec<_>, _>>()?;
    // All at once, as ours.
    let plain = try_join_all(plain.iter().map(Endpoint::connect)).await?;
    settle().await;
    let between = bytes();
    let endpoints = addresses
        .iter()
        .map(endpoint)
        .collect::<Result<Vec<_>, _>>()?;
    let mut channel = HedgedChannel::builder()
        .endpoints(endpoints)
        .hedge(Hedge::at(0.95))
        .build()?;
    // The first call starts connecting.
    service::call(&mut channel, "/bench.Bench/Call").await?;
    let ready = |channel: &HedgedChannel| {
        let endpoints = channel.measured().endpoints;
        endpoints.iter().all(|it| it.state == EndpointState::Ready)
    };
    while !ready(&channel) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    settle().await;
    let after = bytes();
    drop((plain, channel));
    let each = |bytes: f64| bytes / CONNECTED as f64;
    Ok((each(between - before), each(after - between)))
}

/// Lets both ends of all connections have their say.
async fn settle() {
    tokio::time::sleep(Duration::from_millis(500)).await;
}
