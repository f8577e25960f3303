//! When hedging is held back because it does not win.

use std::time::Duration;

use super::PolicyError;

/// Holds hedges back once they stop winning often enough to be worth their load.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct WinRate {
    /// The share of hedges that has to win; more than 0, less than 1.
    pub floor: f64,
    /// History that the rate covers; a quarter of it is one decision. Default 1 min;
    /// 1 s to 1 h.
    pub window: Duration,
    /// Hedges that the window needs before it has an opinion. Default 10; at least 1.
    pub minimum_samples: u64,
    /// The least hedging that it retreats to; 0 is no floor at all. Default 0.05; 0 to 1.
    pub minimum_allowance: f64,
}

impl WinRate {
    /// Keeps hedging while at least the share `floor` of hedges produces the answer.
    pub fn at_least(floor: f64) -> Self {
        Self {
            floor,
            window: Duration::from_secs(60),
            minimum_samples: 10,
            minimum_allowance: 0.05,
        }
    }

    /// Sets [`WinRate::window`].
    #[must_use]
    pub fn window(mut self, window: Duration) -> Self {
        self.window = window;
        self
    }

    /// Sets [`WinRate::minimum_samples`].
    #[must_use]
    pub fn minimum_samples(mut self, hedges: u64) -> Self {
        self.minimum_samples = hedges;
        self
    }

    /// Sets [`WinRate::minimum_allowance`].
    #[must_use]
    pub fn minimum_allowance(mut self, share: f64) -> Self {
        self.minimum_allowance = share;
        self
    }

    /// Checks every field.
    ///
    /// # Errors
    /// The first field that is out of its bounds.
    pub fn validate(&self) -> Result<(), PolicyError> {
        PolicyError::unless(
            self.floor > 0.0 && self.floor < 1.0,
            "WinRate.floor",
            self.floor,
            "in (0, 1)",
        )?;
        PolicyError::unless(
            (Duration::from_secs(1)..=Duration::from_secs(3600)).contains(&self.window),
            "WinRate.window",
            self.window,
            "in [1s, 3600s]",
        )?;
        PolicyError::unless(
            self.minimum_samples >= 1,
            "WinRate.minimum_samples",
            self.minimum_samples,
            "at least 1",
        )?;
        PolicyError::unless(
            (0.0..=1.0).contains(&self.minimum_allowance),
            "WinRate.minimum_allowance",
            self.minimum_allowance,
            "in [0, 1]",
        )
    }
}
