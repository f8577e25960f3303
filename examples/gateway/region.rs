//! What is wrong with a region: nothing, or it fails, or it is slow.

use std::{
    sync::atomic::{AtomicU32, AtomicU64, Ordering},
    time::Duration,
};

/// A region of replicas, whose condition may change at any time.
#[derive(Debug)]
pub(crate) struct Region {
    pub(crate) name: &'static str,
    floor_micros: AtomicU64,
    /// Of a million attempts.
    errors: AtomicU32,
}

const ALL: f64 = 1e6;

/// The regions, and how many replicas each has. Of two replicas by lot both are in the smaller one
/// for a call in fifteen: so many originals meet it however slow it is.
pub(crate) const REGIONS: [(&str, usize); 2] = [("west", 4), ("east", 2)];

// Relaxed, everywhere here: whichever condition an attempt on the edge sees is right.
impl Region {
    pub(crate) fn new(name: &'static str) -> Self {
        Self {
            name,
            floor_micros: AtomicU64::new(0),
            errors: AtomicU32::new(0),
        }
    }

    /// One of [`REGIONS`], by its name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        let (name, _) = REGIONS.into_iter().find(|(it, _)| *it == name)?;
        Some(Self::new(name))
    }

    /// No first token comes sooner.
    pub(crate) fn floor(&self) -> Duration {
        Duration::from_micros(self.floor_micros.load(Ordering::Relaxed))
    }

    pub(crate) fn set_floor(&self, floor: Duration) {
        let micros = u64::try_from(floor.as_micros()).unwrap_or(u64::MAX);
        self.floor_micros.store(micros, Ordering::Relaxed);
    }

    /// The share of attempts that fail.
    pub(crate) fn errors(&self) -> f64 {
        f64::from(self.errors.load(Ordering::Relaxed)) / ALL
    }

    pub(crate) fn set_errors(&self, share: f64) {
        self.errors
            .store((share.clamp(0.0, 1.0) * ALL) as u32, Ordering::Relaxed);
    }
}
