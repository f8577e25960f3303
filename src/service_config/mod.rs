//! gRPC's service config (gRFC A6): which entry is a method's, and what that comes to here.
//!
//! Always compiled, so that what merges it with other policies is the same code with the feature
//! and without; only the feature can make one that is not empty.

#[cfg(feature = "service-config")]
mod at;
#[cfg(all(feature = "__fuzz", feature = "service-config"))]
pub(crate) mod fuzz;
#[cfg(feature = "service-config")]
mod json;
#[cfg(feature = "service-config")]
mod parse;
#[cfg(feature = "service-config")]
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, time::Duration};

use tonic::Code;
use tonic_hedge_engine::policy::{BudgetPolicy, Hedge, Retry};

#[cfg(feature = "service-config")]
pub(crate) use self::at::ServiceConfigError;
use crate::call::Codes;

/// A whole service config.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ServiceConfig {
    entries: Vec<MethodConfig>,
    /// Entries by what they are named for: `package.Service/Method`, `package.Service/`, or empty
    /// for all methods.
    names: BTreeMap<String, usize>,
    budget: Option<BudgetPolicy>,
}

/// One entry of `methodConfig`.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct MethodConfig {
    pub(crate) policy: Option<Policy>,
    pub(crate) timeout: Option<Duration>,
}

/// A `retryPolicy` or a `hedgingPolicy`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Policy {
    /// `None` for a `retryPolicy`.
    pub(crate) hedge: Option<Hedge>,
    pub(crate) retry: Retry,
    pub(crate) max_attempts: u32,
    pub(crate) codes: Codes,
}

/// The entry that a method has.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Matched<'a> {
    pub(crate) config: &'a MethodConfig,
    /// It names this very method, and not its service or all.
    pub(crate) exact: bool,
}

impl ServiceConfig {
    /// The entry of `package.Service/Method`: its own, else its service's, else that of all. It
    /// counts whole: what it leaves out is not looked for in the next.
    pub(crate) fn of(&self, name: &str) -> Option<Matched<'_>> {
        let service = name.rfind('/').map_or("", |slash| &name[..=slash]);
        [name, service, ""].into_iter().find_map(|key| {
            let config = self.entries.get(*self.names.get(key)?)?;
            let exact = key == name && key != service;
            Some(Matched { config, exact })
        })
    }

    /// What `retryThrottling` comes to.
    pub(crate) fn budget(&self) -> Option<&BudgetPolicy> {
        self.budget.as_ref()
    }
}

impl Policy {
    fn retrying(max_attempts: u32, retry: Retry, codes: impl IntoIterator<Item = Code>) -> Self {
        Self {
            hedge: None,
            retry,
            max_attempts,
            codes: Codes::exactly(codes),
        }
    }

    fn hedging(max_attempts: u32, delay: Duration, codes: impl IntoIterator<Item = Code>) -> Self {
        Self {
            hedge: Some(Hedge::after(delay).max_concurrent(max_attempts)),
            // A6: a failure brings the next attempt forward, also where it was the only one in
            // flight. That is a retry without a backoff.
            retry: Retry::default().base(Duration::ZERO).cap(Duration::ZERO),
            max_attempts,
            codes: Codes::exactly(codes),
        }
    }
}

/// A6 lets further attempts start while more than half of `max_tokens` is left, so the half above
/// is what there is to spend.
fn throttling(max_tokens: f64, token_ratio: f64) -> BudgetPolicy {
    // Less than one whole token would forbid each further attempt for ever; more than one for each
    // call cannot be spent on it.
    let tokens = (max_tokens / 2.0).max(1.0);
    BudgetPolicy::default()
        .capacity(tokens)
        .initial(tokens)
        .ratio(token_ratio.min(1.0))
}
