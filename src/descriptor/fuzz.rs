//! What must hold of a descriptor set whatever its bytes are: the body of a fuzz target in `fuzz/`.

use std::time::Duration;

use tonic_hedge_engine::policy::Hedge;

use super::{MethodDescriptor, Repeatability, merge, read};

/// A set is refused or read, and several as one allow no more than each alone.
pub fn descriptor_set(input: &[u8]) {
    let Ok(mut methods) = read(input) else {
        return;
    };
    for method in &methods {
        let mut parts = method.path.split('/');
        // A name has no bounds of its own, but a method without one would be of no use.
        assert_eq!(parts.next(), Some(""), "{method:?}");
        assert!(method.path.len() > 2, "{method:?}");
    }
    // As when a channel is built: what fails this is no channel's.
    methods.retain(|method| method.check().is_ok());
    for trusted in [false, true] {
        if trusted {
            methods
                .iter_mut()
                .for_each(MethodDescriptor::trust_http_get);
        }
        together(&methods);
        // As if all were one method in two sets, whatever their names.
        for pair in methods.windows(2) {
            let (a, mut b) = (pair[0].clone(), pair[1].clone());
            b.path.clone_from(&a.path);
            together(&[a.clone(), b.clone()]);
            together(&[b, a]);
        }
    }
}

/// Merges `methods`, and compares each with what it became.
fn together(methods: &[MethodDescriptor]) {
    let merged = merge(methods.iter().map(|method| vec![method.clone()]));
    assert_eq!(merge([merged.clone()]), merged);
    for method in methods {
        let mut of_path = merged.iter().filter(|it| it.path == method.path);
        let (Some(whole), None) = (of_path.next(), of_path.next()) else {
            panic!("{}: not once in {merged:?}", method.path);
        };
        assert_no_more(whole, method);
    }
}

/// `merged` allows nothing that `method`, one of those that it was made from, forbids.
fn assert_no_more(merged: &MethodDescriptor, method: &MethodDescriptor) {
    let context = || format!("{merged:?}\nof {method:?}");
    match method.repeatability() {
        Repeatability::Repeatable => {}
        Repeatability::Vetoed => {
            assert_eq!(
                merged.repeatability(),
                Repeatability::Vetoed,
                "{}",
                context()
            );
        }
        Repeatability::Unmarked => {
            assert_ne!(
                merged.repeatability(),
                Repeatability::Repeatable,
                "{}",
                context()
            );
        }
    }
    assert!(
        method.is_raceable() || !merged.is_raceable(),
        "{}",
        context()
    );
    assert!(merged.client_streaming >= method.client_streaming);
    assert!(merged.server_streaming >= method.server_streaming);

    let (all, one) = (merged.options(), method.options());
    for (all, one) in [
        (all.hedge, one.hedge),
        (all.first_message, one.first_message),
    ] {
        assert!(one != Some(false) || all == Some(false), "{}", context());
        assert!(one == Some(true) || all != Some(true), "{}", context());
    }
    // A number that one leaves open is the other's; else it is the later and fewer.
    assert!(one.quantile <= all.quantile, "{}", context());
    assert!(one.minimum_delay <= all.minimum_delay, "{}", context());
    assert!(one.maximum_delay <= all.maximum_delay, "{}", context());
    for (all, one) in [
        (all.max_attempts, one.max_attempts),
        (all.max_concurrent, one.max_concurrent),
    ] {
        assert!(
            one.is_none_or(|one| all.is_some_and(|all| all <= one)),
            "{}",
            context()
        );
    }
    assert!(
        all.retryable_codes
            .iter()
            .all(|code| one.retryable_codes.contains(code)),
        "{}",
        context()
    );
    // It is valid, as each of them was.
    let base = Hedge::at(0.95).minimum_delay(Duration::from_millis(1));
    assert!(all.tune(base).validate().is_ok(), "{}", context());
}
