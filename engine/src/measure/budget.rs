//! The token bucket that retries and hedges share.

use std::time::Duration;

use crate::{
    policy::{BudgetPolicy, PolicyError},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

/// One token, in the unit of the balance: ratios are exact to six decimals.
const TOKEN: u64 = 1_000_000;

/// How many further attempts may start: calls deposit, attempts beyond the first withdraw.
///
/// A clone is the same budget, so channels can share one; they must then count `now` from the
/// same epoch if there is a reserve.
///
/// A withdrawal checks and takes in one atomic step, so that any number of threads get no more
/// than there is. While the budget is full, which is the usual state, a call only reads it.
///
/// ```
/// use std::time::Duration;
/// use tonic_hedge_engine::{measure::Budget, policy::BudgetPolicy};
///
/// let budget = Budget::new(&BudgetPolicy::default().ratio(0.4).initial(0.2))?;
/// let now = Duration::ZERO;
/// budget.deposit(now);
/// assert!(!budget.try_withdraw(now), "0.6 tokens");
/// budget.deposit(now);
/// assert!(budget.try_withdraw(now), "exactly 1");
/// # Ok::<(), tonic_hedge_engine::policy::PolicyError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Budget(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// What a call deposits, in millionths, as all amounts here.
    deposit: AtomicU64,
    capacity: u64,
    /// What a second adds.
    reserve: u64,
    balance: AtomicU64,
    /// All reserve since the epoch that has been added.
    accrued: AtomicU64,
}

impl Budget {
    /// A budget with the policy's initial tokens; its reserve accrues from the epoch on.
    ///
    /// # Errors
    /// The first field of the policy that is out of its bounds.
    pub fn new(policy: &BudgetPolicy) -> Result<Self, PolicyError> {
        policy.validate()?;
        Ok(Self(Arc::new(Shared {
            deposit: AtomicU64::new(millionths(policy.ratio)),
            capacity: millionths(policy.capacity),
            reserve: millionths(policy.reserve),
            balance: AtomicU64::new(millionths(policy.initial)),
            accrued: AtomicU64::new(0),
        })))
    }

    /// A call's share. Once for each call, whatever becomes of it; never for an attempt, which
    /// would fund itself.
    pub fn deposit(&self, now: Duration) {
        self.0.accrue(now);
        self.0.add(self.0.deposit.load(Ordering::Relaxed));
    }

    /// Changes [`BudgetPolicy::ratio`] for all who share the budget. What it holds stays.
    ///
    /// # Errors
    /// The ratio is out of its bounds; then nothing changes.
    pub fn set_ratio(&self, ratio: f64) -> Result<(), PolicyError> {
        BudgetPolicy::default().ratio(ratio).validate()?;
        self.0.deposit.store(millionths(ratio), Ordering::Relaxed);
        Ok(())
    }

    /// Takes one token, if there is one.
    pub fn try_withdraw(&self, now: Duration) -> bool {
        self.0.accrue(now);
        self.0.take()
    }

    /// Gives back the token of an attempt that never started.
    pub fn refund(&self) {
        self.0.add(TOKEN);
    }

    /// Tokens that [`Budget::try_withdraw`] would find now. Reading changes nothing.
    pub fn balance(&self, now: Duration) -> f64 {
        let due = self.0.due(now);
        // Relaxed: a snapshot of a number that others change.
        let balance = self.0.balance.load(Ordering::Relaxed);
        balance.saturating_add(due).min(self.0.capacity) as f64 / TOKEN as f64
    }
}

// Relaxed throughout: tokens guard no other data, and each change is one read-modify-write.
impl Shared {
    fn add(&self, tokens: u64) {
        let mut balance = self.balance.load(Ordering::Relaxed);
        loop {
            let sum = balance.saturating_add(tokens).min(self.capacity);
            if sum == balance {
                return;
            }
            match self.exchange(balance, sum) {
                Ok(_) => return,
                Err(other) => balance = other,
            }
        }
    }

    fn take(&self) -> bool {
        let mut balance = self.balance.load(Ordering::Relaxed);
        loop {
            let Some(rest) = balance.checked_sub(TOKEN) else {
                return false;
            };
            match self.exchange(balance, rest) {
                Ok(_) => return true,
                Err(other) => balance = other,
            }
        }
    }

    fn exchange(&self, from: u64, to: u64) -> Result<u64, u64> {
        self.balance
            .compare_exchange_weak(from, to, Ordering::Relaxed, Ordering::Relaxed)
    }

    /// Adds the reserve since the last time, once: whoever raises `accrued` adds the difference.
    fn accrue(&self, now: Duration) {
        if self.due(now) > 0 {
            let total = self.total(now);
            let before = self.accrued.fetch_max(total, Ordering::Relaxed);
            self.add(total.saturating_sub(before));
        }
    }

    /// Reserve that nobody has added yet; none for a `now` that others have overtaken.
    fn due(&self, now: Duration) -> u64 {
        if self.reserve == 0 {
            return 0;
        }
        self.total(now)
            .saturating_sub(self.accrued.load(Ordering::Relaxed))
    }

    /// All reserve from the epoch to `now`. Counting from the epoch loses no fraction, however
    /// often it is asked.
    fn total(&self, now: Duration) -> u64 {
        let total = u128::from(self.reserve) * now.as_micros() / 1_000_000;
        u64::try_from(total).unwrap_or(u64::MAX)
    }
}

/// Only for validated amounts: none is negative or above a million tokens.
fn millionths(tokens: f64) -> u64 {
    (tokens * TOKEN as f64).round() as u64
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;

    #[test]
    fn bu4_no_interleaving_overdraws() {
        loom::model(|| {
            let policy = BudgetPolicy::default().initial(1.5).ratio(0.5);
            let budget = Budget::new(&policy).unwrap();
            let withdraw = |budget: &Budget| {
                let budget = budget.clone();
                loom::thread::spawn(move || u64::from(budget.try_withdraw(Duration::ZERO)))
            };
            let others = [withdraw(&budget), withdraw(&budget)];
            budget.deposit(Duration::ZERO);
            let granted: u64 = others.into_iter().map(|it| it.join().unwrap()).sum();
            let left = budget.balance(Duration::ZERO);
            assert!(granted >= 1);
            assert_eq!(granted as f64 + left, 2.0);
        });
    }

    #[test]
    fn bu4_no_interleaving_adds_the_reserve_twice() {
        loom::model(|| {
            let policy = BudgetPolicy::default().initial(0.0).reserve(1.0);
            let budget = Budget::new(&policy).unwrap();
            let withdraw = |budget: &Budget, second| {
                u64::from(budget.try_withdraw(Duration::from_secs(second)))
            };
            let other = budget.clone();
            let other = loom::thread::spawn(move || withdraw(&other, 1));
            let granted = withdraw(&budget, 2) + other.join().unwrap();
            let left = budget.balance(Duration::from_secs(2));
            assert_eq!(granted as f64 + left, 2.0);
        });
    }
}
