//! How a case is run: the same calls, hedged not at all, as a user would, and always.

use std::time::Duration;

use tonic_hedge::Hedge;

/// One way to hedge the calls of a case. What the caller sees must not depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// No hedge policy.
    Off,
    /// A live quantile: hedging is armed, and seldom fires.
    On,
    /// A threshold that nearly every call outruns: a race each time.
    Forced,
    /// One of the two endpoints is slow, so that hedges win.
    Slow,
}

impl Mode {
    /// In the order of the table's columns.
    pub const ALL: [Self; 4] = [Self::Off, Self::On, Self::Forced, Self::Slow];

    /// What the second of its two endpoints adds to each answer.
    pub const SLOWNESS: Duration = Duration::from_millis(100);

    /// As the lines and the table call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::On => "on",
            Self::Forced => "forced",
            Self::Slow => "slow",
        }
    }

    /// The channel's hedge policy.
    pub fn hedge(self) -> Option<Hedge> {
        match self {
            Self::Off => None,
            Self::On => Some(Hedge::at(0.95)),
            Self::Forced => Some(Hedge::after(Duration::from_millis(1))),
            Self::Slow => Some(Hedge::after(Self::SLOWNESS / 4)),
        }
    }
}
