//! Keeps one endpoint connected: connects, waits for the loss, connects again, with growing pauses while that fails.

use std::{future::Future, sync::Arc, time::Duration};

use tokio::time::{Instant, sleep};

use super::{Endpoint, connection::Link, random, supervisor::Shared};

/// The first pause: longer than a process's restart of its listener, shorter than a user's patience.
const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// The longest pause while another endpoint is connected: a dead one costs a SYN in 10 s, and a
/// revived one is back within that.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// The longest pause while no endpoint is connected: every call fails until one is.
const LONGEST_PAUSE_ALONE: Duration = Duration::from_secs(1);

/// Runs until it is dropped: with the set, or when the endpoint leaves it.
pub(super) async fn keep(endpoint: Arc<Endpoint>, shared: Arc<Shared>) {
    // Boxed: the task would keep room for it, several times an endpoint's own, as long as it is connected.
    keep_with(&endpoint, &shared, || Box::pin(Link::make(&endpoint.route))).await
}

async fn keep_with<F>(endpoint: &Arc<Endpoint>, shared: &Arc<Shared>, make: impl Fn() -> F)
where
    F: Future<Output = Result<Link, Arc<str>>>,
{
    let mut pauses = Pauses::default();
    // Whether it was of use the last time that it was there.
    let mut proved = false;
    loop {
        endpoint.connecting();
        let error = match make().await {
            Ok(link) => {
                // It was away and is back, so it was started anew. The failures that it went with
                // would keep calls from it for a minute.
                if proved && pauses.failures > 0 {
                    endpoint.hot.load.forget();
                }
                proved = false;
                match stay(endpoint, shared, Arc::new(link)).await {
                    Stay::Proved => {
                        proved = true;
                        pauses = Pauses::default();
                        continue;
                    }
                    // The first such loss is not yet a failure: calls wait for the next connection.
                    Stay::Short(_) if pauses.failures == 0 => {
                        sleep(pauses.next(shared.any_ready(), random::fraction())).await;
                        continue;
                    }
                    Stay::Short(error) => error,
                }
            }
            Err(error) => error,
        };
        tracing::debug!(endpoint = %endpoint.name, %error, "not connected");
        endpoint.failed(error);
        shared.endpoint_failed();
        sleep(pauses.next(shared.any_ready(), random::fraction())).await;
    }
}

/// How a connection ended.
enum Stay {
    /// It was of use, or could have been: connecting again needs no pause.
    Proved,
    /// It was lost before it did anything, as if it had failed to connect. A server that accepts
    /// and hangs up would otherwise be connected in a loop.
    Short(Arc<str>),
}

async fn stay(endpoint: &Arc<Endpoint>, shared: &Arc<Shared>, link: Arc<Link>) -> Stay {
    let since = Instant::now();
    endpoint.connected(&link);
    let ready = shared.count_ready();
    shared.changed.notify_waiters();
    let error = link.health.lost().await;
    endpoint.disconnected();
    drop(ready);
    shared.resolve.notify_one();
    if endpoint.has_served() || since.elapsed() >= LONGEST_PAUSE {
        Stay::Proved
    } else {
        Stay::Short(error)
    }
}

/// Pauses that double, each between half and all of its length: clients that lost the same server
/// do not come back together.
#[derive(Default)]
struct Pauses {
    failures: u32,
}

impl Pauses {
    fn next(&mut self, others_ready: bool, fraction: f64) -> Duration {
        let longest = if others_ready {
            LONGEST_PAUSE
        } else {
            LONGEST_PAUSE_ALONE
        };
        let doubled = FIRST_PAUSE.saturating_mul(1 << self.failures.min(16));
        self.failures += 1;
        doubled.min(longest).mul_f64(0.5 + fraction / 2.0)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use tokio::time::timeout;
    use tonic::transport::Endpoint as TonicEndpoint;

    use super::*;
    use crate::endpoint::{EndpointSpec, EndpointState, members::Members, source::Source};

    /// How often an endpoint that refuses is dialled in a minute.
    async fn dialled_in_a_minute(other_ready: bool) -> u32 {
        let spec = EndpointSpec::new(TonicEndpoint::from_static("http://10.0.0.1:1"));
        let endpoint = Arc::new(Endpoint::new(0, spec));
        let shared = Arc::new(Shared::new(Members::default(), Source::Fixed));
        let _other = other_ready.then(|| shared.count_ready());
        let dialled = Cell::new(0);
        let refuse = || {
            dialled.set(dialled.get() + 1);
            std::future::ready(Err("refused".into()))
        };
        let keep = keep_with(&endpoint, &shared, refuse);
        timeout(Duration::from_secs(60), keep).await.unwrap_err();
        assert_eq!(endpoint.state(), EndpointState::Backoff);
        dialled.get()
    }

    #[tokio::test(start_paused = true)]
    async fn fa19_a_dead_endpoint_is_dialled_with_growing_pauses() {
        // Pauses of half of 10 s to all of it, after a dozen seconds of shorter ones.
        let dialled = dialled_in_a_minute(true).await;
        assert!((11..=20).contains(&dialled), "{dialled}");
        // At most 1 s while calls can go nowhere else.
        let dialled = dialled_in_a_minute(false).await;
        assert!((60..=130).contains(&dialled), "{dialled}");
    }

    /// A server that was of use, and is started again, does not pay for the calls that it took along.
    #[tokio::test(start_paused = true)]
    async fn a_restarted_endpoint_is_asked_again_at_once() {
        // Whether a connection answers before it is lost, and whether dialling fails in between.
        for (serves, away, forgiven) in [
            (true, true, true),
            (true, false, false),
            (false, true, false),
        ] {
            let spec = EndpointSpec::new(TonicEndpoint::from_static("http://10.0.0.1:1"));
            let endpoint = Arc::new(Endpoint::new(0, spec));
            let shared = Arc::new(Shared::new(Members::default(), Source::Fixed));
            let dialled = Cell::new(0);
            let lost = Cell::new(None);
            let make = || {
                dialled.set(dialled.get() + 1);
                let made =
                    Link::made(TonicEndpoint::from_static("http://10.0.0.1:1").connect_lazy());
                std::future::ready(match (dialled.get(), away) {
                    (2, true) => Err("refused".into()),
                    (1, _) => {
                        lost.set(Some(Arc::clone(&made.health)));
                        Ok(made)
                    }
                    _ => Ok(made),
                })
            };
            let now = Duration::from_secs(1);
            let keep = keep_with(&endpoint, &shared, make);
            let meanwhile = async {
                tokio::task::yield_now().await;
                let health = lost.take().unwrap();
                if serves {
                    endpoint.answered(now);
                }
                for _ in 0..4 {
                    endpoint.hot.load.started(now);
                    endpoint.hot.load.failed(now, Duration::from_millis(1));
                }
                health.lose("reset");
                sleep(Duration::from_secs(1)).await;
            };
            tokio::select! {
                () = keep => unreachable!("it is kept for ever"),
                () = meanwhile => {}
            }
            assert_eq!(endpoint.state(), EndpointState::Ready);
            assert_eq!(
                endpoint.hot.load.latency(now).is_none(),
                forgiven,
                "{serves} {away}"
            );
        }
    }

    #[test]
    fn pauses_double_up_to_their_limit() {
        let mut pauses = Pauses::default();
        let lengths: Vec<_> = (0..9).map(|_| pauses.next(true, 1.0).as_millis()).collect();
        assert_eq!(
            lengths,
            [100, 200, 400, 800, 1_600, 3_200, 6_400, 10_000, 10_000]
        );
        assert_eq!(pauses.next(true, 0.0), Duration::from_secs(5));
        assert_eq!(pauses.next(false, 1.0), Duration::from_secs(1));
        pauses.failures = u32::MAX - 1;
        assert_eq!(pauses.next(true, 1.0), Duration::from_secs(10));
    }
}
