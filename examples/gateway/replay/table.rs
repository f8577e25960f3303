//! The document's table, with our numbers beside it.

use serde_json::{Value, json};

use super::{
    figures::{Figures, Interactive, share},
    plan::Phase,
};
use crate::scale::chat_seconds;

/// One line: before and after, in the document and here. `None` where the document says nothing.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Row {
    pub(crate) metric: &'static str,
    pub(crate) unit: Unit,
    document: [Option<f64>; 2],
    pub(crate) ours: [f64; 2],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    /// Of chat.
    Seconds,
    /// Of a thousand interactive calls.
    PerThousand,
    Percent,
    Ratio,
    Count,
}

/// The document's rows, then what it tells elsewhere, then what it does not tell.
pub(crate) fn rows(plain: &Figures, whole: &Figures) -> Vec<Row> {
    let sides = [plain, whole];
    let slow = sides.map(|it| it.interactive(Phase::Slow));
    let seconds = |of: fn(&Interactive) -> f64| slow.map(|it| chat_seconds(of(it)));
    let failed = |phase| {
        sides.map(|it| {
            let it = it.interactive(phase);
            1e3 * share(it.failed + it.shed, it.sessions)
        })
    };
    let percent = |of: fn(&Figures) -> f64| sides.map(|it| 1e2 * of(it));
    let count = |of: fn(&Figures) -> u64| sides.map(|it| of(it) as f64);
    // A shed job for a thousand calls of users, as the document counts.
    let shed = sides.map(|it| {
        let sessions = it.interactive(Phase::Slow).sessions;
        1e3 * share(it.batch.shed_jobs_done, sessions)
    });
    let row = |metric, unit, document, ours| Row {
        metric,
        unit,
        document,
        ours,
    };
    vec![
        row(
            "p99 latency during region slowdown",
            Unit::Seconds,
            [Some(12.4), Some(3.1)],
            seconds(|it| it.total_ms[1]),
        ),
        row(
            "p50 latency during region slowdown",
            Unit::Seconds,
            [Some(1.9), Some(1.8)],
            seconds(|it| it.total_ms[0]),
        ),
        row(
            "user-facing failures during overload",
            Unit::PerThousand,
            [Some(214.0), Some(0.0)],
            failed(Phase::Slow),
        ),
        row(
            "batch jobs shed, and done later",
            Unit::PerThousand,
            [Some(0.0), Some(96.0)],
            shed,
        ),
        row(
            "tokens spent on lost races",
            Unit::Percent,
            [None, Some(0.9)],
            percent(Figures::lost_share),
        ),
        row(
            "hedge rate, whole replay",
            Unit::Percent,
            [None, Some(4.7)],
            percent(|it| it.sent.hedge_rate()),
        ),
        row(
            "win rate, whole replay",
            Unit::Percent,
            [None, Some(61.0)],
            percent(|it| it.sent.win_rate()),
        ),
        row(
            "hedge rate during region slowdown",
            Unit::Percent,
            [None, None],
            percent(|it| it.sent_in(Phase::Slow).hedge_rate()),
        ),
        row(
            "win rate during region slowdown",
            Unit::Percent,
            [None, None],
            percent(|it| it.sent_in(Phase::Slow).win_rate()),
        ),
        row(
            "p50 to first token during slowdown",
            Unit::Seconds,
            [None, None],
            seconds(|it| it.first_ms[0]),
        ),
        row(
            "p99 to first token during slowdown",
            Unit::Seconds,
            [None, None],
            seconds(|it| it.first_ms[1]),
        ),
        row(
            "user-facing failures in the error ramp",
            Unit::PerThousand,
            [None, None],
            failed(Phase::Errors),
        ),
        row(
            "attempts per call in the error ramp",
            Unit::Ratio,
            [None, None],
            sides.map(|it| it.sent_in(Phase::Errors).amplification()),
        ),
        row(
            "batch jobs done",
            Unit::Count,
            [None, None],
            count(|it| it.batch.done),
        ),
        row(
            "batch jobs failed",
            Unit::Count,
            [None, None],
            count(|it| it.batch.jobs - it.batch.done),
        ),
        row(
            "batch calls shed",
            Unit::Count,
            [None, None],
            count(|it| it.batch.sheds),
        ),
        row(
            "tokens sent",
            Unit::Count,
            [None, None],
            count(|it| it.tokens.sent),
        ),
    ]
}

impl Row {
    pub(crate) fn json(&self) -> Value {
        json!({
            "metric": self.metric,
            "unit": self.unit.name(),
            "document": {"before": self.document[0], "after": self.document[1]},
            "ours": {"before": self.ours[0], "after": self.ours[1]},
        })
    }

    /// The table's first line.
    pub(crate) fn head() -> String {
        format!(
            "{:<40} {:>10} {:>10} {:>10} {:>10}",
            "", "document", "", "here", ""
        ) + &format!(
            "\n{:<40} {:>10} {:>10} {:>10} {:>10}",
            "", "b + b", "h + l", "b + b", "h + l"
        )
    }

    pub(crate) fn text(&self) -> String {
        let cell = |value: Option<f64>| value.map_or("-".to_owned(), |it| self.unit.text(it));
        format!(
            "{:<40} {:>10} {:>10} {:>10} {:>10}",
            self.metric,
            cell(self.document[0]),
            cell(self.document[1]),
            cell(Some(self.ours[0])),
            cell(Some(self.ours[1])),
        )
    }
}

impl Unit {
    fn name(self) -> &'static str {
        match self {
            Self::Seconds => "s",
            Self::PerThousand => "per 1000 calls",
            Self::Percent => "%",
            Self::Ratio => "ratio",
            Self::Count => "count",
        }
    }

    fn text(self, value: f64) -> String {
        match self {
            Self::Seconds => format!("{value:.2} s"),
            Self::PerThousand => format!("{value:.0}/1000"),
            // A little is not nothing.
            Self::Percent if value > 0.0 && value < 0.1 => format!("{value:.3} %"),
            Self::Percent => format!("{value:.1} %"),
            Self::Ratio => format!("{value:.2}"),
            Self::Count => format!("{value:.0}"),
        }
    }
}
