//! Values of `grpc-timeout`, and what is written of a time that is left.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| tonic_hedge::fuzz::timeout(input));
