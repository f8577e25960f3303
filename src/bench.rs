//! What `benches/scaling` measures of a channel without making calls: its picker, its table of
//! methods, and what a call teaches them.

use std::{sync::Arc, time::Duration};

use crate::{
    HedgedChannel,
    channel::Shared,
    endpoint::{Endpoint, Picked, Purpose},
};

/// The inside of a channel.
#[derive(Debug)]
pub struct Inside<'a>(&'a Shared);

/// Where an attempt goes.
#[derive(Debug)]
pub struct Place([Arc<Endpoint>; 1]);

impl<'a> Inside<'a> {
    /// Of this channel.
    pub fn of(channel: &'a HedgedChannel) -> Self {
        Self(channel.shared())
    }

    /// Picks for an original.
    pub fn original(&self, now: Duration) -> Option<Place> {
        self.pick(now, &[], Purpose::Original)
    }

    /// Picks for a hedge of it.
    pub fn hedge(&self, now: Duration, original: &Place) -> Option<Place> {
        self.pick(now, &original.0, Purpose::Hedge)
    }

    /// Chooses for an original, without a clone of tonic's channel to it.
    pub fn choice(&self, now: Duration) -> Option<usize> {
        let endpoints = self.0.endpoints();
        endpoints.choice(now, &[], Purpose::Original)
    }

    /// Chooses for a hedge of it, without a clone of tonic's channel to it.
    pub fn hedge_choice(&self, now: Duration, original: &Place) -> Option<usize> {
        let endpoints = self.0.endpoints();
        endpoints.choice(now, &original.0, Purpose::Hedge)
    }

    /// Whether there is a place for a hedge of it: what the gate asks.
    pub fn could_hedge(&self, original: &Place) -> bool {
        let endpoints = self.0.endpoints();
        endpoints.has_ready(&original.0, Purpose::Hedge)
    }

    fn pick(&self, now: Duration, tried: &[Arc<Endpoint>], purpose: Purpose) -> Option<Place> {
        match self.0.endpoints().pick(now, tried, purpose) {
            Picked::Endpoint(endpoint, _channel) => Some(Place([endpoint])),
            Picked::Wait | Picked::None(_) => None,
        }
    }

    /// Looks up the method of a path, and returns its name.
    pub fn find<'b>(&'b self, path: &'b str) -> &'b str {
        self.0.methods().find(path).0.name()
    }

    /// An original of the path's method was answered by the place after `latency`.
    pub fn answered(&self, path: &str, now: Duration, place: &Place, latency: Duration) {
        let (method, _) = self.0.methods().find(path);
        method.learn(now, &place.0[0], latency);
    }

    /// A hedge beat it there, after it had run for so long.
    pub fn beaten(&self, path: &str, now: Duration, place: &Place, ran: Duration) {
        let (method, _) = self.0.methods().find(path);
        method.learn_cut(now, &place.0[0], ran);
    }
}
