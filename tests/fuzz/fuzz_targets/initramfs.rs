#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    slipway_fuzz::body("initramfs")(bytes);
});
