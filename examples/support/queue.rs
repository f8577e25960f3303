//! A server's finite queue: so many are served at once, so many wait, the rest is refused at once.

use std::time::Duration;

use tokio::{sync::Semaphore, time::sleep};
use tonic::Status;

pub(crate) struct Queue {
    slots: Semaphore,
    /// For those in the slots as well as those that wait.
    places: Semaphore,
}

impl Queue {
    /// Serves `slots` at once while `waiting` wait, first come, first served.
    pub(crate) fn new(slots: usize, waiting: usize) -> Self {
        Self {
            slots: Semaphore::new(slots),
            places: Semaphore::new(slots + waiting),
        }
    }

    /// Waits for a slot and holds it for `work`. Whoever is dropped makes room at once.
    pub(crate) async fn serve(&self, work: Duration) -> Result<(), Status> {
        let full = |_| Status::resource_exhausted("the queue is full");
        let _place = self.places.try_acquire().map_err(full)?;
        let closed = |_| Status::internal("the queue is closed");
        let _slot = self.slots.acquire().await.map_err(closed)?;
        sleep(work).await;
        Ok(())
    }
}
