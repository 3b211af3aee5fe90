//! Runs the target of this name on what libFuzzer finds.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    agenix_fuzz::order_envelope(data);
});
