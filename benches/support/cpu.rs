//! The CPU time of this process, user and system.

use rustix::time::{ClockId, clock_gettime};

/// In seconds, to the nanosecond.
pub(crate) fn seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}
