//! A call's timer, which is asked only when it has something to say.

use std::{
    future::Future as _,
    pin::{Pin, pin},
    task::{Context, Poll, Waker},
};

use pin_project_lite::pin_project;
use tokio::{
    task::unconstrained,
    time::{Instant, Sleep, sleep_until},
};

pin_project! {
    /// Ends at its time. Until then, and while the same task is to be woken, it is a look at a flag: each
    /// time that an attempt moves, its call's timer is asked too.
    pub(super) struct Timer {
        #[pin]
        sleep: Sleep,
        // Whom it wakes.
        waker: Option<Waker>,
    }
}

impl Timer {
    pub(super) fn until(at: Instant) -> Self {
        Self {
            sleep: sleep_until(at),
            waker: None,
        }
    }

    pub(super) fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.project();
        let same = |waker: &Waker| waker.will_wake(cx.waker());
        if this.waker.as_ref().is_some_and(same) && !this.sleep.is_elapsed() {
            return Poll::Pending;
        }
        // Whatever is left of the task's budget: without any it would wake its task at once, and
        // nobody later, since a waker that is known is not told again.
        let polled = pin!(unconstrained(this.sleep)).poll(cx);
        if polled.is_pending() {
            match this.waker {
                Some(waker) => waker.clone_from(cx.waker()),
                None => *this.waker = Some(cx.waker().clone()),
            }
        }
        polled
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{
            Arc,
            atomic::{AtomicU32, Ordering},
        },
        task::Wake,
        time::Duration,
    };

    use super::*;

    #[derive(Default)]
    struct Woken(AtomicU32);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Whoever has asked last is woken, and nobody else; and then its time is up.
    #[tokio::test(start_paused = true)]
    async fn the_last_that_asked_is_woken() {
        let timer = Timer::until(Instant::now() + Duration::from_secs(1));
        let mut timer = pin!(timer);
        let all = [(); 2].map(|()| Arc::new(Woken::default()));
        for woken in [&all[0], &all[0], &all[1], &all[1]] {
            let waker = Waker::from(Arc::clone(woken));
            let mut cx = Context::from_waker(&waker);
            assert!(timer.as_mut().poll(&mut cx).is_pending());
        }
        tokio::time::sleep(Duration::from_secs(2)).await;
        let counts = all.each_ref().map(|it| it.0.load(Ordering::Relaxed));
        assert_eq!(counts, [0, 1]);
        let waker = Waker::from(Arc::clone(&all[1]));
        let mut cx = Context::from_waker(&waker);
        assert!(timer.as_mut().poll(&mut cx).is_ready());
    }

    /// Also one that has nothing left of its budget when it asks first.
    #[tokio::test(start_paused = true)]
    async fn a_task_without_budget_is_woken() {
        let mut timer = pin!(Timer::until(Instant::now() + Duration::from_secs(1)));
        let mut asked = false;
        let waits = std::future::poll_fn(|cx| {
            if !std::mem::replace(&mut asked, true) {
                while pin!(tokio::task::consume_budget()).poll(cx).is_ready() {}
            }
            timer.as_mut().poll(cx)
        });
        let limit = Duration::from_secs(2);
        assert!(tokio::time::timeout(limit, waits).await.is_ok());
    }
}
