//! How many further attempts a channel may start.

use super::PolicyError;

/// The token bucket that retries and hedges share: calls deposit, further attempts withdraw.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct BudgetPolicy {
    /// Tokens that each call deposits; a further attempt costs one. Default 0.2; 0 to 1.
    pub ratio: f64,
    /// The most tokens that it holds. Default 100; 1 to 1,000,000.
    pub capacity: f64,
    /// Tokens at the start. Default 10; 0 to `capacity`.
    pub initial: f64,
    /// Tokens that each second adds whatever the traffic. Default 0: at one call a second a
    /// floor of 10/s is no budget. 0 to `capacity`.
    pub reserve: f64,
}

impl Default for BudgetPolicy {
    fn default() -> Self {
        Self {
            ratio: 0.2,
            capacity: 100.0,
            initial: 10.0,
            reserve: 0.0,
        }
    }
}

impl BudgetPolicy {
    /// Sets [`BudgetPolicy::ratio`].
    #[must_use]
    pub fn ratio(mut self, tokens_per_call: f64) -> Self {
        self.ratio = tokens_per_call;
        self
    }

    /// Sets [`BudgetPolicy::capacity`].
    #[must_use]
    pub fn capacity(mut self, tokens: f64) -> Self {
        self.capacity = tokens;
        self
    }

    /// Sets [`BudgetPolicy::initial`].
    #[must_use]
    pub fn initial(mut self, tokens: f64) -> Self {
        self.initial = tokens;
        self
    }

    /// Sets [`BudgetPolicy::reserve`].
    #[must_use]
    pub fn reserve(mut self, tokens_per_second: f64) -> Self {
        self.reserve = tokens_per_second;
        self
    }

    /// Checks every field.
    ///
    /// # Errors
    /// The first field that is out of its bounds.
    pub fn validate(&self) -> Result<(), PolicyError> {
        PolicyError::unless(
            (0.0..=1.0).contains(&self.ratio),
            "Budget.ratio",
            self.ratio,
            "in [0, 1]",
        )?;
        PolicyError::unless(
            (1.0..=1e6).contains(&self.capacity),
            "Budget.capacity",
            self.capacity,
            "in [1, 1000000]",
        )?;
        PolicyError::unless(
            self.initial >= 0.0 && self.initial <= self.capacity,
            "Budget.initial",
            self.initial,
            "in [0, Budget.capacity]",
        )?;
        PolicyError::unless(
            self.reserve >= 0.0 && self.reserve <= self.capacity,
            "Budget.reserve",
            self.reserve,
            "in [0, Budget.capacity]",
        )
    }
}
