//! How much a plan may cost: each original pays a share of a hedge in, each hedge takes one out.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

/// One hedge, in the unit of the purse: loads and probabilities are exact to six decimals.
pub(super) const ONE: u64 = 1_000_000;

/// The share of load, kept exactly: whoever counts over any stretch of originals finds at most
/// `load` hedges for each, and what the purse held at its start.
#[derive(Debug)]
pub(super) struct Share {
    /// What an original pays in.
    deposit: u64,
    /// Originals so far: the only word that a call touches which is not hedged.
    started: AtomicU64,
    /// Locked for a few instructions, and only for calls that outran their threshold.
    purse: Mutex<Purse>,
}

/// What originals and hedges have come to so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Totals {
    pub(super) started: u64,
    pub(super) hedges: u64,
}

#[derive(Clone, Copy, Debug)]
struct Purse {
    /// Originals whose deposits are in it.
    counted: u64,
    balance: u64,
    /// The most that it holds.
    capacity: u64,
    /// What is left of the probabilities of former would-be hedges: less than [`ONE`].
    carry: u64,
    hedges: u64,
}

impl Share {
    pub(super) fn new(load: f64) -> Self {
        Self {
            deposit: (load * ONE as f64).round() as u64,
            started: AtomicU64::new(0),
            purse: Mutex::new(Purse {
                counted: 0,
                balance: 0,
                capacity: ONE,
                carry: 0,
                hedges: 0,
            }),
        }
    }

    pub(super) fn started(&self) {
        // Relaxed: a count, which publishes nothing.
        self.started.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether a would-be hedge starts, of which `probability` (in millionths) do. With an empty
    /// purse it does not, and its part of the probability is not made up for: what comes
    /// next is no better a call to hedge.
    pub(super) fn allow(&self, probability: u64) -> bool {
        let mut purse = self.purse.lock();
        self.settle(&mut purse);
        purse.allow(probability)
    }

    /// A hedge that was allowed is not started after all.
    pub(super) fn give_back(&self) {
        let mut purse = self.purse.lock();
        self.settle(&mut purse);
        purse.balance = (purse.balance + ONE).min(purse.capacity);
        purse.hedges = purse.hedges.saturating_sub(1);
    }

    /// What [`Share::allow`] would say now.
    pub(super) fn would_allow(&self, probability: u64) -> bool {
        let mut purse = *self.purse.lock();
        self.settle(&mut purse);
        purse.allow(probability)
    }

    /// What is left, in hedges.
    pub(super) fn balance(&self) -> f64 {
        let mut purse = *self.purse.lock();
        self.settle(&mut purse);
        purse.balance as f64 / ONE as f64
    }

    pub(super) fn totals(&self) -> Totals {
        let purse = self.purse.lock();
        Totals {
            started: self.started.load(Ordering::Relaxed),
            hedges: purse.hedges,
        }
    }

    /// Sets how many hedges the purse holds at most; never less than one.
    pub(super) fn set_capacity(&self, hedges: f64) {
        let mut purse = self.purse.lock();
        self.settle(&mut purse);
        purse.capacity = ((hedges * ONE as f64) as u64).max(ONE);
        purse.balance = purse.balance.min(purse.capacity);
    }

    /// Pays in for the originals since the last time. Nothing was taken out since, so the cap at the
    /// end is the cap at each of them.
    fn settle(&self, purse: &mut Purse) {
        // Relaxed: the purse is under a lock. Its holders see the count rise, since each reads it
        // after the one before.
        let started = self.started.load(Ordering::Relaxed);
        let new = started.saturating_sub(purse.counted);
        purse.counted = started;
        let paid = new.saturating_mul(self.deposit);
        purse.balance = purse.balance.saturating_add(paid).min(purse.capacity);
    }
}

impl Purse {
    fn allow(&mut self, probability: u64) -> bool {
        self.carry += probability;
        if self.carry < ONE {
            return false;
        }
        self.carry -= ONE;
        let is_paid = self.balance >= ONE;
        if is_paid {
            self.balance -= ONE;
            self.hedges += 1;
        }
        is_paid
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn each_original_pays_its_part() {
        let share = Share::new(0.25);
        let mut hedges = 0;
        for call in 1..=1_000 {
            share.started();
            hedges += u64::from(share.would_allow(ONE) && share.allow(ONE));
            assert_eq!(hedges, call / 4);
        }
        assert_eq!(
            share.totals(),
            Totals {
                started: 1_000,
                hedges
            }
        );
    }

    #[test]
    fn the_purse_holds_no_more_than_its_capacity() {
        let share = Share::new(0.5);
        share.set_capacity(3.5);
        (0..1_000).for_each(|_| share.started());
        assert_eq!((0..10).filter(|_| share.allow(ONE)).count(), 3);
        assert_eq!(share.balance(), 0.5);
        (0..1_000).for_each(|_| share.started());
        share.set_capacity(0.0);
        assert_eq!((0..10).filter(|_| share.allow(ONE)).count(), 1);
    }

    #[test]
    fn what_was_not_started_comes_back() {
        let share = Share::new(0.5);
        (0..2).for_each(|_| share.started());
        assert!(share.allow(ONE) && !share.allow(ONE));
        share.give_back();
        assert_eq!((share.balance(), share.totals().hedges), (1.0, 0));
        assert!(share.allow(ONE));
        assert_eq!(share.totals().hedges, 1);
    }

    #[test]
    fn a_probability_is_kept_without_lots() {
        let share = Share::new(0.5);
        share.set_capacity(1_000.0);
        (0..2_000).for_each(|_| share.started());
        let starts: Vec<_> = (0..9).map(|_| share.allow(333_334)).collect();
        assert_eq!(
            starts,
            [false, false, true, false, false, true, false, false, true]
        );
    }

    /// However threads mix, what is taken out is what was paid in.
    #[test]
    fn threads_share_it_exactly() {
        for _ in 0..50 {
            let share = Share::new(0.1);
            share.set_capacity(1_000.0);
            thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| {
                        for _ in 0..1_000 {
                            share.started();
                            share.allow(ONE);
                        }
                    });
                }
            });
            while share.allow(ONE) {}
            assert_eq!(
                share.totals(),
                Totals {
                    started: 4_000,
                    hedges: 400
                }
            );
        }
    }
}
