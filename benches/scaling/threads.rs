//! 1 to 8 threads on what all calls of a channel share.

use std::{hint::black_box, thread, time::Duration};

use tonic::transport::Endpoint;
use tonic_hedge::{BreakerPolicy, BudgetPolicy, EndpointSpec, HedgedChannel, bench::Inside};
use tonic_hedge_engine::{
    lane::{Lane, LaneOutcome, LanePolicy, TenantPolicy, Tenants},
    measure::{Admission, Breaker, Budget, LatencyEstimator, Ring},
};

use crate::{
    Outcome,
    report::Row,
    runtime,
    timing::{Size, compare},
};

const THREADS: [usize; 4] = [1, 2, 4, 8];

/// Operations in a round, of all threads together: a thread's start is nothing beside them.
const OPERATIONS: usize = 400_000;

const WINDOW: Duration = Duration::from_secs(30);

/// Between two operations of a thread.
const STEP: Duration = Duration::from_micros(20);

/// An operation, given the time and a number of its own.
type Operation<'a> = &'a (dyn Fn(Duration, usize) + Sync);

/// The CPU time of each operation.
pub(crate) fn times() -> Outcome<Vec<Row>> {
    let ring = Ring::new(0.95, WINDOW, 20);
    let latencies = latencies();
    let budget = Budget::new(&BudgetPolicy::default())?;
    let breaker = Breaker::new(&BreakerPolicy::default())?;
    let runtime = runtime()?;
    let _entered = runtime.enter();
    let specs = (0..3).map(|index| {
        let lazy = Endpoint::from_static("http://127.0.0.1:1").connect_lazy();
        EndpointSpec::channel(format!("endpoint {index}"), lazy)
    });
    let channel = HedgedChannel::builder().endpoints(specs).build()?;
    let inside = Inside::of(&channel);

    let wide = LanePolicy::default().minimum(1_000).maximum(1_000);
    let lane = Lane::new(&wide)?;
    let tenants = Tenants::new(&TenantPolicy::default(), [Lane::new(&wide)?])?;
    let names: Vec<_> = (0..1_000).map(|n| format!("tenant {n}")).collect();

    let operations: [(&'static str, Operation<'_>); 9] = [
        ("record of a latency", &|now, n| {
            ring.record(now, latencies[n % latencies.len()]);
        }),
        ("record of a cut", &|now, n| {
            ring.record_cut(now, latencies[n % latencies.len()]);
        }),
        ("threshold", &|now, _| {
            black_box(ring.threshold(now));
        }),
        ("pick of 3 endpoints", &|now, _| {
            black_box(inside.choice(now));
        }),
        ("budget: deposit, withdraw", &|now, _| {
            budget.deposit(now);
            black_box(budget.try_withdraw(now));
        }),
        ("breaker: admit, record", &|now, _| {
            if let Admission::Closed = breaker.admit(now) {
                breaker.record(now, false);
            }
        }),
        ("lane: admission", &|now, _| {
            drop(black_box(lane.try_admit(now)));
        }),
        ("lane: admission and end", &|now, _| {
            if let Some(permit) = lane.try_admit(now) {
                permit.finish(now, LaneOutcome::Answered);
            }
        }),
        ("lane: admission of 1,000 tenants", &|now, n| {
            let tenant = &names[n % names.len()];
            drop(black_box(tenants.try_admit(now, Some(tenant), 0)));
        }),
    ];
    let mut rows = Vec::new();
    for (name, operation) in operations {
        let sizes = THREADS.map(|threads| Size {
            size: threads,
            run: Box::new(move |times| together(threads, times, operation)),
        });
        rows.extend(compare(name, OPERATIONS, sizes.into()));
    }
    Ok(rows)
}

fn together(threads: usize, times: usize, operation: Operation<'_>) {
    thread::scope(|scope| {
        for thread in 0..threads {
            scope.spawn(move || {
                let mut now = Duration::from_secs(3_600);
                for n in 0..times / threads {
                    now += STEP;
                    operation(black_box(now), thread * 1_000 + n);
                }
            });
        }
    });
}

/// Log-normal with a median of 5 ms.
fn latencies() -> Vec<Duration> {
    let mut random = fastrand::Rng::with_seed(1);
    let mut normal = || {
        let (u, v) = (1.0 - random.f64(), random.f64());
        (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
    };
    let latency = |normal: f64| Duration::from_secs_f64(5e-3 * (0.5 * normal).exp());
    (0..10_000).map(|_| latency(normal())).collect()
}
