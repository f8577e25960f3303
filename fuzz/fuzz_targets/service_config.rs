//! Service configs, as JSON.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| tonic_hedge::fuzz::service_config(input));
