//! Two clocks: chat takes seconds and an incident forty minutes, and here all is sixteen times as fast.

use std::time::Duration;

/// Forty minutes in two and a half. Faster, and the timer's millisecond would show in a healthy
/// call, which takes 90.
pub(crate) const SCALE: u32 = 16;

/// Seconds of chat, as time here.
pub(crate) fn chat(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds / f64::from(SCALE))
}

/// Time here, as seconds of chat.
pub(crate) fn chat_seconds(milliseconds: f64) -> f64 {
    milliseconds * f64::from(SCALE) / 1e3
}
