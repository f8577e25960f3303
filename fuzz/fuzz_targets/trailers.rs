//! Whole trailers, and the head before them.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| tonic_hedge::fuzz::trailers(input));
