//! Values of `grpc-status`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| tonic_hedge::fuzz::status(input));
