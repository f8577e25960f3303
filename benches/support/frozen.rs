//! A runtime in which no time passes but what is asked for, for what is counted: nothing runs by the
//! clock there (a threshold's refresh each 100 ms, say), which under valgrind, where a call
//! takes some 50 times as long, would weigh far more than it does.

use std::{io, time::Duration};

use tokio::runtime::{Builder, Runtime};

/// Longer than the pauses between two refreshes of whatever is refreshed.
const REFRESHED: Duration = Duration::from_secs(2);

/// One thread, since what two share depends on their luck.
pub(crate) fn runtime() -> io::Result<Runtime> {
    Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
}

/// Lets time pass, so that what is known of the calls before is known of those that follow.
pub(crate) async fn refresh() {
    tokio::time::advance(REFRESHED).await;
    // Those that wake do their work before this one goes on.
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
}
