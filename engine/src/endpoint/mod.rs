//! Load, choice and reset ration of endpoints, without the connections.
//!
//! - [`Load`]: how busy and how slow an endpoint is, the picker's measure.
//! - [`pick`]: which of an indexable set an attempt goes to.
//! - [`Losses`]: which of the attempts that a connection takes with it tells of its loss.
//! - [`ResetRation`]: how many attempts may be cut off before the peer takes offence.

mod load;
mod loss;
mod pick;
mod ration;

pub use self::{
    load::Load,
    loss::Losses,
    pick::pick,
    ration::{RESET_WINDOW, RESETS_IN_WINDOW, RESETS_UNANSWERED, ResetRation},
};
