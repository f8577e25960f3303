//! Values of `grpc-retry-pushback-ms`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| tonic_hedge::fuzz::pushback(input));
