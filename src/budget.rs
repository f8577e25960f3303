//! The budget of a channel: its own, shared with other channels, or somebody else's.

use std::{fmt, sync::Arc, time::Duration};

use tokio::time::Instant;
use tonic_hedge_engine::{
    measure::Budget as Bucket,
    policy::{BudgetPolicy, PolicyError},
};
use tower::retry::budget::Budget as TowerBudget;

/// Where a channel's tokens come from.
#[derive(Clone)]
pub(crate) enum Tokens {
    /// A bucket, and how much older than the channel its own clock is: a reserve accrues once,
    /// whichever of the channels that share it are in use.
    Own(Bucket, Duration),
    /// An implementation of tower's trait. It has no balance to show and takes nothing back.
    Foreign(Arc<dyn TowerBudget + Send + Sync>),
}

impl Tokens {
    /// A call was made.
    pub(crate) fn deposit(&self, now: Duration) {
        match self {
            Self::Own(bucket, older) => bucket.deposit(*older + now),
            Self::Foreign(budget) => budget.deposit(),
        }
    }

    /// Takes the token of a further attempt, in one step with the check.
    pub(crate) fn try_withdraw(&self, now: Duration) -> Option<Loan> {
        let granted = match self {
            Self::Own(bucket, older) => bucket.try_withdraw(*older + now),
            Self::Foreign(budget) => budget.withdraw(),
        };
        granted.then(|| self.loan())
    }

    /// A token that is taken already, for an attempt that was not sent after all.
    pub(crate) fn loan(&self) -> Loan {
        Loan(match self {
            Self::Own(bucket, _) => Some(bucket.clone()),
            Self::Foreign(_) => None,
        })
    }

    /// The tokens that there are, where that can be told.
    pub(crate) fn balance(&self, now: Duration) -> Option<f64> {
        match self {
            Self::Own(bucket, older) => Some(bucket.balance(*older + now)),
            Self::Foreign(_) => None,
        }
    }
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Own(bucket, _) => bucket.fmt(f),
            Self::Foreign(_) => f.write_str("tower::retry::budget::Budget"),
        }
    }
}

/// A token that was withdrawn for an attempt that is not sent yet. It goes back when dropped,
/// unless spent.
#[derive(Debug)]
pub(crate) struct Loan(Option<Bucket>);

impl Loan {
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

/// A budget that channels share, with each other and with tower's retry layer. A clone is the same
/// budget.
///
/// ```
/// use tonic_hedge::{Budget, BudgetPolicy, HedgedChannel};
///
/// let budget = Budget::new(&BudgetPolicy::default().initial(2.0))?;
/// let one = HedgedChannel::builder().shared_budget(budget.clone());
/// let two = HedgedChannel::builder().shared_budget(budget.clone());
/// assert_eq!(budget.balance(), 2.0);
/// # Ok::<(), tonic_hedge::PolicyError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Budget {
    bucket: Bucket,
    epoch: Instant,
}

impl Budget {
    /// A budget with the policy's initial tokens; its reserve accrues from now on.
    ///
    /// # Errors
    /// The first field of the policy that is out of its bounds.
    pub fn new(policy: &BudgetPolicy) -> Result<Self, PolicyError> {
        Ok(Self {
            bucket: Bucket::new(policy)?,
            epoch: Instant::now(),
        })
    }

    /// Changes [`BudgetPolicy::ratio`] while calls go on, for all channels and layers that share
    /// this budget. The tokens that it holds stay.
    ///
    /// # Errors
    /// The ratio is out of its bounds; then nothing changes.
    pub fn set_ratio(&self, ratio: f64) -> Result<(), PolicyError> {
        self.bucket.set_ratio(ratio)
    }

    /// The tokens that there are now.
    pub fn balance(&self) -> f64 {
        self.bucket.balance(self.epoch.elapsed())
    }

    /// For a channel whose clock starts at `epoch`.
    pub(crate) fn tokens(self, epoch: Instant) -> Tokens {
        let older = epoch.saturating_duration_since(self.epoch);
        Tokens::Own(self.bucket, older)
    }
}

/// A [`Budget`] as tower's retry layer takes it, so that its retries and a channel's hedges
/// draw on one bucket.
///
/// tower 0.5's own `TpsBudget` loads, compares and then subtracts, and so overdraws under
/// threads; this one checks and withdraws in one step.
///
/// ```
/// use tonic_hedge::{Budget, BudgetPolicy, RetryBudget};
/// use tower::retry::budget::Budget as _;
///
/// let budget = Budget::new(&BudgetPolicy::default().initial(1.0))?;
/// let for_tower = RetryBudget::new(budget.clone());
/// assert!(for_tower.withdraw());
/// assert!(!for_tower.withdraw());
/// // HedgedChannel::builder().shared_budget(budget)
/// # Ok::<(), tonic_hedge::PolicyError>(())
/// ```
#[derive(Clone, Debug)]
pub struct RetryBudget(Budget);

impl RetryBudget {
    /// `budget`, for tower.
    pub fn new(budget: Budget) -> Self {
        Self(budget)
    }
}

impl TowerBudget for RetryBudget {
    fn deposit(&self) {
        let Budget { bucket, epoch } = &self.0;
        bucket.deposit(epoch.elapsed());
    }

    fn withdraw(&self) -> bool {
        let Budget { bucket, epoch } = &self.0;
        bucket.try_withdraw(epoch.elapsed())
    }
}
