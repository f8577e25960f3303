//! What a replay comes to at one gateway.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tonic_hedge::{Measured, MethodMeasured};

use super::{
    caller::{Ended, Job, Session},
    drive::Saw,
    plan::Phase,
};
use crate::{api, quantile::quantile, tokens::Spent};

/// All of it.
#[derive(Clone, Debug)]
pub(crate) struct Figures {
    /// In the order of [`Phase::ALL`].
    phases: [(Interactive, Sent); 5],
    pub(crate) batch: Batch,
    pub(crate) tokens: Spent,
    /// Of the whole replay.
    pub(crate) sent: Sent,
}

/// Users' calls of one phase.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Interactive {
    pub(crate) sessions: u64,
    pub(crate) left: u64,
    pub(crate) shed: u64,
    pub(crate) failed: u64,
    codes: BTreeMap<String, u64>,
    /// In milliseconds, at p50 and p99, of calls that were answered.
    pub(crate) first_ms: [f64; 2],
    pub(crate) total_ms: [f64; 2],
}

/// Batch jobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Batch {
    pub(crate) jobs: u64,
    pub(crate) done: u64,
    /// Calls that were shed, and those of them that were told when to come again.
    pub(crate) sheds: u64,
    pub(crate) told_when: u64,
    /// Jobs that were shed at least once, and those of them that were done later.
    pub(crate) shed_jobs: u64,
    pub(crate) shed_jobs_done: u64,
}

/// What the channel sent to replicas.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sent {
    pub(crate) calls: u64,
    pub(crate) attempts: u64,
    pub(crate) retries: u64,
    pub(crate) hedges: u64,
    pub(crate) hedges_won: u64,
}

impl Figures {
    pub(crate) fn new(saw: &Saw, tokens: Spent, sent: Sent, by_phase: [Sent; 5]) -> Self {
        let of = |phase| saw.sessions.iter().filter(move |it| it.phase == phase);
        Self {
            phases: Phase::ALL.map(|it| (Interactive::of(of(it)), by_phase[it as usize])),
            batch: Batch::of(&saw.jobs),
            tokens,
            sent,
        }
    }

    /// Users' calls of a phase.
    pub(crate) fn interactive(&self, phase: Phase) -> &Interactive {
        &self.phases[phase as usize].0
    }

    /// What was sent in a phase, for whomever.
    pub(crate) fn sent_in(&self, phase: Phase) -> Sent {
        self.phases[phase as usize].1
    }

    /// The share of all tokens that losers of races wrote.
    pub(crate) fn lost_share(&self) -> f64 {
        share(self.tokens.lost, self.tokens.sent)
    }

    pub(crate) fn json(&self) -> Value {
        let phases = Phase::ALL.iter().zip(&self.phases);
        let phases: serde_json::Map<_, _> = phases
            .map(|(phase, (interactive, sent))| {
                let both = json!({"interactive": interactive.json(), "sent": sent.json()});
                (phase.key().to_owned(), both)
            })
            .collect();
        json!({
            "phases": phases,
            "batch": {
                "jobs": self.batch.jobs,
                "done": self.batch.done,
                "failed": self.batch.jobs - self.batch.done,
                "sheds": self.batch.sheds,
                "sheds_with_retry_time": self.batch.told_when,
                "shed_jobs": self.batch.shed_jobs,
                "shed_jobs_done_later": self.batch.shed_jobs_done,
            },
            "tokens": {
                "sent": self.tokens.sent,
                "lost": self.tokens.lost,
                "left": self.tokens.left,
                "lost_share": self.lost_share(),
            },
            "sent": self.sent.json(),
        })
    }
}

impl Interactive {
    fn of<'a>(sessions: impl Iterator<Item = &'a Session>) -> Self {
        let mut it = Self::default();
        let (mut first, mut total) = (Vec::new(), Vec::new());
        for session in sessions {
            it.sessions += 1;
            match session.ended {
                Ended::Answered => {
                    first.extend(session.first);
                    total.push(session.total);
                }
                Ended::Left => it.left += 1,
                Ended::Shed => it.shed += 1,
                Ended::Failed(code) => {
                    it.failed += 1;
                    *it.codes.entry(format!("{code:?}")).or_default() += 1;
                }
            }
        }
        let quantiles = |of: Vec<_>| [quantile(of.clone(), 0.5), quantile(of, 0.99)];
        it.first_ms = quantiles(first);
        it.total_ms = quantiles(total);
        it
    }

    fn json(&self) -> Value {
        json!({
            "sessions": self.sessions,
            "left": self.left,
            "shed": self.shed,
            "failed": self.failed,
            "codes": self.codes,
            "first_token_ms": {"p50": self.first_ms[0], "p99": self.first_ms[1]},
            "total_ms": {"p50": self.total_ms[0], "p99": self.total_ms[1]},
        })
    }
}

impl Interactive {
    /// In a line.
    pub(crate) fn text(&self) -> String {
        let Self {
            sessions,
            left,
            shed,
            failed,
            ..
        } = self;
        let counts = format!("{sessions} calls, {failed} failed, {shed} shed, {left} left");
        if self.sessions == failed + shed + left {
            return counts;
        }
        let [first, total] = [self.first_ms, self.total_ms];
        format!(
            "{counts}; first token p50 {:.0} ms, p99 {:.0} ms; \
             whole answer p50 {:.0} ms, p99 {:.0} ms",
            first[0], first[1], total[0], total[1],
        )
    }
}

impl Batch {
    /// In a line.
    pub(crate) fn text(&self) -> String {
        format!(
            "{} jobs, {} done; {} calls shed, {} told when to come again",
            self.jobs, self.done, self.sheds, self.told_when
        )
    }

    fn of(jobs: &[Job]) -> Self {
        let mut it = Self::default();
        for job in jobs {
            it.jobs += 1;
            it.done += u64::from(job.done);
            it.sheds += u64::from(job.shed);
            it.told_when += u64::from(job.told_when);
            it.shed_jobs += u64::from(job.shed > 0);
            it.shed_jobs_done += u64::from(job.shed > 0 && job.done);
        }
        it
    }
}

impl Sent {
    pub(crate) fn of(measured: &Measured) -> Self {
        let method = measured.method(api::METHOD);
        let count = |of: fn(&MethodMeasured) -> u64| method.map_or(0, of);
        Self {
            calls: count(|it| it.calls),
            attempts: count(|it| it.attempts),
            retries: count(|it| it.retries),
            hedges: count(|it| it.hedges),
            hedges_won: count(|it| it.hedges_won),
        }
    }

    pub(crate) fn since(self, before: Self) -> Self {
        Self {
            calls: self.calls - before.calls,
            attempts: self.attempts - before.attempts,
            retries: self.retries - before.retries,
            hedges: self.hedges - before.hedges,
            hedges_won: self.hedges_won - before.hedges_won,
        }
    }

    pub(crate) fn hedge_rate(self) -> f64 {
        share(self.hedges, self.calls)
    }

    /// Attempts for each call.
    pub(crate) fn amplification(self) -> f64 {
        share(self.attempts, self.calls)
    }

    pub(crate) fn win_rate(self) -> f64 {
        share(self.hedges_won, self.hedges)
    }

    fn json(self) -> Value {
        json!({
            "calls": self.calls,
            "attempts": self.attempts,
            "retries": self.retries,
            "hedges": self.hedges,
            "hedges_won": self.hedges_won,
            "hedge_rate": self.hedge_rate(),
            "win_rate": self.win_rate(),
        })
    }
}

/// 0 of nothing.
pub(crate) fn share(part: u64, whole: u64) -> f64 {
    match whole {
        0 => 0.0,
        _ => part as f64 / whole as f64,
    }
}
