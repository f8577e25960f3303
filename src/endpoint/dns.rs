//! Follows the addresses of a name: again at an interval, and sooner when an endpoint fails.

use std::{collections::BTreeSet, future::Future, io, net::SocketAddr, time::Duration};

use tokio::{sync::Notify, time::sleep};

/// How often a name is resolved unless the user says: a moved replica is met within half a minute.
pub(crate) const RESOLVE_INTERVAL: Duration = Duration::from_secs(30);

/// The least time between two resolutions. An endpoint that stays down asks for one at each of
/// its own attempts to connect.
const LEAST_INTERVAL: Duration = Duration::from_secs(5);

/// The pause after the first resolution that failed; doubles up to the interval.
const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// Both families of addresses, each address once. No address is an error.
pub(super) async fn look_up(host: &str, port: u16) -> io::Result<BTreeSet<SocketAddr>> {
    let addresses: BTreeSet<_> = tokio::net::lookup_host((host, port)).await?.collect();
    if addresses.is_empty() {
        return Err(io::Error::new(io::ErrorKind::NotFound, "no address"));
    }
    Ok(addresses)
}

/// Resolves for ever and hands each result to `publish`. `failed` asks to look again soon.
pub(super) async fn follow<F>(
    interval: Duration,
    failed: &Notify,
    mut resolve: impl FnMut() -> F,
    mut publish: impl FnMut(io::Result<BTreeSet<SocketAddr>>),
) where
    F: Future<Output = io::Result<BTreeSet<SocketAddr>>>,
{
    let mut pause = FIRST_PAUSE;
    loop {
        let resolved = resolve().await;
        let found = resolved.is_ok();
        publish(resolved);
        if found {
            pause = FIRST_PAUSE;
            let least = LEAST_INTERVAL.min(interval);
            sleep(least).await;
            tokio::select! {
                () = sleep(interval - least) => {}
                () = failed.notified() => {}
            }
        } else {
            sleep(pause).await;
            pause = (pause * 2).min(interval.max(FIRST_PAUSE));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use tokio::time::{Instant, timeout};

    use super::*;

    fn one() -> io::Result<BTreeSet<SocketAddr>> {
        Ok(["10.0.0.1:80".parse().unwrap()].into())
    }

    /// The seconds at which a name was resolved within a minute and a half.
    async fn times(
        failed: &Notify,
        mut result: impl FnMut(u64) -> io::Result<BTreeSet<SocketAddr>>,
    ) -> Vec<u64> {
        let start = Instant::now();
        let times = RefCell::new(Vec::new());
        let mut count = 0;
        let resolve = || {
            times.borrow_mut().push(start.elapsed().as_secs());
            count += 1;
            std::future::ready(result(count))
        };
        let follow = follow(RESOLVE_INTERVAL, failed, resolve, drop);
        timeout(Duration::from_secs(92), follow).await.unwrap_err();
        times.into_inner()
    }

    #[tokio::test(start_paused = true)]
    async fn a_name_is_resolved_at_the_interval() {
        assert_eq!(times(&Notify::new(), |_| one()).await, [0, 30, 60, 90]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_failed_endpoint_has_it_resolved_sooner_but_not_at_once() {
        let failed = Notify::new();
        failed.notify_one();
        assert_eq!(times(&failed, |_| one()).await, [0, 5, 35, 65]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_failed_resolution_is_repeated_with_growing_pauses() {
        let result = |count| {
            if count <= 6 {
                Err(io::Error::other("down"))
            } else {
                one()
            }
        };
        assert_eq!(
            times(&Notify::new(), result).await,
            [0, 1, 3, 7, 15, 31, 61, 91]
        );
    }

    #[tokio::test(start_paused = true)]
    async fn failures_reach_the_publisher() {
        let errors = Cell::new(0);
        let publish = |result: io::Result<_>| errors.set(errors.get() + u32::from(result.is_err()));
        let failed = Notify::new();
        let resolve = || std::future::ready(Err(io::Error::other("down")));
        let follow = follow(RESOLVE_INTERVAL, &failed, resolve, publish);
        timeout(Duration::from_secs(2), follow).await.unwrap_err();
        assert_eq!(errors.get(), 2);
    }
}
