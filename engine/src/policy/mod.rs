//! What the user asks for: plain values with documented bounds, checked once.

mod breaker;
mod budget;
mod delay;
mod error;
mod hedge;
mod retry;
mod saturation;
mod win_rate;

pub use breaker::BreakerPolicy;
pub use budget::BudgetPolicy;
pub use delay::{BoxError, Delay, DelayFuture, RequestView, Upcoming};
pub use error::PolicyError;
pub use hedge::{Hedge, Scope, Target, Timing};
pub use retry::Retry;
pub use saturation::Saturation;
pub use win_rate::WinRate;
