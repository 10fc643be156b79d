//! libFuzzer's entry to the target of this name; what it does is in `src/targets/projection.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| baton_fuzz::targets::projection::run(data));
