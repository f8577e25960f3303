//! Several sets as one: where two disagree about a method, the stricter wins.
//!
//! A client that was built before the server dropped an `idempotency_level`, or that gets one
//! set from its build and one from reflection, must not repeat what either forbids.

use std::collections::BTreeMap;

use super::{IdempotencyLevel, MethodDescriptor, Options, Repeatability};

/// The methods of all `sets`, each once, in the order of their paths.
pub(crate) fn merge(
    sets: impl IntoIterator<Item = Vec<MethodDescriptor>>,
) -> Vec<MethodDescriptor> {
    let mut methods = BTreeMap::<String, MethodDescriptor>::new();
    for method in sets.into_iter().flatten() {
        let merged = match methods.remove(&method.path) {
            Some(other) => stricter(other, method),
            None => method,
        };
        methods.insert(merged.path.clone(), merged);
    }
    methods.into_values().collect()
}

/// One descriptor that allows nothing that `a` or `b` forbids.
///
/// Where they differ, the options of method and service become one: merged one by one, a
/// method's option of the one set would hide a stricter default in the other's service.
fn stricter(a: MethodDescriptor, b: MethodDescriptor) -> MethodDescriptor {
    if a == b {
        return a;
    }
    let (of_a, of_b) = (a.options(), b.options());
    let floor = pick(of_a.minimum_delay, of_b.minimum_delay, Ord::max);
    let ceiling = pick(of_a.maximum_delay, of_b.maximum_delay, Ord::max);
    MethodDescriptor {
        client_streaming: a.client_streaming || b.client_streaming,
        server_streaming: a.server_streaming || b.server_streaming,
        level: stricter_level(a.level, b.level),
        http_get: a.http_get && b.http_get,
        method: Options {
            idempotent: match (a.repeatability(), b.repeatability()) {
                (Repeatability::Vetoed, _) | (_, Repeatability::Vetoed) => Some(false),
                (Repeatability::Unmarked, _) | (_, Repeatability::Unmarked) => None,
                // One may say so by its level and the other by its option.
                (Repeatability::Repeatable, Repeatability::Repeatable) => Some(true),
            },
            hedge: both(of_a.hedge, of_b.hedge),
            // Later, fewer: a higher quantile, longer delays, fewer attempts. A number that one
            // leaves open contradicts nothing, so the other's stands.
            quantile: pick(of_a.quantile, of_b.quantile, f64::max),
            minimum_delay: floor,
            // The floor of the one may lie above the ceiling of the other.
            maximum_delay: ceiling.map(|ceiling| ceiling.max(floor.unwrap_or_default())),
            max_concurrent: pick(of_a.max_concurrent, of_b.max_concurrent, Ord::min),
            max_attempts: pick(of_a.max_attempts, of_b.max_attempts, Ord::min),
            retryable_codes: {
                let mut codes = of_a.retryable_codes;
                codes.retain(|code| of_b.retryable_codes.contains(code));
                codes
            },
            first_message: both(of_a.first_message, of_b.first_message),
        },
        service: Options::default(),
        path: a.path,
    }
}

/// A permission: granted if both grant it, refused if either refuses.
fn both(a: Option<bool>, b: Option<bool>) -> Option<bool> {
    match (a, b) {
        (Some(true), Some(true)) => Some(true),
        (Some(false), _) | (_, Some(false)) => Some(false),
        _ => None,
    }
}

fn pick<T>(a: Option<T>, b: Option<T>, stricter: impl Fn(T, T) -> T) -> Option<T> {
    match (a, b) {
        (Some(a), Some(b)) => Some(stricter(a, b)),
        (a, b) => a.or(b),
    }
}

/// The one that isn't repeatable; of two that are, the one that promises less.
fn stricter_level(a: IdempotencyLevel, b: IdempotencyLevel) -> IdempotencyLevel {
    match (a.is_repeatable(), b.is_repeatable()) {
        (true, true) if a == b => a,
        (true, true) => IdempotencyLevel::Idempotent,
        (false, _) => a,
        (true, false) => b,
    }
}
