//! Which policy to take, what it brings and costs; or that hedging does nothing here.

use crate::{
    latencies::Latencies,
    outcome::Outcome,
    policy::{Policy, Timing},
    units::{count, ms, percent, pth},
};

/// What is asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    pub(crate) load: f64,
    pub(crate) quantile: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Hedge,
    /// It brings something, for a price that is worth a thought.
    Little,
    Nothing,
}

pub(crate) struct Advice {
    pub(crate) verdict: Verdict,
    /// Which of the outcomes: the first, no hedging, where that does nothing.
    pub(crate) chosen: usize,
    /// A paragraph each.
    pub(crate) text: Vec<String>,
}

/// A replay's load varies by that, as a share of it; `Hedge::within` may too.
const SLACK: f64 = 0.03;

/// Among what comes so near to the best, the simplest is taken.
const AS_GOOD: f64 = 1.03;

/// A gain below that, as a share, is what the same service differs by from one minute to the next.
const NOTHING: f64 = 0.02;

/// Up to that it is called little.
const LITTLE: f64 = 0.1;

/// What a budget without settings allows (`BudgetPolicy::ratio`), retries included.
const USUAL_BUDGET: f64 = 0.2;

/// Values beyond the quantile that make a number of it.
const BEYOND: f64 = 10.0;

impl Verdict {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Hedge => "hedge",
            Self::Little => "little",
            Self::Nothing => "nothing",
        }
    }
}

impl Advice {
    /// Of outcomes whose first is that of no hedging.
    pub(crate) fn new(asked: Asked, latencies: &Latencies, outcomes: &[Outcome]) -> Self {
        let without = outcomes[0].score(asked.quantile);
        let best = choose(asked, outcomes);
        let gain = 1.0 - outcomes[best].score(asked.quantile) / without;
        let verdict = match gain {
            _ if gain < NOTHING => Verdict::Nothing,
            _ if gain < LITTLE => Verdict::Little,
            _ => Verdict::Hedge,
        };
        let chosen = match verdict {
            Verdict::Nothing => 0,
            _ => best,
        };
        let mut text = match verdict {
            Verdict::Nothing => vec![nothing(asked, &outcomes[0])],
            _ => take(asked, &outcomes[0], &outcomes[chosen], verdict),
        };
        text.extend(edge(asked, outcomes, chosen).filter(|_| chosen > 0));
        text.extend(more(asked, outcomes, chosen));
        text.extend(cautions(asked, latencies, verdict));
        Self {
            verdict,
            chosen,
            text,
        }
    }
}

/// The best that the load pays for: the simplest of those that come near it.
fn choose(asked: Asked, outcomes: &[Outcome]) -> usize {
    let score = |index: usize| outcomes[index].score(asked.quantile);
    let paid = |index: &usize| outcomes[*index].extra_load <= asked.load * (1.0 + SLACK);
    let paid: Vec<_> = (0..outcomes.len()).filter(paid).collect();
    let best = paid
        .iter()
        .map(|index| score(*index))
        .fold(f64::INFINITY, f64::min);
    let near = paid
        .into_iter()
        .filter(|index| score(*index) <= best * AS_GOOD);
    let simplest = near.min_by(|a, b| {
        let cost = |index: &usize| (kind(&outcomes[*index].policy), outcomes[*index].extra_load);
        let ((kind, load), (other, its_load)) = (cost(a), cost(b));
        kind.cmp(&other).then(load.total_cmp(&its_load))
    });
    simplest.unwrap_or(0)
}

/// What follows the service goes before what ages; two attempts go before three.
fn kind(policy: &Policy) -> (u32, u32) {
    let timing = match policy.timing {
        Timing::Never => return (0, 0),
        Timing::Within { .. } => 1,
        Timing::At(_) => 2,
        Timing::After(_) => 3,
    };
    (policy.attempts, timing)
}

fn nothing(asked: Asked, without: &Outcome) -> String {
    format!(
        "Don't hedge: it does nothing here. Whatever the policy, the {} stays at {} for {} more calls. \
         What is slow is hardly slower than the rest: a second copy that starts when a call is late \
         comes too late itself. Hedging would only add load, and near its capacity that makes all \
         calls slower.",
        pth(asked.quantile),
        ms(without.quantile(asked.quantile)),
        percent(asked.load),
    )
}

fn take(asked: Asked, without: &Outcome, with: &Outcome, verdict: Verdict) -> Vec<String> {
    let target = pth(asked.quantile);
    let (before, after) = (
        without.quantile(asked.quantile),
        with.quantile(asked.quantile),
    );
    let mut text = vec![format!("Write {}", with.policy.rust())];
    let delay = with.delay.map_or_else(String::new, |delay| {
        format!(
            "A call that takes longer than about {} is sent again. ",
            ms(delay)
        )
    });
    let change = after.as_secs_f64() / before.as_secs_f64() - 1.0;
    text.push(format!(
        "{delay}The {target} goes from {} to {} ({:+.0} %), for {} more calls; {} of the hedges win.",
        ms(before),
        ms(after),
        100.0 * change,
        percent(with.extra_load),
        percent(with.wins.unwrap_or_default()),
    ));
    if verdict == Verdict::Little {
        text.push(
            "That is little: near its capacity the service may lose more by the added load."
                .to_owned(),
        );
    }
    if asked.load > USUAL_BUDGET {
        text.push(format!(
            "The channel's budget allows {} by default, retries included; for more write \
             .budget(BudgetPolicy::default().ratio({})) as well.",
            percent(USUAL_BUDGET),
            (1e3 * (asked.load + USUAL_BUDGET)).round() / 1e3,
        ));
    }
    text
}

/// Where the target falls on one side of an edge or the other by chance: with the chosen policy, or
/// with two attempts if it has three because of that.
fn edge(asked: Asked, outcomes: &[Outcome], chosen: usize) -> Option<String> {
    let target = pth(asked.quantile);
    let policy = &outcomes[chosen].policy;
    let same = |outcome: &&Outcome| kind(&outcome.policy) == (2, kind(policy).1);
    let nearest = |outcome: &Outcome| (outcome.extra_load - asked.load).abs();
    let (outcome, which, why) = match policy.attempts {
        2 => (&outcomes[chosen], "The", "chance, here and in production"),
        _ => {
            let paid = outcomes.iter().filter(same);
            let two = paid.min_by(|a, b| nearest(a).total_cmp(&nearest(b)))?;
            (
                two,
                "With two attempts the",
                "chance: hence the third attempt",
            )
        }
    };
    let [below, above] = outcome.edge(asked.quantile)?;
    Some(format!(
        "{which} {target} lies on an edge: {} is {}, {} is {}. Which side it falls on is {why}.",
        pth(below.0),
        ms(below.1),
        pth(above.0),
        ms(above.1),
    ))
}

/// What half of the chosen one's latency would cost, where that is to be had at all.
fn more(asked: Asked, outcomes: &[Outcome], chosen: usize) -> Option<String> {
    let score = |outcome: &Outcome| outcome.score(asked.quantile);
    let half = score(&outcomes[chosen]) / 2.0;
    let cheapest = outcomes
        .iter()
        .filter(|outcome| score(outcome) <= half)
        .min_by(|a, b| {
            let cost = |outcome: &Outcome| (outcome.extra_load * 1e3).round();
            cost(a)
                .total_cmp(&cost(b))
                .then(score(a).total_cmp(&score(b)))
        })?;
    Some(format!(
        "More load would bring more: with {} for {} more calls the {} is {}. Try --load {}.",
        cheapest.policy.name(),
        percent(cheapest.extra_load),
        pth(asked.quantile),
        ms(cheapest.quantile(asked.quantile)),
        (cheapest.extra_load * 100.0).ceil() / 100.0,
    ))
}

fn cautions(asked: Asked, latencies: &Latencies, verdict: Verdict) -> Vec<String> {
    let mut text = Vec::new();
    let beyond = latencies.count() as f64 * (1.0 - asked.quantile);
    if beyond < BEYOND {
        text.push(format!(
            "Too few values to trust this: {} of {} lie beyond the {}. Record {} or more.",
            beyond.round(),
            count(latencies.count()),
            pth(asked.quantile),
            count((BEYOND / (1.0 - asked.quantile)).round() as u64),
        ));
    }
    if let Some(times) = latencies.clumping() {
        text.push(format!(
            "The slow ones are not independent: after a slow call the next one is {times:.1} times as \
             likely to be slow as any. Then a hedge meets what its original met, and brings less than \
             this."
        ));
    }
    if verdict != Verdict::Nothing {
        text.push(
            "Recorded latencies are taken as independent: a hedge draws another one of them. Check that \
             slow calls are slow at one replica only (latency by endpoint at the same minute, and whether \
             the same request is slow twice), and that the method may run twice. If all replicas are slow \
             together, or the request itself is, hedging helps less or not at all."
                .to_owned(),
        );
    }
    text
}
