//! 1 to 10,000 methods: the time of a look-up, and a method's memory as it learns.

use std::{hint::black_box, io, time::Duration};

use tonic_hedge::{EndpointSpec, Hedge, HedgedChannel, MethodPolicy, bench::Inside};
use tower::discover::Change;

use crate::{
    Outcome, bytes,
    report::Row,
    runtime, service,
    timing::{Size, compare},
};

const SIZES: [usize; 4] = [1, 100, 1_000, 10_000];

/// Look-ups in a round.
const LOOK_UPS: usize = 100_000;

/// Methods whose memory is measured in calls.
const CALLED: usize = 100;

/// Calls of each.
const CALLS: usize = 50;

/// Latencies that each learns: 200 calls a second for a window.
const LEARNT: u32 = 6_000;

const WINDOW: Duration = Duration::from_secs(30);

/// The time of look-ups.
pub(crate) fn times() -> Outcome<Vec<Row>> {
    let channels = SIZES.map(|size| (size, channel(size, Vec::new())));
    let mut sizes = Vec::new();
    for (size, channel) in &channels {
        let channel = channel.as_ref().map_err(|error| error.to_string())?;
        let inside = Inside::of(channel);
        // In an order that a cache does not guess: 7,919 is prime.
        let paths: Vec<_> = (0..*size).map(|n| path(n * 7_919 % size)).collect();
        let run = move |times| {
            for path in paths.iter().cycle().take(times) {
                black_box(inside.find(path));
            }
        };
        sizes.push(Size {
            size: *size,
            run: Box::new(run),
        });
    }
    Ok(compare("look-up of a method", LOOK_UPS, sizes))
}

/// The memory of a method.
pub(crate) fn memory() -> Outcome<Vec<Row>> {
    let mut rows = Vec::new();
    for size in [100, 1_000, 10_000] {
        let before = bytes();
        let channel = channel(size, Vec::new())?;
        let each = (bytes() - before) / size as f64;
        rows.push(Row::bytes("method, before its first call", size, each));
        drop(channel);
    }
    rows.extend(runtime()?.block_on(learning())?);
    Ok(rows)
}

async fn learning() -> Outcome<Vec<Row>> {
    let piped = service::piped().await?;
    let before = bytes();
    let mut channel = channel(CALLED, vec![EndpointSpec::channel("in process", piped)])?;
    // Not by the first of the methods, whose memory is still to be measured.
    for _ in 0..CALLS {
        service::call(&mut channel, "/bench.Nobody/Knows").await?;
    }
    let row = |name, since: f64| Row::bytes(name, CALLED, (bytes() - since) / CALLED as f64);
    let mut rows = vec![];
    let built = bytes();
    rows.push(Row::bytes(
        "method, channel and all",
        CALLED,
        (built - before) / CALLED as f64,
    ));
    for _ in 0..CALLS {
        for method in 0..CALLED {
            service::call(&mut channel, &path(method)).await?;
        }
    }
    rows.push(row("method, what real calls add", built));

    // Learnt, not waited for: CALLED times 6,000 calls of up to a second.
    let inside = Inside::of(&channel);
    let place = inside.original(Duration::ZERO).ok_or("no endpoint")?;
    let mut random = fastrand::Rng::with_seed(1);
    let since = bytes();
    let mut latency = || Duration::from_secs_f64(1e-3 * 1e3_f64.powf(random.f64()));
    let later = Duration::from_secs(3_600);
    for method in 0..CALLED {
        for call in 0..LEARNT {
            let now = later + WINDOW * call / LEARNT;
            inside.answered(&path(method), now, &place, latency());
        }
    }
    rows.push(row("method, what latencies from 1 ms to 1 s add", since));
    for method in 0..CALLED {
        for call in 0..LEARNT / 20 {
            let now = later + WINDOW * call / (LEARNT / 20);
            inside.beaten(&path(method), now, &place, latency());
        }
    }
    rows.push(row("method, and hedges that win from 1 ms to 1 s", since));
    rows.push(row("method, in all", before));
    Ok(rows)
}

/// A channel with so many methods, all of which are hedged, and these endpoints.
fn channel(methods: usize, endpoints: Vec<EndpointSpec>) -> Outcome<HedgedChannel> {
    let changes = endpoints
        .into_iter()
        .enumerate()
        .map(|(key, spec)| Ok::<_, io::Error>(Change::Insert(key, spec)));
    let mut builder = HedgedChannel::builder()
        .discover(tokio_stream::iter(changes.collect::<Vec<_>>()))
        .hedge(Hedge::at(0.95));
    for method in 0..methods {
        let policy = MethodPolicy::new().idempotent(true);
        builder = builder.method(path(method), policy);
    }
    Ok(builder.build()?)
}

/// Names as long as they usually are.
fn path(method: usize) -> String {
    let (service, method) = (method / 20, method % 20);
    format!("/acme.inventory.v1.Service{service}/ListThings{method}")
}
