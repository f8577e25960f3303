//! A token of the budget, withdrawn for an attempt that is not sent yet.

use tonic_hedge_engine::measure::Budget;

/// Goes back to the budget when dropped, unless spent.
#[derive(Debug)]
pub(crate) struct Loan(Option<Budget>);

impl Loan {
    /// A token that was withdrawn from `budget`.
    pub(crate) fn of(budget: &Budget) -> Self {
        Self(Some(budget.clone()))
    }

    /// The attempt was sent.
    pub(crate) fn spend(mut self) {
        self.0 = None;
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        if let Some(budget) = &self.0 {
            budget.refund();
        }
    }
}
