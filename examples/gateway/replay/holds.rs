//! What must hold of a replay.

use super::{figures::Figures, plan::Phase};

/// How much lower the p99 is at least, and how far the median may move.
const TIMES_LOWER: f64 = 4.0;
const MEDIAN: f64 = 0.05;

/// Of all tokens, those that losers of races wrote.
const MOST_LOST: f64 = 0.02;

/// Each with its name, and whether it holds.
pub(crate) fn holds(plain: &Figures, whole: &Figures) -> Vec<(&'static str, bool)> {
    let (before, after) = (plain.interactive(Phase::Slow), whole.interactive(Phase::Slow));
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
