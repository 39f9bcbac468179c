//! What the fuzzer calls with bytes of its own making, and `tests/library/fuzz_seeds.rs` with those of the seeds: one function for
//! each format that comes from outside. A body panics where the code under test breaks a law.

mod auth;
mod chunks;
mod cmdline;
mod config;
mod disk;
mod efi;
mod fat;
mod image;
mod initramfs;
mod judge;
mod signature;
mod sparse;
mod text;

/// Takes any bytes, and tells whether the code under test accepted them as what they are meant to be.
pub type Body = fn(&[u8]) -> bool;

/// All targets by name.
pub const TARGETS: [(&str, Body); 19] = [
    ("oci", image::oci),
    ("layer", image::layer),
    ("sums", text::sums),
    ("manifest", text::manifest),
    ("adv", disk::adv),
    ("bootenv", text::bootenv),
    ("gpt", disk::gpt),
    ("cmdline", cmdline::cmdline),
    ("config", config::config),
    ("profile", config::profile),
    ("image_ref", text::image_ref),
    ("running", text::running),
    ("signature", signature::signature),
    ("pe", efi::pe),
    ("auth", auth::auth),
    ("chunks", chunks::chunks),
    ("fat", fat::fat),
    ("history", text::history),
    ("initramfs", initramfs::initramfs),
];

/// The body of a target.
pub fn body(name: &str) -> Body {
    let found = TARGETS.iter().find(|(n, _)| *n == name);
    found.unwrap_or_else(|| panic!("no fuzz target {name}")).1
}

/// Takes the first byte of an input: what the harness does with the rest. Zero at the end.
fn take(bytes: &mut &[u8]) -> u8 {
    let Some((first, rest)) = bytes.split_first() else { return 0 };
    *bytes = rest;
    *first
}

/// The same for a number of two bytes, little-endian.
fn take_u16(bytes: &mut &[u8]) -> usize {
    usize::from(u16::from_le_bytes([take(bytes), take(bytes)]))
}

/// Whether a name is one of a file beside others, not of a place elsewhere.
fn is_plain(name: &str) -> bool {
    !name.is_empty() && name != "." && name != ".." && !name.contains(['/', '\\', '\0', '\n'])
}
