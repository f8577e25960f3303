//! `hedge.v1.Options`, parsed: what a method or a service asks for.

use std::time::Duration;

use tonic::Code;
use tonic_hedge_engine::policy::{Hedge, PolicyError, Timing};

use super::wire;

/// What `(hedge.v1.method)` or `(hedge.v1.service)` sets; `None` where it is silent.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Options {
    /// `false` is a veto; `true` needs no `idempotency_level`.
    pub(crate) idempotent: Option<bool>,
    /// `hedge: ON` or `OFF`.
    pub(crate) hedge: Option<bool>,
    pub(crate) quantile: Option<f64>,
    pub(crate) minimum_delay: Option<Duration>,
    pub(crate) maximum_delay: Option<Duration>,
    /// Attempts in flight at once, the original included.
    pub(crate) max_concurrent: Option<u32>,
    /// Attempts in all, the original included.
    pub(crate) max_attempts: Option<u32>,
    /// In the order of their numbers, each once; empty where the option is silent.
    pub(crate) retryable_codes: Vec<Code>,
    /// Server streaming: hedge the wait for the first message.
    pub(crate) first_message: Option<bool>,
}

/// Numbers of `hedge.v1.Options.Hedging`.
const ON: i32 = 1;
const OFF: i32 = 2;

/// The longest `google.protobuf.Duration`: about 10,000 years.
const MAX_SECONDS: u64 = 315_576_000_000;

impl Options {
    /// Reads one option on its own; [`Options::validate`] checks its bounds.
    ///
    /// # Errors
    /// A value that has no meaning: an unknown enum number, a negative duration.
    pub(super) fn parse(raw: wire::Options) -> Result<Self, PolicyError> {
        let hedge = match raw.hedge {
            None => None,
            Some(ON) => Some(true),
            Some(OFF) => Some(false),
            Some(other) => return Err(PolicyError::new("hedge", other, "ON or OFF")),
        };
        let mut retryable_codes = Vec::new();
        for number in raw.retryable_codes {
            // 0 is OK, which no attempt could better.
            if !(1..=16).contains(&number) {
                return Err(PolicyError::new(
                    "retryable_codes",
                    number,
                    "a gRPC status code from 1 to 16",
                ));
            }
            retryable_codes.push(Code::from_i32(number));
        }
        retryable_codes.sort_unstable_by_key(|code| i32::from(*code));
        retryable_codes.dedup();

        Ok(Self {
            idempotent: raw.idempotent,
            hedge,
            quantile: raw.quantile,
            minimum_delay: duration("minimum_delay", raw.minimum_delay)?,
            maximum_delay: duration("maximum_delay", raw.maximum_delay)?,
            max_concurrent: raw.max_concurrent,
            max_attempts: raw.max_attempts,
            retryable_codes,
            first_message: raw.first_message,
        })
    }

    /// These options, and `defaults` where they are silent.
    pub(crate) fn over(&self, defaults: &Self) -> Self {
        Self {
            idempotent: self.idempotent.or(defaults.idempotent),
            hedge: self.hedge.or(defaults.hedge),
            quantile: self.quantile.or(defaults.quantile),
            minimum_delay: self.minimum_delay.or(defaults.minimum_delay),
            maximum_delay: self.maximum_delay.or(defaults.maximum_delay),
            max_concurrent: self.max_concurrent.or(defaults.max_concurrent),
            max_attempts: self.max_attempts.or(defaults.max_attempts),
            retryable_codes: if self.retryable_codes.is_empty() {
                defaults.retryable_codes.clone()
            } else {
                self.retryable_codes.clone()
            },
            first_message: self.first_message.or(defaults.first_message),
        }
    }

    /// `hedge` with the fields that are set here.
    pub(crate) fn tune(&self, mut hedge: Hedge) -> Hedge {
        if let Some(quantile) = self.quantile {
            hedge.timing = Timing::Quantile(quantile);
        }
        if let Some(delay) = self.minimum_delay {
            hedge.minimum_delay = delay;
        }
        if let Some(delay) = self.maximum_delay {
            hedge.maximum_delay = Some(delay);
        }
        if let Some(attempts) = self.max_concurrent {
            hedge.max_concurrent = attempts;
        }
        hedge
    }

    /// Checks the bounds that hold whatever policy these options are laid over; the tuned
    /// policy is to be validated once more.
    pub(super) fn validate(&self) -> Result<(), PolicyError> {
        // The lowest floor there is, so that a ceiling is measured against our own floor only.
        let base = Hedge::at(0.95).minimum_delay(Duration::from_millis(1));
        self.tune(base).validate()?;
        match self.max_attempts {
            Some(attempts) if !(1..=16).contains(&attempts) => {
                Err(PolicyError::new("max_attempts", attempts, "in [1, 16]"))
            }
            _ => Ok(()),
        }
    }

    /// The field by which these options ask for a hedge of their own accord, if any.
    pub(super) fn asks_to_hedge(&self) -> Option<&'static str> {
        match self.hedge {
            Some(true) => Some("hedge"),
            Some(false) => None,
            None if self.quantile.is_some() => Some("quantile"),
            None if self.max_concurrent.is_some() => Some("max_concurrent"),
            None if self.first_message == Some(true) => Some("first_message"),
            None => None,
        }
    }
}

fn duration(
    field: &'static str,
    raw: Option<wire::Duration>,
) -> Result<Option<Duration>, PolicyError> {
    let Some(wire::Duration { seconds, nanos }) = raw else {
        return Ok(None);
    };
    let whole = u64::try_from(seconds).ok().filter(|s| *s <= MAX_SECONDS);
    let part = u32::try_from(nanos).ok().filter(|n| *n < 1_000_000_000);
    match (whole, part) {
        (Some(seconds), Some(nanos)) => Ok(Some(Duration::new(seconds, nanos))),
        _ => Err(PolicyError::new(
            field,
            format_args!("{seconds}s and {nanos}ns"),
            "a google.protobuf.Duration of 0 or more",
        )),
    }
}
