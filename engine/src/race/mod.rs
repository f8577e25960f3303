//! The race of one call: a pure state machine, and the async driver that performs it.
//!
//! Events go into [`Race::on`] (an attempt finished, a gate verdict, time passed), one
//! [`Step`] comes out (launch, ask, wait, end). The machine has no I/O, no clock and no
//! async, so its rules are tested as tables and every interleaving is searched. [`Drive`] is
//! the future that performs the steps on a [`Host`].

mod driver;
mod machine;

pub use driver::{Answer, Asked, Drive, Gone, Host, Launched, Over};
pub use machine::{
    Ask, AttemptId, End, Event, Kind, Launch, MAX_UNSENT, Pushback, Race, Rules, Step, Trigger,
    Unsent, Verdict,
};
