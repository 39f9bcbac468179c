#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    slipway_fuzz::body("fat")(bytes);
});
