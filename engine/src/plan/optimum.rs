//! The best delay and probability of one hedge for a share of load: the search, without state.
//!
//! The family of policies is that of "Optimal Reissue Policies for Reducing Tail Latency" (Kaler,
//! He, Elnikety, SPAA 2017): a hedge starts at a delay `d` with a probability `p`. Of originals the
//! share `S(t)` outlasts `t`, of hedges the share `H(t)`, both of calls whose original outran `d`:
//!
//! - the plan costs `p S(d)` hedges for each call,
//! - a call outlasts `t` with `S(t)` up to `d`, and with `S(t) (1 - p + p H(t - d))` beyond it.

use crate::measure::Survival;

/// The tail is looked at in several places around the target. Where slow calls are so many that
/// two in a row are just the target's share, the quantile itself jumps between the fast and the
/// slow, and says nothing of one plan beside the next.
const TAILS: [f64; 5] = [1.3, 1.15, 1.0, 0.85, 0.7];

/// Coarse steps of the search in an octave of delays, and fine ones around the best of those.
const COARSE: f64 = 8.0;
const FINE: f64 = 64.0;

/// Plans this close are the same: the estimate knows no better.
const SAME: f64 = 0.01;

/// How much better another plan must be than the one in force. More than [`SAME`], so that two that
/// take turns as the best by a hair do not take turns in force.
const BETTER: f64 = 0.02;

/// How far the load of a plan in force may stray over the limit: the share holds back what is over
/// it.
const STRAY: f64 = 1.05;

/// When to hedge, and how often.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Plan {
    /// In microseconds.
    pub(super) delay: u32,
    pub(super) probability: f64,
}

/// What a plan comes to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Outlook {
    pub(super) plan: Plan,
    /// The mean logarithm of the tail's times in microseconds.
    pub(super) score: f64,
    /// Hedges for each call.
    pub(super) load: f64,
}

/// What a plan is made for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms<'a> {
    pub(super) originals: &'a Survival,
    pub(super) hedges: &'a Survival,
    /// 1 - the target quantile.
    pub(super) tail: f64,
    /// The most hedges for each call.
    pub(super) load: f64,
    /// How many hedges the share saves up.
    pub(super) capacity: f64,
    /// How much the logarithm of all times grows with a hedge for each call.
    pub(super) drag: f64,
    /// The bounds of the delay, in microseconds.
    pub(super) earliest: u32,
    pub(super) latest: u32,
}

/// The search for a plan.
#[derive(Debug)]
pub(super) struct Search<'a> {
    terms: Terms<'a>,
    /// The times of the [`TAILS`] without hedges.
    alone: [f64; TAILS.len()],
}

impl<'a> Search<'a> {
    pub(super) fn new(terms: Terms<'a>) -> Self {
        Self {
            alone: TAILS.map(|it| terms.alone(it * terms.tail)),
            terms,
        }
    }

    /// The plan to follow, given the one in force. `None` if no hedge can be in time.
    pub(super) fn choose(&self, in_force: Option<Plan>) -> Option<Outlook> {
        let (best, seen) = self.search(in_force)?;
        if let Some(plan) = in_force.filter(|it| self.allows(it.delay)) {
            let outlook = self.outlook(plan);
            if outlook.score <= best + BETTER && outlook.load <= self.terms.load * STRAY {
                return Some(outlook);
            }
        }
        seen.into_iter()
            .filter(|it| it.score <= best + SAME)
            .min_by(|a, b| a.load.total_cmp(&b.load))
    }

    /// A plan that explores with about this load, at the delay where all of the load would go; the one
    /// in force if it does.
    pub(super) fn rest(&self, load: f64, in_force: Option<Plan>) -> Outlook {
        let terms = &self.terms;
        let fits = |it: &Outlook| (load / STRAY..=load * STRAY).contains(&it.load);
        let stays = in_force
            .filter(|it| self.allows(it.delay) && it.probability < 1.0)
            .map(|it| self.outlook(it))
            .filter(fits);
        stays.unwrap_or_else(|| {
            let delay = terms.alone(terms.load) as u32;
            let delay = delay.clamp(terms.earliest, terms.latest);
            let outrun = terms.originals.outlasting(delay);
            let probability = (load / outrun.max(load)).min(1.0);
            self.outlook(Plan { delay, probability })
        })
    }

    /// The mean logarithm of the tail's times without hedges.
    pub(super) fn unhedged(&self) -> f64 {
        self.alone.iter().product::<f64>().ln() / TAILS.len() as f64
    }

    /// The time that the share `tail` of calls outlasts under a plan, in microseconds.
    pub(super) fn time(&self, plan: Plan, tail: f64) -> f64 {
        let admitted = self.terms.admitted(plan);
        let alone = self.terms.alone(tail);
        self.terms.hedged(plan, admitted, tail, plan.delay, alone)
    }

    /// The best score, and all plans that were looked at.
    fn search(&self, in_force: Option<Plan>) -> Option<(f64, Vec<Outlook>)> {
        let terms = &self.terms;
        let latest = (self.alone[TAILS.len() - 1] as u32).min(terms.latest);
        if latest <= terms.earliest {
            return None;
        }
        let look = |delay: f64| self.outlook(terms.plan(delay as u32));
        let range = f64::from(terms.earliest)..f64::from(latest);
        let mut seen: Vec<_> = steps(range.clone(), COARSE).map(look).collect();
        // Where the whole load is spent without a choice among calls: the live quantile's delay.
        let all = terms.alone(terms.load).clamp(range.start, range.end);
        seen.push(look(all));
        seen.extend(
            in_force
                .filter(|it| self.allows(it.delay))
                .map(|it| look(it.delay.into())),
        );
        let best = lowest(&seen)?.plan.delay;
        let around =
            f64::from(best) / (1.0 / COARSE).exp2()..f64::from(best) * (1.0 / COARSE).exp2();
        let around = around.start.max(range.start)..around.end.min(range.end);
        seen.extend(steps(around, FINE).map(look));
        let best = lowest(&seen)?.score;
        Some((best, seen))
    }

    fn allows(&self, delay: u32) -> bool {
        (self.terms.earliest..=self.terms.latest).contains(&delay)
    }

    fn outlook(&self, plan: Plan) -> Outlook {
        let terms = &self.terms;
        let admitted = terms.admitted(plan);
        let mut from = plan.delay;
        let mut product = 1.0;
        for (tail, alone) in TAILS.into_iter().zip(self.alone) {
            let time = terms.hedged(plan, admitted, tail * terms.tail, from, alone);
            from = from.max(time as u32);
            product *= time;
        }
        let load = plan.probability * terms.originals.outlasting(plan.delay);
        Outlook {
            plan,
            score: product.ln() / TAILS.len() as f64 + terms.drag * load,
            load,
        }
    }
}

impl Terms<'_> {
    /// As often as the load allows at a delay.
    fn plan(&self, delay: u32) -> Plan {
        let outrun = self.originals.outlasting(delay);
        let probability = if outrun > self.load {
            self.load / outrun
        } else {
            1.0
        };
        Plan { delay, probability }
    }

    /// The part of calls beyond the delay that are hedged in the end: `p`, without those that meet an
    /// empty purse.
    ///
    /// The purse's balance is a random walk between 0 and its capacity `C`: each call pays `load` in,
    /// and with the plan's chance takes one out. As a diffusion with drift `m` and variance `s`
    /// it is empty so often that `m / (exp(2 m C / s) - 1)` of a hedge is missed for each call; half
    /// of `s / C` where plan and load are equal.
    fn admitted(&self, plan: Plan) -> f64 {
        let asks = plan.probability * self.originals.outlasting(plan.delay);
        if asks <= 0.0 {
            return plan.probability;
        }
        let drift = self.load - asks;
        let variance = asks * (1.0 - asks).max(0.0);
        let steep = 2.0 * drift * self.capacity / variance.max(f64::MIN_POSITIVE);
        let missed = if steep.abs() < 1e-6 {
            variance / (2.0 * self.capacity)
        } else {
            drift / steep.exp_m1()
        };
        plan.probability * (1.0 - missed / asks).clamp(0.0, 1.0)
    }

    /// The time that the share `tail` of originals outlasts; at least 1.
    fn alone(&self, tail: f64) -> f64 {
        let time = self.originals.time(tail);
        time.map_or(f64::from(u32::MAX), |it| it.as_micros() as f64)
            .max(1.0)
    }

    /// The time, not before `from`, that the share `tail` of calls outlasts.
    /// `alone` is the time without hedges.
    fn hedged(&self, plan: Plan, admitted: f64, tail: f64, from: u32, alone: f64) -> f64 {
        let mut high = alone as u32;
        if high <= plan.delay {
            return alone;
        }
        let mut low = from;
        let shares = |time: u32| {
            let hedge = self.hedges.outlasting(time - plan.delay);
            self.originals.outlasting(time) * (1.0 - admitted + admitted * hedge)
        };
        let (mut above, mut below) = (1.0, 0.0);
        // To a percent, and between its ends as if the shares fell evenly.
        while high.saturating_sub(low) > 1 + high / 128 {
            let middle = low + (high - low) / 2;
            let share = shares(middle);
            if share > tail {
                (low, above) = (middle, share);
            } else {
                (high, below) = (middle, share);
            }
        }
        if below == 0.0 || above == 1.0 {
            return f64::from(high);
        }
        let place = (above - tail) / (above - below);
        f64::from(low) + place * f64::from(high - low)
    }
}

fn lowest(seen: &[Outlook]) -> Option<&Outlook> {
    seen.iter().min_by(|a, b| a.score.total_cmp(&b.score))
}

fn steps(range: std::ops::Range<f64>, octave: f64) -> impl Iterator<Item = f64> {
    let factor = (1.0 / octave).exp2();
    std::iter::successors(Some(range.start), move |it| Some(it * factor))
        .take_while(move |&it| it < range.end)
}

#[cfg(test)]
mod tests;
