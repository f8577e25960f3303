//! Where a call's span hangs, and what hangs under its attempts: in this process and in servers.

use std::time::Duration;

use http::{HeaderMap, HeaderValue};
use opentelemetry::{
    Context,
    trace::{TraceContextExt, Tracer, TracerProvider},
};
use opentelemetry_sdk::trace::Sampler;
use tonic::Code;
use tracing::Instrument;
use tracing_subscriber::layer::SubscriberExt;

use super::{ATTEMPT, CALL, Exported, METHOD, attempt, by_number, id, info};
use crate::{
    log::AttemptKind,
    telemetry::{AttemptEnd, spans::Spans},
};

#[test]
fn each_attempt_sends_its_own_context() {
    let exported = Exported::new();
    let mut call = exported.start_call();
    let mut sent = Vec::new();
    for number in 0..2 {
        let mut headers = HeaderMap::new();
        headers.insert("traceparent", HeaderValue::from_static("an interceptor's"));
        headers.append("traceparent", HeaderValue::from_static("twice"));
        drop(call.start_attempt(info(number, AttemptKind::Hedge), &mut headers));
        let all: Vec<_> = headers.get_all("traceparent").iter().cloned().collect();
        assert_eq!(all.len(), 1);
        sent.push(all[0].to_str().unwrap().to_owned());
    }
    call.finish(Code::Ok);
    let spans = exported.spans();
    for (number, sent) in sent.iter().enumerate() {
        let span = &by_number(&spans, number as i64).span_context;
        let expected = format!("00-{}-{}-01", span.trace_id(), span.span_id());
        assert_eq!(*sent, expected);
    }
}

#[test]
fn a_sampler_that_refuses_is_obeyed_downstream() {
    let exported = Exported::sampled(Sampler::AlwaysOff);
    let mut call = exported.start_call();
    assert!(!call.is_recording());
    let mut headers = HeaderMap::new();
    drop(call.start_attempt(info(0, AttemptKind::Original), &mut headers));
    call.finish(Code::Ok);
    assert!(headers["traceparent"].to_str().unwrap().ends_with("-00"));
    assert!(exported.spans().is_empty());
}

/// The application's context still reaches the server.
#[test]
fn without_a_provider_the_context_goes_on() {
    let app = Exported::new();
    let span = app.provider.tracer("app").start("app");
    let _app = Context::new().with_span(span).attach();
    let mut call = Spans::default().start_call(METHOD, Duration::ZERO);
    assert!(!call.is_recording());
    let mut headers = HeaderMap::new();
    let mut nothing = call.start_attempt(info(0, AttemptKind::Original), &mut headers);
    nothing.end(AttemptEnd::Won(Code::Ok));
    call.finish(Code::Ok);
    let parent = Context::current().span().span_context().span_id();
    assert!(
        headers["traceparent"]
            .to_str()
            .unwrap()
            .contains(&parent.to_string())
    );
}

#[test]
fn the_parent_can_come_from_a_function() {
    let exported = Exported::new();
    let span = exported.provider.tracer("app").start("app");
    let parent = Context::new().with_span(span);
    let expected = parent.span().span_context().span_id();
    let mut spans = exported.spans_to();
    spans.set_parent_context(move || parent.clone());
    spans.start_call(METHOD, Duration::ZERO).finish(Code::Ok);
    assert_eq!(exported.span(CALL).parent_span_id, expected);
}

#[tokio::test(start_paused = true)]
async fn te7_hedge_from_a_timer_task_is_the_calls_child() {
    let exported = Exported::new();
    let call = exported.start_call();
    let task = tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(40)).await;
        let mut hedge = attempt(&call, 1, AttemptKind::Hedge);
        hedge.end(AttemptEnd::Won(Code::Ok));
    });
    task.await.unwrap();
    assert_eq!(
        exported.span(ATTEMPT).parent_span_id,
        id(&exported.span(CALL))
    );
}

#[tokio::test(start_paused = true)]
async fn an_application_on_tracing_nests_in_both_directions() {
    let exported = Exported::new();
    let layer = tracing_opentelemetry::layer().with_tracer(exported.provider.tracer("app"));
    let subscriber = tracing_subscriber::registry().with(layer);
    let _subscriber = tracing::subscriber::set_default(subscriber);

    async fn work(name: &'static str, delay: u64) {
        tokio::time::sleep(Duration::from_millis(delay)).await;
        match name {
            "first" => {
                async { tokio::task::yield_now().await }
                    .instrument(tracing::info_span!("inside first"))
                    .await
            }
            _ => drop(tracing::info_span!("inside second").entered()),
        }
        tokio::time::sleep(Duration::from_millis(delay)).await;
    }
    let application = async {
        tokio::task::yield_now().await;
        let mut call = exported.start_call();
        let first = attempt(&call, 0, AttemptKind::Original);
        let second = attempt(&call, 1, AttemptKind::Hedge);
        // Both are in flight at once, each polled in turns with the other.
        let mut works = (Box::pin(work("first", 3)), Box::pin(work("second", 2)));
        tokio::join!(
            std::future::poll_fn(|cx| first.within(|| works.0.as_mut().poll(cx))),
            std::future::poll_fn(|cx| second.within(|| works.1.as_mut().poll(cx))),
        );
        drop((first, second));
        call.finish(Code::Ok);
        drop(tracing::info_span!("after").entered());
    };
    application
        .instrument(tracing::info_span!("application"))
        .await;

    let application = id(&exported.span("application"));
    let call = exported.span(CALL);
    assert_eq!(call.parent_span_id, application);
    let spans = exported.spans();
    for (number, inside) in [(0, "inside first"), (1, "inside second")] {
        let attempt = by_number(&spans, number);
        assert_eq!(attempt.parent_span_id, id(&call));
        assert_eq!(
            exported.span(inside).parent_span_id,
            id(attempt),
            "{inside}"
        );
    }
    assert_eq!(exported.span("after").parent_span_id, application);
}
