//! From JSON to a service config, all or nothing.
//!
//! The rules are gRFC A6's; where it is silent, what grpc-java takes or refuses. Keys that nothing
//! here uses are read over, but for those whose type every gRPC client checks: one config should
//! not be good for one client and bad for another.

use std::time::Duration;

use tonic_hedge_engine::policy::Retry;

use super::{MethodConfig, Policy, ServiceConfig, ServiceConfigError, at::At, json, throttling};

type Result<T> = std::result::Result<T, ServiceConfigError>;

/// More are taken as so many: the config comes from elsewhere, and must not be able to flood a
/// service.
const MOST_ATTEMPTS: i32 = 5;

impl ServiceConfig {
    /// Reads a whole config.
    ///
    /// # Errors
    /// The first thing that is wrong with it, with the path to it.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let value = json::read(text)?;
        let root = At::root(&value);
        root.object()?;
        let mut config = Self::default();
        if let Some(entries) = root.field("methodConfig")? {
            for entry in entries.items()? {
                config.add(&entry)?;
            }
        }
        if let Some(tokens) = root.field("retryThrottling")? {
            config.budget = Some(throttling(max_tokens(&tokens)?, token_ratio(&tokens)?));
        }
        if let Some(health) = root.field("healthCheckConfig")? {
            health.object()?;
        }
        Ok(config)
    }

    fn add(&mut self, entry: &At<'_>) -> Result<()> {
        let index = self.entries.len();
        self.entries.push(method_config(entry)?);
        let Some(names) = entry.field("name")? else {
            return Ok(());
        };
        for name in names.items()? {
            if self.names.insert(key(&name)?, index).is_some() {
                return Err(name.wrong("is named before"));
            }
        }
        Ok(())
    }
}

/// What an entry is named for, as [`ServiceConfig::names`] has it. An empty part is none.
fn key(name: &At<'_>) -> Result<String> {
    let part = |part| name.field(part)?.map_or(Ok(""), |it| it.text());
    let (service, method) = (part("service")?, part("method")?);
    match (service, method) {
        ("", "") => Ok(String::new()),
        ("", method) => Err(name.wrong(format_args!("has the method {method:?} and no service"))),
        (service, method) => Ok(format!("{service}/{method}")),
    }
}

fn method_config(entry: &At<'_>) -> Result<MethodConfig> {
    if let Some(waits) = entry.field("waitForReady")? {
        waits.boolean()?;
    }
    for limit in ["maxRequestMessageBytes", "maxResponseMessageBytes"] {
        if let Some(bytes) = entry.field(limit)?
            && bytes.integer()? < 0
        {
            return Err(bytes.is_not("at least 0"));
        }
    }
    let timeout = entry.field("timeout")?.map(|it| it.duration());
    let retry = entry.field("retryPolicy")?;
    let hedging = entry.field("hedgingPolicy")?;
    let policy = match (retry, hedging) {
        (Some(_), Some(hedging)) => {
            return Err(hedging.wrong("there is a retryPolicy too: one of them"));
        }
        (Some(retry), None) => Some(retrying(&retry)?),
        (None, Some(policy)) => Some(hedged(&policy)?),
        (None, None) => None,
    };
    Ok(MethodConfig {
        policy,
        timeout: timeout.transpose()?,
    })
}

fn retrying(policy: &At<'_>) -> Result<Policy> {
    let max_attempts = max_attempts(policy)?;
    let base = backoff(policy, "initialBackoff")?;
    let cap = backoff(policy, "maxBackoff")?;
    let multiplier = policy.required("backoffMultiplier")?;
    let factor = multiplier.number()?;
    if factor <= 0.0 {
        return Err(multiplier.is_not("more than 0"));
    }
    if let Some(timeout) = policy.field("perAttemptRecvTimeout")? {
        timeout.duration()?;
    }
    let listed = policy.required("retryableStatusCodes")?;
    let codes = listed.codes()?;
    if codes.is_empty() {
        return Err(listed.is_not("at least one code"));
    }
    let retry = Retry::default().base(base).cap(cap).factor(factor);
    Ok(Policy::retrying(max_attempts, retry, codes))
}

fn hedged(policy: &At<'_>) -> Result<Policy> {
    let max_attempts = max_attempts(policy)?;
    let delay = policy.field("hedgingDelay")?.map(|it| it.duration());
    let codes = policy.field("nonFatalStatusCodes")?.map(|it| it.codes());
    Ok(Policy::hedging(
        max_attempts,
        delay.transpose()?.unwrap_or_default(),
        codes.transpose()?.unwrap_or_default(),
    ))
}

fn max_attempts(policy: &At<'_>) -> Result<u32> {
    let field = policy.required("maxAttempts")?;
    let attempts = u32::try_from(field.integer()?.min(MOST_ATTEMPTS)).unwrap_or(0);
    match attempts {
        0 | 1 => Err(field.is_not("at least 2")),
        attempts => Ok(attempts),
    }
}

fn backoff(policy: &At<'_>, name: &str) -> Result<Duration> {
    let field = policy.required(name)?;
    match field.duration()? {
        Duration::ZERO => Err(field.is_not("more than 0s")),
        backoff => Ok(backoff),
    }
}

fn max_tokens(throttling: &At<'_>) -> Result<f64> {
    let field = throttling.required("maxTokens")?;
    let tokens = field.number()?;
    match tokens > 0.0 && tokens <= 1000.0 && tokens.fract() == 0.0 {
        true => Ok(tokens),
        false => Err(field.is_not("an integer in (0, 1000]")),
    }
}

/// Decimal places beyond the third are cut off, not rounded.
fn token_ratio(throttling: &At<'_>) -> Result<f64> {
    let field = throttling.required("tokenRatio")?;
    let ratio = field.number()?;
    if ratio <= 0.0 {
        return Err(field.is_not("more than 0"));
    }
    // By its digits: 0.57 times 1000 is less than 570.
    let digits = ratio.to_string();
    let end = digits.find('.').map_or(digits.len(), |point| point + 4);
    Ok(digits[..end.min(digits.len())].parse().unwrap_or(ratio))
}
