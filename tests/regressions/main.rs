//! Public bugs of other hedging, retrying and balancing clients, and of the layers under this one: a
//! file for each, named by the number that `tests/README.md` gives it.

#![allow(clippy::unwrap_used)]

#[path = "../support/duplex.rs"]
mod duplex;
#[path = "../support/mod.rs"]
mod support;

mod b01_hung_when_throttled;
mod b02_commit_while_starting;
mod b15_stream_after_goaway;
mod b19_buffer_kept;
mod b22_ping_for_each_cancel;
mod b31_limit_of_each_attempt;
mod b36_streams_that_wait;
mod b38_server_concurrency_limit;
mod b42_slots_of_a_buffer;
mod b45_service_not_ready;
mod b51_attempts_after_cancel;
mod b56_timeout_of_an_attempt;
mod b61_data_of_a_loser;
mod b64_budget_of_failing_calls;
mod b70_early_response;
mod b74_denied_is_not_retried;
mod b77_connection_task_gone;
mod b79_delay_far_too_short;
mod b95_interceptor_twice;
