//! What must hold of a replay.

use super::{figures::Figures, plan::Phase};

/// How much lower the p99 is at least, and how far the median may move.
const TIMES_LOWER: f64 = 4.0;
const MEDIAN: f64 = 0.05;

/// Of all tokens, those that losers of races wrote.
const MOST_LOST: f64 = 0.02;

/// Each with its name, and whether it holds.
pub(crate) fn holds(plain: &Figures, whole: &Figures) -> Vec<(&'static str, bool)> {
    let (before, after) = (
        plain.interactive(Phase::Slow),
        whole.interactive(Phase::Slow),
    );
    let [before_p50, before_p99] = before.total_ms;
    let [after_p50, after_p99] = after.total_ms;
    let batch = whole.batch;
    vec![
        (
            "p99_at_least_4_times_lower",
            after_p99 > 0.0 && before_p99 >= TIMES_LOWER * after_p99,
        ),
        (
            "p50_within_5_percent",
            (after_p50 - before_p50).abs() <= MEDIAN * before_p50,
        ),
        (
            "no_interactive_call_failed_in_the_overload",
            after.sessions > 0 && after.failed + after.shed == 0,
        ),
        (
            "every_shed_batch_call_had_its_retry_time",
            batch.sheds > 0 && batch.told_when == batch.sheds,
        ),
        (
            "every_shed_batch_job_was_done_later",
            batch.shed_jobs > 0 && batch.shed_jobs_done == batch.shed_jobs,
        ),
        (
            "lost_duplicates_cost_under_2_percent_of_tokens",
            whole.sent.hedges > 0 && whole.lost_share() < MOST_LOST,
        ),
    ]
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tonic::Code;

    use super::{
        super::{
            caller::{Ended, Job, Session},
            drive::Saw,
            figures::Sent,
        },
        *,
    };
    use crate::tokens::Spent;

    /// Calls in the overload that take 90 ms, but for one in fifty.
    fn saw(slow_ms: u64, ended: Ended) -> Saw {
        let session = |number: u64| {
            let slow = number.is_multiple_of(50);
            Session {
                phase: Phase::Slow,
                first: None,
                total: Duration::from_millis(if slow { slow_ms } else { 90 }),
                ended: if slow { ended } else { Ended::Answered },
            }
        };
        let job = Job {
            shed: 2,
            told_when: 2,
            done: true,
        };
        Saw {
            sessions: (0..1_000).map(session).collect(),
            jobs: vec![job],
        }
    }

    fn figures(saw: &Saw, lost: u64) -> Figures {
        let tokens = Spent {
            sent: 1_000,
            lost,
            left: 0,
        };
        let sent = Sent {
            calls: 1_000,
            hedges: 50,
            ..Sent::default()
        };
        Figures::new(saw, tokens, sent, [sent; 5])
    }

    /// What does not hold.
    fn broken(after: &Saw, lost: u64) -> Vec<&'static str> {
        let plain = figures(&saw(800, Ended::Answered), 0);
        let all = holds(&plain, &figures(after, lost)).into_iter();
        all.filter(|(_, holds)| !holds).map(|it| it.0).collect()
    }

    #[test]
    fn each_can_break() {
        let good = || saw(180, Ended::Answered);
        assert_eq!(broken(&good(), 9), [""; 0]);
        assert_eq!(
            broken(&saw(210, Ended::Answered), 9),
            ["p99_at_least_4_times_lower"]
        );
        let mut late = good();
        for session in &mut late.sessions {
            session.total += Duration::from_millis(5);
        }
        assert_eq!(broken(&late, 9), ["p50_within_5_percent"]);
        for ended in [Ended::Shed, Ended::Failed(Code::Unavailable)] {
            assert_eq!(
                broken(&saw(90, ended), 9),
                ["no_interactive_call_failed_in_the_overload"]
            );
        }
        let mut untold = good();
        untold.jobs[0].told_when = 1;
        assert_eq!(
            broken(&untold, 9),
            ["every_shed_batch_call_had_its_retry_time"]
        );
        let mut undone = good();
        undone.jobs[0].done = false;
        assert_eq!(broken(&undone, 9), ["every_shed_batch_job_was_done_later"]);
        assert_eq!(
            broken(&good(), 20),
            ["lost_duplicates_cost_under_2_percent_of_tokens"]
        );
    }
}
