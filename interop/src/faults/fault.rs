//! The faults, as Toxiproxy is told of them.

use serde_json::{Value, json};

/// What is wrong with the way to a replica, while it is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Answers come 300 ms late.
    Latency,
    /// They come up to 300 ms late, each by a time of its own.
    Jitter,
    /// A connection carries 10 KB of answers a second.
    Bandwidth,
    /// Each connection is reset, the new ones at once.
    Reset,
    /// Nothing gets through, in either direction; the connections stay.
    BlackHole,
    /// Requests arrive, and answers do not.
    LostAnswers,
    /// The replica hangs up once a second, which shows half a second later.
    SlowClose,
    /// A connection is cut after 16 KiB of answers, within a message.
    LimitData,
    /// Connections end, and new ones are refused.
    Refused,
}

/// Which replicas it is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// One of the three.
    One,
    All,
}

impl Fault {
    /// In the order of the table.
    pub(crate) const ALL: [Self; 9] = [
        Self::Latency,
        Self::Jitter,
        Self::Bandwidth,
        Self::Reset,
        Self::BlackHole,
        Self::LostAnswers,
        Self::SlowClose,
        Self::LimitData,
        Self::Refused,
    ];

    /// As the lines and the table call it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Latency => "latency",
            Self::Jitter => "jitter",
            Self::Bandwidth => "bandwidth",
            Self::Reset => "reset",
            Self::BlackHole => "black_hole",
            Self::LostAnswers => "lost_answers",
            Self::SlowClose => "slow_close",
            Self::LimitData => "limit_data",
            Self::Refused => "refused",
        }
    }

    /// Toxiproxy's toxics.
    pub(crate) fn toxics(self) -> Vec<Value> {
        let answers = |kind: &str, attributes: Value| json!({"type": kind, "stream": "downstream", "attributes": attributes});
        match self {
            Self::Latency => vec![answers("latency", json!({"latency": 300}))],
            Self::Jitter => vec![answers("latency", json!({"latency": 150, "jitter": 150}))],
            Self::Bandwidth => vec![answers("bandwidth", json!({"rate": 10}))],
            Self::Reset => vec![answers("reset_peer", json!({"timeout": 0}))],
            // Without an end.
            Self::LostAnswers => vec![answers("timeout", json!({"timeout": 0}))],
            Self::BlackHole => vec![
                answers("timeout", json!({"timeout": 0})),
                json!({"type": "timeout", "stream": "upstream", "attributes": {"timeout": 0}}),
            ],
            Self::SlowClose => vec![answers("slow_close", json!({"delay": 500}))],
            Self::LimitData => vec![answers("limit_data", json!({"bytes": 16 << 10}))],
            Self::Refused => vec![],
        }
    }

    /// Whether a hedge can help only if there is one: the call itself never learns that something is
    /// wrong before its deadline.
    pub(crate) fn is_silent(self) -> bool {
        matches!(self, Self::Bandwidth | Self::BlackHole | Self::LostAnswers)
    }
}

impl Extent {
    pub(crate) const BOTH: [Self; 2] = [Self::One, Self::All];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::One => "one",
            Self::All => "all",
        }
    }

    /// Of so many replicas, the first ones.
    pub(crate) fn replicas(self, all: usize) -> usize {
        match self {
            Self::One => 1,
            Self::All => all,
        }
    }
}
