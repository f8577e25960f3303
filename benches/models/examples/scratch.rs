use std::time::Duration;
use tonic_hedge_engine::{plan::PlanState, policy::Hedge};
use tonic_hedge_models::{Fate, History, Latency, Model, QueueModel, World};

fn q(h: &History, q: f64) -> f64 {
    let fates = h.between(h.warm_up, Duration::MAX);
    let mut t: Vec<_> = fates
        .iter()
        .filter(|f| f.is_answered())
        .map(|f| f.took.as_secs_f64() * 1e3)
        .collect();
    t.sort_by(f64::total_cmp);
    t[((q * t.len() as f64).ceil() as usize).saturating_sub(1)]
}
fn med(v: &mut Vec<f64>) -> f64 {
    v.sort_by(f64::total_cmp);
    v[v.len() / 2]
}
fn worst(h: &History, load: f64) -> f64 {
    // sliding windows of 30s
    let f: &[Fate] = &h.fates;
    let mut w: f64 = 0.0;
    let mut lo = 0;
    let mut hedges = 0;
    for i in 0..f.len() {
        hedges += f[i].hedges();
        while f[i].arrived - f[lo].arrived > Duration::from_secs(30) {
            hedges -= f[lo].hedges();
            lo += 1;
        }
        if f[i].arrived > Duration::from_secs(30) {
            w = w.max(hedges as f64 / (i - lo + 1) as f64 / load);
        }
    }
    w
}
fn main() {
    let args: Vec<String> = std::env::args().collect();
    let load: f64 = args[1].parse().unwrap();
    let tq: f64 = args[2].parse().unwrap();
    let seeds: u64 = args[3].parse().unwrap();
    let only = args.get(4).cloned().unwrap_or_default();
    let calls: usize = args.get(5).map_or(20_000, |it| it.parse().unwrap());
    let mut models: Vec<(String, Model, f64)> = Model::ALL
        .iter()
        .map(|m| (m.name().to_string(), m.clone(), m.usual_rate()))
        .collect();
    models.push((
        "queue95".into(),
        Model::Queue(QueueModel::USUAL),
        0.95 * QueueModel::USUAL.capacity(),
    ));
    for s in [0.01, 0.02, 0.05, 0.095, 0.105, 0.2] {
        models.push((
            format!("bimodal{s}"),
            Model::Independent(Latency::Bimodal { slow: s }),
            200.0,
        ));
    }
    for waiting in [8usize, 100] {
        for (n, work) in [
            ("e", Latency::Exponential),
            ("b", Latency::BIMODAL),
            ("p", Latency::Pareto),
            ("u", Latency::Uniform),
        ] {
            for u in [0.8, 0.9, 0.95] {
                let m = QueueModel {
                    waiting,
                    work,
                    ..QueueModel::USUAL
                };
                models.push((
                    format!("q{n}{waiting}u{u}"),
                    Model::Queue(m),
                    u * m.capacity(),
                ));
            }
        }
    }
    println!(
        "{:14} {:>8} {:>8} {:>8} | ratio med [min max] | load none/at/within  goodput n/a/w | worst window/load | changes, state",
        "model", "none", "at", "within"
    );
    for (name, model, rate) in models {
        if !only.is_empty()
            && !only
                .split(',')
                .any(|o| o == name || o.ends_with('*') && name.starts_with(&o[..o.len() - 1]))
        {
            continue;
        }
        let mut r = vec![];
        let mut dr: Vec<f64> = vec![];
        let (mut a, mut b, mut c) = (vec![], vec![], vec![]);
        let mut ld = [0.0; 2];
        let mut gp = [0.0; 3];
        let mut ww: f64 = 0.0;
        let mut ch = 0;
        let mut st = [0; 3];
        let mut last = String::new();
        for seed in std::env::var("SEED").map_or(1, |it| it.parse().unwrap())..=seeds {
            let w = World {
                rate,
                seed,
                calls,
                ..World::new(model.clone())
            };
            let none = w.clone().run();
            let at = World {
                hedge: Some(Hedge::at(1.0 - load)),
                ..w.clone()
            }
            .run();
            let within = World {
                hedge: Some(Hedge::within(load).target_quantile(tq)),
                ..w.clone()
            }
            .run();
            a.push(q(&none, tq));
            b.push(q(&at, tq));
            c.push(q(&within, tq));
            r.push(q(&within, tq) / q(&at, tq));
            ld[0] += at.summary().extra_load;
            ld[1] += within.summary().extra_load;
            for (i, h) in [&none, &at, &within].into_iter().enumerate() {
                gp[i] += h.summary().goodput;
            }
            ww = ww.max(worst(&within, load));
            let mut prev = None;
            for (t, p) in &within.plans {
                let now = (p.state, p.delay, p.probability.to_bits());
                if *t > Duration::from_secs(30) {
                    st[match p.state {
                        PlanState::Learning => 0,
                        PlanState::Planned => 1,
                        _ => 2,
                    }] += 1;
                    if prev.is_some_and(|it| it != now) {
                        ch += 1;
                    }
                }
                prev = Some(now);
            }
            let p = &within.plans[within.plans.len() * 9 / 10].1;
            last = format!(
                "b {:.2} {:?} p={:.2} exp {:?} unh {:?} l {:.3} got {:?} {:.3}",
                p.drag,
                p.delay,
                p.probability,
                p.expected,
                p.unhedged,
                p.expected_load.unwrap_or(0.0),
                p.got,
                p.got_load.unwrap_or(0.0)
            );
            if std::env::var("TRACE").is_ok() {
                for (t, p) in within.plans.iter().step_by(8) {
                    println!(
                        "   {:6.1} {:?} {:?} p={:.2} exp {:?} unh {:?} l {:.3} got {:?} {:.3} bal {:.2}",
                        t.as_secs_f64(),
                        p.state,
                        p.delay,
                        p.probability,
                        p.expected,
                        p.unhedged,
                        p.expected_load.unwrap_or(0.0),
                        p.got,
                        p.got_load.unwrap_or(0.0),
                        p.balance
                    );
                }
            }
        }
        let n = seeds as f64;
        let tot: usize = st.iter().sum();
        println!(
            "{:14} {:8.1} {:8.1} {:8.1} | {:.3} [{:.3} {:.3}] | {:.4} {:.4} | {:.4} {:.4} {:.4} | {:.2} | {:.1} L{:.2} P{:.2} R{:.2} | b {:.2} {:.2} | {last}",
            name,
            med(&mut a),
            med(&mut b),
            med(&mut c),
            med(&mut r),
            r[0],
            r[r.len() - 1],
            ld[0] / n,
            ld[1] / n,
            gp[0] / n,
            gp[1] / n,
            gp[2] / n,
            ww,
            ch as f64 / n,
            st[0] as f64 / tot as f64,
            st[1] as f64 / tot as f64,
            st[2] as f64 / tot as f64,
            dr.iter().sum::<f64>() / dr.len() as f64,
            dr.iter().fold(0.0_f64, |a, b| a.max(*b))
        );
    }
}
