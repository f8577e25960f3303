//! Encoded `FileDescriptorSet`s: read, checked, merged.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| tonic_hedge::fuzz::descriptor_set(input));
