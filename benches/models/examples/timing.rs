use std::time::{Duration, Instant};
use tonic_hedge_engine::{
    measure::{LatencyEstimator, Ring},
    plan::Planner,
    policy::Hedge,
};
use tonic_hedge_models::{Draws, Latency, Purpose};
fn main() {
    for lat in [
        Latency::Uniform,
        Latency::LogNormal,
        Latency::BIMODAL,
        Latency::Pareto,
    ] {
        for load in [0.01, 0.05, 0.12, 0.5] {
            let hedge = Hedge::within(load);
            let ring = Ring::new(1.0 - load, hedge.window, 20);
            let p = Planner::new(&hedge).unwrap();
            let d = Draws::new(1);
            for i in 0..60000u64 {
                let t = Duration::from_micros(500 * i);
                p.started();
                let l = lat.draw(&mut d.of(Purpose::Work, i, 0));
                if l > Duration::from_millis(200) && i % 3 != 0 {
                    ring.record_cut(t, l / 2)
                } else {
                    ring.record(t, l)
                }
                p.call_ended(t, l);
                if i % 11 == 0 {
                    p.hedge_ended(lat.draw(&mut d.of(Purpose::Work, i, 1)))
                }
                if i % 37 == 0 {
                    p.hedge_cut(l / 3)
                }
            }
            let mut best = f64::MAX;
            let mut sum = 0.0;
            let n = 300;
            let base = Duration::from_secs(30);
            let mut s = f64::MAX;
            for k in 0..n {
                let now = base + Duration::from_millis(1000 + k);
                let a = Instant::now();
                let v = ring.survival(now);
                s = s.min(a.elapsed().as_secs_f64() * 1e6);
                std::hint::black_box(v);
            }
            for k in 0..n {
                // force: fresh planner state by 1 s steps within slots
                let now = Duration::from_secs(31 + k);
                ring.record(
                    now,
                    lat.draw(&mut d.of(Purpose::Work, 1 << 40 | k as u64, 0)),
                );
                if k > 25 {
                    break;
                }
                let a = Instant::now();
                p.replan(now, &ring);
                let e = a.elapsed().as_secs_f64() * 1e6;
                best = best.min(e);
                sum += e;
            }
            println!(
                "{lat:?} {load}: min {best:.1} us mean {:.1} us, survival {s:.1} us; {:?} mem {}",
                sum / 26.0,
                p.delay(),
                p.memory()
            );
        }
    }
}
