//! The race of one call: a pure state machine, and the async driver that performs it.
