//! What must hold of a service config whatever its text is: the body of a fuzz target in `fuzz/`.

use std::time::Duration;

use super::{Policy, ServiceConfig};

/// A config is refused with a reason, or each of its policies is within gRFC A6's bounds and ours.
pub fn service_config(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else {
        return;
    };
    let config = match ServiceConfig::parse(text) {
        Ok(config) => config,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return;
        }
    };
    let again = ServiceConfig::parse(&format!(" \n{text}\t"));
    assert_eq!(again.ok().as_ref(), Some(&config));
    if let Some(budget) = config.budget() {
        assert!(budget.validate().is_ok(), "{budget:?}");
    }
    for policy in config.entries.iter().filter_map(|it| it.policy.as_ref()) {
        bounded(policy);
    }
    for (name, index) in &config.names {
        let found = config.of(name).map(|it| it.config);
        assert_eq!(found, config.entries.get(*index), "{name:?}");
    }
    // A method that nobody names has what is said of all, if anything is.
    let other = config.of("fuzz.Nobody/Ever").map(|it| it.config);
    let of_service = config
        .names
        .get("fuzz.Nobody/Ever")
        .or(config.names.get("fuzz.Nobody/"));
    let of_all = of_service.or(config.names.get(""));
    assert_eq!(other, of_all.and_then(|index| config.entries.get(*index)));
}

fn bounded(policy: &Policy) {
    assert!((2..=5).contains(&policy.max_attempts), "{policy:?}");
    if let Some(hedge) = &policy.hedge {
        assert!(hedge.validate().is_ok(), "{policy:?}");
    }
    // Whatever base and factor are, a wait is one that can be waited for.
    for n in [0, 1, 4, 1_000, u32::MAX] {
        let wait = policy.retry.backoff(n, 0.999);
        assert!(
            wait <= policy.retry.cap + Duration::from_micros(1),
            "{policy:?}"
        );
    }
}
