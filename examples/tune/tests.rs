//! Recorded latencies of several kinds, from the file to the advice and its pictures.

use std::time::Duration;

use fastrand::Rng;
use serde_json::Value;

use crate::{
    advice::{Advice, Asked, Verdict},
    args, chart,
    latencies::Latencies,
    outcome::Outcome,
    policy::{Policy, Timing},
    read::{Recorded, Source, Unit},
    replay::Replay,
    report::Report,
};

/// Of the square of calls: enough for a p99, few enough for a debug build.
const SIDE: u32 = 80;

/// All that a run comes to.
struct Run {
    source: Source,
    recorded: Recorded,
    asked: Asked,
    outcomes: Vec<Outcome>,
    advice: Advice,
}

impl Run {
    /// Of all policies.
    fn new(asked: Asked, values: &[Duration]) -> Self {
        Self::with(asked, values, |_| true)
    }

    /// Of some policies, to be quick. No hedging must be one.
    fn with(asked: Asked, values: &[Duration], wanted: impl Fn(&Policy) -> bool) -> Self {
        let mut latencies = Latencies::new().unwrap();
        for value in values {
            latencies.add(*value);
        }
        let mut policies = Policy::all(&latencies, asked.load, asked.quantile);
        policies.retain(wanted);
        let outcomes = Replay::of_side(SIDE, latencies.values()).run(&policies);
        Self {
            source: Source {
                file: "some/where <&>.csv".to_owned(),
                column: None,
                unit: None,
            },
            asked,
            advice: Advice::new(asked, &latencies, &outcomes),
            recorded: Recorded {
                latencies,
                format: "one latency a line".to_owned(),
                unit: Unit::Ms,
            },
            outcomes,
        }
    }

    fn report(&self) -> Report<'_> {
        Report {
            source: &self.source,
            recorded: &self.recorded,
            asked: self.asked,
            calls: (SIDE * SIDE) as usize,
            outcomes: &self.outcomes,
            advice: &self.advice,
        }
    }

    fn chosen(&self) -> &Outcome {
        &self.outcomes[self.advice.chosen]
    }
}

fn values(count: usize, mut draw: impl FnMut(&mut Rng, usize) -> f64) -> Vec<Duration> {
    let mut rng = Rng::with_seed(7);
    let values = (0..count).map(|number| draw(&mut rng, number));
    values.map(|ms| Duration::from_secs_f64(ms / 1e3)).collect()
}

/// Nine in ten from 20 to 44 ms, one in ten from 250 to 580 ms, in some order.
fn bimodal(count: usize) -> Vec<Duration> {
    let mut values = values(count, |rng, number| match number % 10 {
        0 => 250.0 + 330.0 * rng.f64(),
        _ => 20.0 + 24.0 * rng.f64(),
    });
    Rng::with_seed(7).shuffle(&mut values);
    values
}

/// A few policies: what a user would try.
fn is_usual(policy: &Policy) -> bool {
    match policy.timing {
        Timing::Never | Timing::Within { .. } => true,
        Timing::At(quantile) => [0.85, 0.95].contains(&quantile),
        Timing::After(_) => false,
    }
}

fn asked(load: f64) -> Asked {
    Asked {
        load,
        quantile: 0.99,
    }
}

fn in_ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

#[test]
fn a_tail_that_the_load_pays_for_is_hedged() {
    let run = Run::new(asked(0.12), &bimodal(2_000));
    assert_eq!(run.advice.verdict, Verdict::Hedge);
    let chosen = run.chosen();
    let delay = in_ms(chosen.delay.unwrap());
    assert!((41.0..=50.0).contains(&delay), "{delay}");
    let p99 = in_ms(chosen.quantile(0.99));
    assert!(p99 < 100.0, "{p99}");
    assert!(chosen.extra_load <= 0.12 * 1.03, "{}", chosen.extra_load);
    // It follows the service; and two slow ones in a row are one call in a hundred, so there is a third.
    assert!(!matches!(chosen.policy.timing, Timing::After(_)));
    assert_eq!(chosen.policy.attempts, 3);
    let text = run.advice.text.join("\n");
    assert!(
        text.contains("With two attempts the p99 lies on an edge"),
        "{text}"
    );
    assert!(text.contains("taken as independent"), "{text}");

    // Without hedging it is what was recorded.
    let mut recorded = bimodal(2_000);
    recorded.sort_unstable();
    let without = &run.outcomes[0];
    assert_eq!(without.policy, Policy::NONE);
    assert_eq!(without.extra_load, 0.0);
    for share in [0.5, 0.95, 0.99] {
        let index = (share * 2_000.0) as usize - 1;
        let off = in_ms(without.quantile(share)) / in_ms(recorded[index]) - 1.0;
        assert!(off.abs() < 0.01, "{share}: {off}");
    }
    // A live quantile costs what it says.
    for outcome in &run.outcomes {
        if let (Timing::At(quantile), 2) = (outcome.policy.timing, outcome.policy.attempts) {
            let off = outcome.extra_load - (1.0 - quantile);
            assert!(off.abs() < 0.02, "{quantile}: {}", outcome.extra_load);
        }
    }
    json_says_the_same(&run);
    chart_shows_it(&run);
}

fn json_says_the_same(run: &Run) {
    let json = run.report().json();
    let line = json.to_string();
    assert!(!line.contains('\n'));
    let json: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(json["values"], 2_000);
    assert_eq!(json["exact"], true);
    assert_eq!(json["unit"], "ms");
    assert_eq!(json["load"], 0.12);
    assert_eq!(json["target_quantile"], 0.99);
    assert_eq!(json["clumping"], Value::Null);
    let policies = json["policies"].as_array().unwrap();
    assert_eq!(policies.len(), run.outcomes.len());
    for policy in policies {
        for field in [
            "p50_ms",
            "p95_ms",
            "p99_ms",
            "p999_ms",
            "target_ms",
            "extra_load",
        ] {
            assert!(policy[field].as_f64().unwrap() >= 0.0, "{policy}");
        }
        assert!(policy["policy"].is_string() && policy["rust"].is_string());
    }
    assert_eq!(policies[0]["delay_ms"], Value::Null);
    assert_eq!(policies[0]["hedge_wins"], Value::Null);
    let advice = &json["advice"];
    assert_eq!(advice["verdict"], "hedge");
    let chosen = &policies[advice["chosen"].as_u64().unwrap() as usize];
    for field in ["rust", "delay_ms", "target_ms", "extra_load"] {
        assert_eq!(advice[field], chosen[field]);
    }
    assert_eq!(advice["unhedged_ms"], policies[0]["p99_ms"]);
    let text = run.report().text();
    assert!(text.contains(chosen["rust"].as_str().unwrap()), "{text}");
    assert!(text.lines().all(|line| line.len() <= 110), "{text}");
}

fn chart_shows_it(run: &Run) {
    let svg = chart::svg(&run.report());
    let document = roxmltree::Document::parse(&svg).unwrap();
    let has_class = |node: &roxmltree::Node<'_, '_>, class| node.attribute("class") == Some(class);
    let texts: Vec<_> = document
        .descendants()
        .filter(|node| node.has_tag_name("text"))
        .filter_map(|node| node.text())
        .collect();
    let number =
        |node: &roxmltree::Node<'_, '_>, name| node.attribute(name).unwrap().parse::<f64>();
    // Everything lies within the picture.
    for node in document.descendants() {
        for (name, end) in [("x", 760.0), ("cx", 760.0), ("x1", 760.0), ("x2", 760.0)] {
            let place = node.attribute(name).map(|_| number(&node, name).unwrap());
            assert!(place.is_none_or(|it| (0.0..=end).contains(&it)), "{node:?}");
        }
        for name in ["y", "cy", "y1", "y2"] {
            let place = node.attribute(name).map(|_| number(&node, name).unwrap());
            assert!(
                place.is_none_or(|it| (0.0..=440.0).contains(&it)),
                "{node:?}"
            );
        }
    }
    // The chosen point, and the one in the legend.
    let chosen = document
        .descendants()
        .filter(|node| has_class(node, "chosen"));
    assert_eq!(chosen.count(), 2);
    assert!(
        texts.contains(&run.chosen().policy.name().as_str()),
        "{texts:?}"
    );
    assert!(
        texts
            .iter()
            .any(|it| it.starts_with("p99 ") && it.ends_with(" more calls"))
    );
    assert!(
        texts.iter().any(|it| it.starts_with("no hedging: ")),
        "{texts:?}"
    );
    assert!(
        texts.contains(&"extra load, % of calls") && texts.contains(&"p99, ms"),
        "{texts:?}"
    );
    assert!(
        texts.contains(&"0") && texts.contains(&"10") && texts.contains(&"100"),
        "{texts:?}"
    );
    assert!(
        texts.iter().any(|it| it.starts_with("where <&>.csv: ")),
        "{texts:?}"
    );
}

/// A second copy that starts late comes too late: the least that it takes is half of the most.
#[test]
fn where_nothing_is_slow_hedging_does_nothing() {
    let uniform = values(2_000, |rng, _| 20.0 + 24.0 * rng.f64());
    let run = Run::with(asked(0.05), &uniform, is_usual);
    assert_eq!(run.advice.verdict, Verdict::Nothing);
    assert_eq!(run.advice.chosen, 0);
    assert_eq!(run.chosen().policy.rust(), "");
    let text = &run.advice.text;
    assert!(
        text[0].starts_with("Don't hedge: it does nothing here."),
        "{text:?}"
    );
    assert_eq!(text.len(), 1, "{text:?}");
    let json = run.report().json();
    assert_eq!(json["advice"]["delay_ms"], Value::Null);
    assert_eq!(json["advice"]["unhedged_ms"], json["advice"]["target_ms"]);
    roxmltree::Document::parse(&chart::svg(&run.report())).unwrap();

    let alike = Run::with(asked(0.05), &[Duration::from_millis(5); 500], is_usual);
    assert_eq!(alike.advice.verdict, Verdict::Nothing);
    roxmltree::Document::parse(&chart::svg(&alike.report())).unwrap();
}

/// One call in ten is slow: for 5 % its p99 hardly moves, and the advice says what would.
#[test]
fn what_more_load_would_bring_is_said() {
    let run = Run::with(asked(0.05), &bimodal(2_000), is_usual);
    let p99 = in_ms(run.chosen().quantile(0.99));
    assert!((300.0..500.0).contains(&p99), "{p99}");
    let text = run.advice.text.join("\n");
    assert!(text.contains("More load would bring more"), "{text}");
}

#[test]
fn too_few_values_are_not_trusted() {
    let run = Run::with(asked(0.12), &bimodal(100), is_usual);
    let text = run.advice.text.join("\n");
    assert!(
        text.contains(
            "Too few values to trust this: 1 of 100 lie beyond the p99. Record 1,000 or more."
        ),
        "{text}"
    );
}

/// The slow ones of the bimodal case all at once, as in a brownout.
#[test]
fn slow_calls_in_a_row_are_noticed() {
    let clumped = values(2_000, |rng, number| match number / 200 {
        4 => 250.0 + 330.0 * rng.f64(),
        _ => 20.0 + 24.0 * rng.f64(),
    });
    let mut latencies = Latencies::new().unwrap();
    clumped.iter().for_each(|value| latencies.add(*value));
    assert!(latencies.clumping().unwrap() > 5.0);

    let mut shuffled = Latencies::new().unwrap();
    bimodal(2_000).iter().for_each(|value| shuffled.add(*value));
    assert_eq!(shuffled.clumping(), None);
}

/// Of an RPC that takes less than the usual floor, the floor is what would decide.
#[test]
fn a_fast_rpc_has_a_lower_floor() {
    let mut latencies = Latencies::new().unwrap();
    for value in bimodal(2_000) {
        latencies.add(value / 10);
    }
    let policies = Policy::all(&latencies, 0.05, 0.999);
    let lines: Vec<_> = policies.iter().map(Policy::rust).collect();
    let has = |line: &str| lines.iter().any(|it| it == line);
    assert!(
        has(".hedge(Hedge::at(0.95).minimum_delay(Duration::from_millis(1)))"),
        "{lines:?}"
    );
    assert!(
        has(
            ".hedge(Hedge::within(0.05).target_quantile(0.999).minimum_delay(Duration::from_millis(1)))"
        ),
        "{lines:?}"
    );
    for policy in &policies {
        assert!(
            policy.hedge().is_none_or(|hedge| hedge.validate().is_ok()),
            "{policy:?}"
        );
    }
}

#[test]
fn arguments() {
    let parse = |line: &str| args::parse(line.split_whitespace().map(str::to_owned));
    let line = "f.csv --load 0.05 --quantile 0.999 --column 2 --unit us --chart o.svg --json";
    let expected = args::Options {
        source: Source {
            file: "f.csv".to_owned(),
            column: Some("2".to_owned()),
            unit: Some(Unit::Us),
        },
        load: 0.05,
        quantile: 0.999,
        chart: Some("o.svg".to_owned()),
        json: true,
    };
    assert_eq!(parse(line), Ok(args::Args::Run(expected)));
    assert_eq!(parse("f --help"), Ok(args::Args::Help));
    for (line, wrong) in [
        ("--load 0.05", "which file?"),
        ("f", "how much --load?"),
        ("f --load", "--load wants a value"),
        ("f --load 0", "--load: 0 is not in (0, 0.5]"),
        ("f --load 0.6", "--load: 0.6 is not in (0, 0.5]"),
        ("f --load NaN", "--load: NaN is not in (0, 0.5]"),
        ("f --load 5%", "--load: 5% is not in (0, 0.5]"),
        (
            "f --load 0.1 --quantile 1",
            "--quantile: 1 is not in [0.5, 1)",
        ),
        (
            "f --load 0.1 --unit h",
            "--unit: \"h\" is not one of ns, us, ms, s",
        ),
        ("f --load 0.1 --loud", "unknown argument: --loud"),
        ("f g --load 0.1", "one file at a time: g"),
    ] {
        assert_eq!(parse(line).unwrap_err(), wrong);
    }
}
