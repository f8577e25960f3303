//! What applies to one method: all that is said of it, the strongest first.
//!
//! The options of the `.proto`, then the service config, then the builder's [`MethodPolicy`], then the
//! channel's own settings; each is asked field by field where those before it are silent. A veto
//! counts wherever it stands.

use std::time::Duration;

use tonic_hedge_engine::policy::{Hedge, PolicyError, Retry};

use super::{Defaults, MethodPolicy, Shape};
use crate::{
    call::Codes,
    descriptor::{MethodDescriptor, Options, Repeatability},
    hooks::{Classifier, Targeting},
    service_config::Matched,
};

/// Who permits to repeat a method that nobody else declares.
const BY_CONFIG: &str = "declared by the service config";

/// One method's policy.
#[derive(Debug)]
pub(super) struct Merged {
    pub(super) shape: Shape,
    /// Whether a call may be repeated, and why, or why not.
    pub(super) repeatable: Result<&'static str, &'static str>,
    pub(super) hedge: Option<Hedge>,
    pub(super) max_attempts: u32,
    pub(super) retry: Retry,
    /// The same where nothing is hedged.
    pub(super) unhedged_retry: Retry,
    /// Only a `retryPolicy` permits to repeat it.
    pub(super) retries_only: bool,
    pub(super) retryable: Codes,
    /// The longest that a call may take.
    pub(super) timeout: Option<Duration>,
    pub(super) classifier: Option<Classifier>,
    pub(super) targeting: Option<Targeting>,
}

impl Merged {
    /// # Errors
    /// A field of the merged hedging policy is out of its bounds.
    pub(super) fn of(
        descriptor: &MethodDescriptor,
        defaults: &Defaults,
    ) -> Result<Self, PolicyError> {
        let path = &descriptor.path;
        let silent = MethodPolicy::new();
        let policy = defaults.policies.of(path).unwrap_or(&silent);
        let config = defaults.service_config.of(path.trim_start_matches('/'));
        let configured = config.and_then(|matched| matched.config.policy.as_ref());
        let proto = descriptor.options();
        let options = policy.under(&proto);
        let shape = Shape::of(descriptor, options.first_message == Some(true));

        let of_channel = match (configured, policy.hedges()) {
            (Some(configured), _) => configured.hedge.as_ref(),
            (None, Some(of_method)) => of_method,
            (None, None) => defaults.hedge.as_ref(),
        };
        let repeatable = repeatable(descriptor, shape, config, policy);
        // A `retryPolicy` says that another attempt may follow a failure, not that two may run at once.
        let retries_only = repeatable == Ok(BY_CONFIG)
            && configured.is_some_and(|configured| configured.hedge.is_none());
        let hedge = hedge(&options, of_channel).filter(|_| !retries_only);
        if let Some(hedge) = &hedge {
            hedge.validate()?;
        }
        let unconfigured = policy.retries().unwrap_or(&defaults.retry);
        Ok(Self {
            shape,
            repeatable,
            retries_only,
            hedge,
            max_attempts: proto
                .max_attempts
                .or(configured.map(|it| it.max_attempts))
                .or(options.max_attempts)
                .unwrap_or(defaults.max_attempts),
            retry: configured.map_or(unconfigured, |it| &it.retry).clone(),
            unhedged_retry: configured
                .filter(|it| it.hedge.is_none())
                .map_or(unconfigured, |it| &it.retry)
                .clone(),
            retryable: match configured {
                Some(configured) if proto.retryable_codes.is_empty() => configured.codes,
                _ => options.retryable_codes.into_iter().collect(),
            },
            timeout: config.and_then(|matched| matched.config.timeout),
            classifier: policy
                .classifier()
                .or(defaults.classifier.as_ref())
                .cloned(),
            targeting: policy.targeting().or(defaults.targeting.as_ref()).cloned(),
        })
    }
}

/// Any veto, else any declaration. gRPC takes a policy as the permission to repeat; we take it so
/// where it names this very method, since what is said of all of a service's methods is said of
/// those too that were not thought of.
fn repeatable(
    descriptor: &MethodDescriptor,
    shape: Shape,
    config: Option<Matched<'_>>,
    policy: &MethodPolicy,
) -> Result<&'static str, &'static str> {
    let named = config.is_some_and(|matched| matched.exact && matched.config.policy.is_some());
    match (policy.is_idempotent(), descriptor.repeatability()) {
        _ if shape == Shape::Other => Err("streaming"),
        (_, Repeatability::Vetoed) => Err("vetoed by the .proto"),
        (Some(false), _) => Err("vetoed by the channel"),
        (_, Repeatability::Repeatable) => Ok("declared by the .proto"),
        (Some(true), Repeatability::Unmarked) => Ok("declared by the channel"),
        (None, Repeatability::Unmarked) if named => Ok(BY_CONFIG),
        (None, Repeatability::Unmarked) => Err("not declared idempotent"),
    }
}

fn hedge(options: &Options, of_channel: Option<&Hedge>) -> Option<Hedge> {
    let asked = options.hedge == Some(true) || options.quantile.is_some();
    let hedge = match options.hedge {
        Some(false) => None,
        // `hedge: ON` alone means the quantile that the documentation leads with.
        _ if asked => Some(of_channel.cloned().unwrap_or_else(|| Hedge::at(0.95))),
        _ => of_channel.cloned(),
    };
    hedge.map(|hedge| options.tune(hedge))
}
