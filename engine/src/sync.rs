//! Atomics, locks and shared pointers: the usual ones, or loom's where a model runs every
//! interleaving of them (`.ci/loom`).

#[cfg(not(all(test, loom)))]
pub(crate) use std::sync::{Arc, atomic};

#[cfg(not(all(test, loom)))]
pub(crate) use parking_lot::Mutex;

#[cfg(all(test, loom))]
pub(crate) use loom::sync::{Arc, atomic};

#[cfg(all(test, loom))]
pub(crate) use model::Mutex;

#[cfg(all(test, loom))]
mod model {
    /// loom's, with the face of `parking_lot`'s.
    #[derive(Debug)]
    pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(loom::sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> loom::sync::MutexGuard<'_, T> {
            self.0.lock().unwrap()
        }
    }
}
