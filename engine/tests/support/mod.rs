//! What the tests of the race share: latency models, and a world of calls under virtual time.

pub(crate) mod latency;
pub(crate) mod world;
