//! TE8: what telemetry costs while nobody listens.

use std::{sync::Arc, time::Duration};

use http::HeaderMap;
use tonic::Code;
use tonic_hedge_engine::gate::{Gate, Reason};

use super::info;
use crate::{
    log::AttemptKind,
    telemetry::{AttemptEnd, LOOK_AGAIN, MethodTelemetry, Telemetry},
};

const METHOD: &str = "demo.v1.Kv/Get";

/// A call at this time: an original that is answered, or that fails and is hedged.
fn call(method: &Arc<MethodTelemetry>, now: Duration, code: Code) {
    let mut headers = HeaderMap::new();
    let mut call = method.start_call(METHOD, now);
    let mut original = call.start_attempt(info(0, AttemptKind::Original), &mut headers, now);
    original.within(|| ());
    if code == Code::Ok {
        original.end(AttemptEnd::Won(code), now);
    } else {
        call.suppressed(Reason::Gate(Gate::Budget), None);
        let hedge = call.start_attempt(info(1, AttemptKind::Hedge), &mut headers, now);
        call.started(Some(now), 1);
        original.end(AttemptEnd::Failed(code), now);
        drop(hedge);
    }
    call.finish(code, now);
}

#[test]
fn te8_no_allocation_without_providers_and_observers() {
    let channel = Arc::new(Telemetry::default());
    let method = Arc::new(MethodTelemetry::new(&channel, METHOD, true));
    // The first call looks for providers, and so does one in each tenth of a second.
    call(&method, Duration::ZERO, Code::Ok);
    let soon = LOOK_AGAIN - Duration::from_nanos(1);
    for code in [Code::Ok, Code::Unavailable] {
        let counted = allocation_counter::measure(|| call(&method, soon, code));
        assert_eq!(counted.count_total, 0, "{code:?}");
    }
    let counted = allocation_counter::measure(|| call(&method, LOOK_AGAIN, Code::Ok));
    assert!(counted.count_total > 0, "it looks again");
}
