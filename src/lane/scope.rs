//! The lane that a server's request is in, for the hedges of the calls that it causes.

use tonic_hedge_engine::lane::Room;

tokio::task_local! {
    static CURRENT: Room;
}

/// What is polled within is in the request's lane. Without one, in that of what is around it.
#[derive(Clone, Debug, Default)]
pub(super) struct Scope(Option<Room>);

impl Scope {
    pub(super) fn of(room: Room) -> Self {
        Self(Some(room))
    }

    pub(super) fn within<T>(&self, poll: impl FnOnce() -> T) -> T {
        match &self.0 {
            Some(room) => CURRENT.sync_scope(room.clone(), poll),
            None => poll(),
        }
    }
}

/// The lane that the task which is polled is in.
pub(crate) fn current() -> Option<Room> {
    CURRENT.try_with(Room::clone).ok()
}
