//! What a channel's builder says about one method, for `.proto` files that are not the user's own.

use std::collections::BTreeMap;

use tonic::Code;
use tonic_hedge_engine::policy::{Hedge, PolicyError, Retry};

use crate::{
    descriptor::{IdempotencyLevel, MethodDescriptor, Options, Repeatability},
    endpoint::Destination,
    error::{BuildError, Kind},
    hooks::{AttemptResult, Classification, Classifier, NextAttempt, Targeting},
};

/// What one method may do and wants, said where the channel is built: for services whose `.proto`
/// cannot be changed.
///
/// What the `.proto` says goes first, field by field, and the channel's own settings come last.
/// [`Builder::method`](crate::Builder::method) takes it.
///
/// ```
/// use std::time::Duration;
/// use tonic_hedge::{Hedge, HedgedChannel, MethodPolicy};
///
/// let channel = HedgedChannel::builder()
///     .endpoints(["http://10.0.0.1:2379", "http://10.0.0.2:2379", "http://10.0.0.3:2379"])
///     .method("etcdserverpb.KV/Range", MethodPolicy::new().idempotent(true))
///     .hedge(Hedge::at(0.95))
///     .build()?;
/// # drop(channel);
/// # Ok::<(), tonic_hedge::BuildError>(())
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "a policy does nothing until a channel is built with it"]
pub struct MethodPolicy {
    idempotent: Option<bool>,
    hedge: Option<Option<Hedge>>,
    max_attempts: Option<u32>,
    retry: Option<Retry>,
    retryable_codes: Vec<Code>,
    first_message: Option<bool>,
    classifier: Option<Classifier>,
    targeting: Option<Targeting>,
}

impl MethodPolicy {
    /// A policy that says nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether the method may be executed more than once. `true` declares it, as
    /// `idempotency_level` does; it is an error where an option of the `.proto` vetoes it. `false`
    /// is a veto itself, whatever the `.proto` says.
    pub fn idempotent(mut self, idempotent: bool) -> Self {
        self.idempotent = Some(idempotent);
        self
    }

    /// When its calls are hedged, in place of the channel's [`Builder::hedge`](crate::Builder::hedge).
    /// It is an error on a method that is not idempotent, or that streams.
    pub fn hedge(mut self, hedge: Hedge) -> Self {
        self.hedge = Some(Some(hedge));
        self
    }

    /// Its calls are never hedged; where it is idempotent they may still be retried.
    pub fn without_hedging(mut self) -> Self {
        self.hedge = Some(None);
        self
    }

    /// Attempts of one call in all. Default: the channel's
    /// [`max_attempts`](crate::Builder::max_attempts); 1 to 16.
    pub fn max_attempts(mut self, attempts: u32) -> Self {
        self.max_attempts = Some(attempts);
        self
    }

    /// How its failed attempts are retried. Default: the channel's
    /// [`retry`](crate::Builder::retry).
    pub fn retry(mut self, retry: Retry) -> Self {
        self.retry = Some(retry);
        self
    }

    /// Codes that another attempt could better, besides UNAVAILABLE. Default: none; OK is not
    /// among them, since it is never a failure.
    pub fn retryable_codes(mut self, codes: impl IntoIterator<Item = Code>) -> Self {
        self.retryable_codes = codes.into_iter().collect();
        self
    }

    /// Whether the wait for the first message of its answer is hedged, for a method that streams its
    /// answer only. A method that no descriptor set knows is taken to be such a one then.
    pub fn first_message(mut self, first_message: bool) -> Self {
        self.first_message = Some(first_message);
        self
    }

    /// What is a failure of this method, in place of the channel's
    /// [`classify`](crate::Builder::classify).
    pub fn classify<F>(mut self, classify: F) -> Self
    where
        F: Fn(&AttemptResult<'_>) -> Classification + Send + Sync + 'static,
    {
        self.classifier = Some(Classifier::new(classify));
        self
    }

    /// Where this method's attempts go, in place of the channel's
    /// [`target_with`](crate::Builder::target_with).
    pub fn target_with<F>(mut self, choose: F) -> Self
    where
        F: Fn(&mut NextAttempt<'_>) -> Option<Destination> + Send + Sync + 'static,
    {
        self.targeting = Some(Targeting::new(choose));
        self
    }

    pub(super) fn targeting(&self) -> Option<&Targeting> {
        self.targeting.as_ref()
    }

    pub(super) fn classifier(&self) -> Option<&Classifier> {
        self.classifier.as_ref()
    }

    pub(super) fn hedges(&self) -> Option<Option<&Hedge>> {
        self.hedge.as_ref().map(Option::as_ref)
    }

    pub(super) fn retries(&self) -> Option<&Retry> {
        self.retry.as_ref()
    }

    pub(super) fn is_idempotent(&self) -> Option<bool> {
        self.idempotent
    }

    /// The options of the `.proto`, and these where they are silent.
    pub(super) fn under(&self, options: &Options) -> Options {
        options.over(&Options {
            max_attempts: self.max_attempts,
            retryable_codes: self.retryable_codes.clone(),
            first_message: self.first_message,
            ..Options::default()
        })
    }

    /// A method that is known by name alone.
    fn stands_for(&self, path: &str) -> MethodDescriptor {
        MethodDescriptor {
            path: path.to_owned(),
            client_streaming: false,
            server_streaming: self.first_message == Some(true),
            level: IdempotencyLevel::Unspecified,
            http_get: false,
            method: Options::default(),
            service: Options::default(),
        }
    }

    /// Checks the values, and that the method does not get what it cannot have.
    fn check(&self, descriptor: &MethodDescriptor) -> Result<(), BuildError> {
        let path = &descriptor.path;
        let refused = |why| Kind::MethodPolicy {
            name: path.trim_start_matches('/').to_owned(),
            why,
        };
        if self.idempotent == Some(true) && descriptor.repeatability() == Repeatability::Vetoed {
            return Err(
                refused("is marked idempotent, but an option of its .proto vetoes it").into(),
            );
        }
        if self.hedge.as_ref().is_some_and(Option::is_some) {
            let declared = descriptor.repeatability() == Repeatability::Repeatable;
            if !descriptor.is_raceable_with(&self.under(&descriptor.options())) {
                return Err(refused("has a hedge policy, but it streams").into());
            }
            if !self.idempotent.unwrap_or(declared) {
                return Err(refused("has a hedge policy, but it is not idempotent").into());
            }
        }
        self.validate().map_err(|error| Kind::Method {
            path: path.clone(),
            error,
        })?;
        Ok(())
    }

    fn validate(&self) -> Result<(), PolicyError> {
        if let Some(Some(hedge)) = &self.hedge {
            hedge.validate()?;
        }
        if let Some(retry) = &self.retry {
            retry.validate()?;
        }
        if let Some(attempts) = self.max_attempts
            && !(1..=16).contains(&attempts)
        {
            return Err(PolicyError::new(
                "MethodPolicy.max_attempts",
                attempts,
                "in [1, 16]",
            ));
        }
        match self.retryable_codes.contains(&Code::Ok) {
            true => Err(PolicyError::new(
                "MethodPolicy.retryable_codes",
                "OK",
                "a code of a failure",
            )),
            false => Ok(()),
        }
    }
}

/// The policies of a channel, by path.
#[derive(Clone, Debug, Default)]
pub(crate) struct MethodPolicies(BTreeMap<String, MethodPolicy>);

impl MethodPolicies {
    /// Adds the policy of `package.Service/Method`.
    ///
    /// # Errors
    /// A name of another form, or one that has a policy.
    pub(crate) fn add(&mut self, name: &str, policy: MethodPolicy) -> Result<(), BuildError> {
        let name = name.strip_prefix('/').unwrap_or(name);
        let refused = |why| Kind::MethodPolicy {
            name: name.to_owned(),
            why,
        };
        match name.split_once('/') {
            Some((service, method))
                if !service.is_empty() && !method.is_empty() && !method.contains('/') => {}
            _ => return Err(refused("is not of the form package.Service/Method").into()),
        }
        match self.0.insert(format!("/{name}"), policy) {
            None => Ok(()),
            Some(_) => Err(refused("is given twice").into()),
        }
    }

    /// Checks them against what the descriptor sets know, and adds the methods that none knows:
    /// those are taken to be unary, or to stream their answers where the first message is hedged.
    ///
    /// # Errors
    /// What `refuse` makes of a policy that its method cannot have, or whose method its service
    /// lacks.
    pub(crate) fn complete(
        &self,
        descriptors: &mut Vec<MethodDescriptor>,
        mut refuse: impl FnMut(BuildError) -> Result<(), BuildError>,
    ) -> Result<(), BuildError> {
        let mut unknown = Vec::new();
        for (path, policy) in &self.0 {
            match descriptors.binary_search_by(|known| known.path.as_str().cmp(path)) {
                Ok(at) => policy.check(&descriptors[at]).or_else(&mut refuse)?,
                Err(_) => {
                    let service = &path[..=path.rfind('/').unwrap_or_default()];
                    if descriptors
                        .iter()
                        .any(|known| known.path.starts_with(service))
                    {
                        let missing = Kind::MethodPolicy {
                            name: path.trim_start_matches('/').to_owned(),
                            why: "is not a method of its service in the descriptor sets",
                        };
                        refuse(missing.into())?;
                        continue;
                    }
                    let descriptor = policy.stands_for(path);
                    policy.check(&descriptor).or_else(&mut refuse)?;
                    unknown.push(descriptor);
                }
            }
        }
        // Only now: one of them does not make its service known to the others.
        descriptors.append(&mut unknown);
        descriptors.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(())
    }

    pub(super) fn of(&self, path: &str) -> Option<&MethodPolicy> {
        self.0.get(path)
    }
}
