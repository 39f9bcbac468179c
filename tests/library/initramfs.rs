//! Where an initramfs ends: whole ones pass, and one that was cut is found, wherever the format allows it. Judged by the
//! libraries that make the streams; by the real tools in `tests/sources/cut_payload.rs`.

use std::io::Write as _;

use flate2::{Compression, GzBuilder};
use liblzma::{
    stream::{Check, Filters, LzmaOptions, Stream},
    write::XzEncoder,
};
use proptest::prelude::*;
use slipway_core::payload::format_checks::{InitramfsWatch, Unbootable};
use slipway_test_support::{
    files::{cpio, initramfs},
    world::noise,
};

fn verdict(bytes: &[u8], piece: usize) -> Result<(), Unbootable> {
    let mut watch = InitramfsWatch::default();
    bytes.chunks(piece.max(1)).for_each(|piece| watch.see(piece));
    watch.finish()
}

/// As a file is read that can be read at any place.
fn verdict_by_headings(bytes: &[u8], piece: usize) -> (Result<(), Unbootable>, usize) {
    let (mut watch, mut at, mut shown) = (InitramfsWatch::default(), 0, 0);
    while at < bytes.len() {
        let passed = watch.passes_over().min((bytes.len() - at) as u64);
        watch.pass(passed);
        at += passed as usize;
        let piece = &bytes[at..bytes.len().min(at + piece.max(1))];
        watch.see(piece);
        at += piece.len();
        shown += piece.len();
    }
    (watch.finish(), shown)
}

/// Half of it compresses, half does not.
fn content(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = noise(seed, len / 2);
    bytes.extend((0..len - len / 2).map(|n| b"slipway "[n % 8]));
    bytes
}

fn xz(bytes: &[u8], check: Check, with_bcj: bool) -> Vec<u8> {
    let options = LzmaOptions::new_preset(1).unwrap();
    let mut filters = Filters::new();
    if with_bcj {
        filters.x86();
    }
    filters.lzma2(&options);
    let mut encoder = XzEncoder::new_stream(Vec::new(), Stream::new_stream_encoder(&filters, check).unwrap());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn zstd(bytes: &[u8], level: i32, checksum: bool, with_size: bool) -> Vec<u8> {
    let mut encoder = zstd::Encoder::new(Vec::new(), level).unwrap();
    encoder.include_checksum(checksum).unwrap();
    if with_size {
        encoder.set_pledged_src_size(Some(bytes.len() as u64)).unwrap();
    }
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn gzip(bytes: &[u8], with_name: bool) -> Vec<u8> {
    let mut builder = GzBuilder::new();
    if with_name {
        builder = builder.filename("initramfs");
    }
    let mut encoder = builder.write(Vec::new(), Compression::new(u32::from(with_name) * 5 + 1));
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// Blocks of literals only: what is in them does not matter.
fn lz4(bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![2, 0x21, 0x4c, 0x18];
    for block in bytes.chunks(1000) {
        out.extend((block.len() as u32).to_le_bytes());
        out.extend(block);
    }
    out
}

#[derive(Clone, Copy, Debug)]
enum Format {
    Cpio,
    Xz(Check, bool),
    Zstd(i32, bool, bool),
    Gzip(bool),
}

impl Format {
    fn pack(self, archive: &[u8]) -> Vec<u8> {
        match self {
            Format::Cpio => archive.to_vec(),
            Format::Xz(check, with_bcj) => xz(archive, check, with_bcj),
            Format::Zstd(level, checksum, with_size) => zstd(archive, level, checksum, with_size),
            Format::Gzip(with_name) => gzip(archive, with_name),
        }
    }
}

fn format() -> impl Strategy<Value = Format> {
    let check = prop::sample::select(vec![Check::None, Check::Crc32]);
    prop_oneof![
        Just(Format::Cpio),
        (check, any::<bool>()).prop_map(|(check, with_bcj)| Format::Xz(check, with_bcj)),
        (prop::sample::select(vec![-5, 1, 3, 12]), any::<bool>(), any::<bool>())
            .prop_map(|(level, checksum, with_size)| Format::Zstd(level, checksum, with_size)),
        any::<bool>().prop_map(Format::Gzip),
    ]
}

/// Parts, and how many zeros stand behind each, in units of 4 bytes.
fn parts() -> impl Strategy<Value = Vec<(Format, u64, usize, usize)>> {
    prop::collection::vec((format(), any::<u64>(), 0..3000usize, 0..5usize), 1..4)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whole_ones_pass_and_cut_ones_do_not(parts in parts(), pieces: [u16; 2], fractions: [u16; 24]) {
        let mut bytes = Vec::new();
        // Where an initramfs of fewer parts ends: between the last byte that counts and the next part.
        let mut ends = Vec::new();
        for (format, seed, len, zeros) in parts {
            // Linux takes an archive that is not compressed at a multiple of 4 only.
            bytes.resize(bytes.len().next_multiple_of(4), 0);
            if let Some((_, end)) = ends.last_mut() {
                *end = bytes.len();
            }
            bytes.extend(format.pack(&cpio(&content(seed, len))));
            let last = bytes.len() - bytes.iter().rev().take_while(|byte| **byte == 0).count().min(3);
            ends.push((last, bytes.len() + 4 * zeros));
            bytes.resize(bytes.len() + 4 * zeros, 0);
        }
        let pieces = pieces.map(|piece| usize::from(piece) % 700 + 1);
        prop_assert_eq!(verdict(&bytes, bytes.len()), Ok(()));
        prop_assert_eq!(verdict(&bytes, pieces[0]), Ok(()));
        prop_assert_eq!(verdict_by_headings(&bytes, pieces[1]).0, Ok(()));
        for fraction in fractions {
            let at = bytes.len() * usize::from(fraction) / (usize::from(u16::MAX) + 1);
            let cut = verdict(&bytes[..at], pieces[0]);
            prop_assert_eq!(&verdict(&bytes[..at], pieces[1]), &cut);
            prop_assert_eq!(&verdict_by_headings(&bytes[..at], pieces[1]).0, &cut);
            // The first byte of a part is not yet one.
            let may_end = ends.iter().any(|(last, end)| (*last..=*end + 1).contains(&at));
            prop_assert!(cut.is_err() || may_end, "cut at {at} of {}, where parts end: {ends:?}", bytes.len());
        }
    }

    /// Whatever it is, there is a verdict, the same for any pieces, and never more than one heading is kept.
    #[test]
    fn anything_has_one_verdict(head in prop::sample::select(MAGICS.to_vec()), rest: Vec<u8>, piece in 1..40usize) {
        let bytes = [head, &rest].concat();
        let whole = verdict(&bytes, bytes.len());
        prop_assert_eq!(&verdict(&bytes, piece), &whole);
        prop_assert_eq!(&verdict_by_headings(&bytes, piece).0, &whole);
    }
}

const MAGICS: [&[u8]; 10] = [
    b"",
    b"070701",
    b"\x1f\x8b\x08\x1e",
    b"\xfd7zXZ\0\0\x01",
    b"\x28\xb5\x2f\xfd",
    b"\x02\x21\x4c\x18",
    b"BZh9",
    b"\x5d\0\0",
    b"\x89LZO\0",
    b"\0\0\0\0",
];

/// The kernel of the payload would panic over these: its decoders are smaller than the programs'.
#[test]
fn what_linux_does_not_unpack() {
    let archive = cpio(&content(1, 700));
    let refused = |bytes: &[u8], what: &str| match verdict(bytes, 7) {
        Err(Unbootable::NotUnpacked { why, .. }) => assert!(why.contains(what), "{why}"),
        other => panic!("{what}: {other:?}"),
    };
    for in_gzip in [&b""[..], b"junk", &archive[..600], &gzip(&archive, false)] {
        refused(&gzip(in_gzip, false), "whole cpio archives");
    }
    // Behind a whole one it says so in its log, and goes on.
    assert_eq!(verdict(&gzip(&[&archive[..], b"junk, no archive"].concat(), false), 7), Ok(()));
    refused(&[gzip(&archive[..600], false), gzip(&archive[600..], false)].concat(), "whole cpio archives");
    for flag in [2, 4, 16] {
        let mut with_more = gzip(&archive, true);
        with_more[3] |= flag;
        refused(&with_more, "more than a name");
    }
    for check in [Check::Crc64, Check::Sha256] {
        refused(&xz(&archive, check, false), "--check=crc32");
    }
    // A frame with a window of 2^27 bytes, and one more; then one in one segment, by its size.
    let frame = |descriptor: u8, rest: &[u8]| [&[0x28, 0xb5, 0x2f, 0xfd, descriptor], rest].concat();
    let taken = |bytes: &[u8]| assert!(matches!(verdict(bytes, 7), Err(Unbootable::Cut { .. })), "{bytes:x?}");
    taken(&frame(0, &[17 << 3, 1]));
    refused(&frame(0, &[17 << 3 | 1, 1]), "128 MiB");
    taken(&frame(0xa0, &(128_u32 << 20).to_le_bytes()));
    refused(&frame(0xa0, &((128_u32 << 20) + 1).to_le_bytes()), "128 MiB");
    refused(&frame(0xe0, &(1_u64 << 40).to_le_bytes()), "128 MiB");
}

/// Every byte at which a small one can be cut.
#[test]
fn a_cut_at_every_byte() {
    let archive = cpio(&content(1, 700));
    let all = [
        Format::Cpio,
        Format::Xz(Check::Crc32, false),
        Format::Xz(Check::None, true),
        Format::Zstd(3, true, true),
        Format::Zstd(3, false, false),
        Format::Gzip(false),
        Format::Gzip(true),
    ];
    for format in all {
        let bytes = format.pack(&archive);
        assert_eq!(verdict(&bytes, 7), Ok(()), "{format:?}");
        // An archive may be filled up with zeros.
        let last = bytes.len() - if let Format::Cpio = format { 3 } else { 0 };
        for at in 0..last {
            let error = verdict(&bytes[..at], 7).expect_err(&format!("{format:?} cut at {at} of {}", bytes.len()));
            if let Unbootable::Cut { needs, has, .. } = error {
                assert!(has == at as u64 && needs > has && needs <= bytes.len() as u64, "{format:?} {at}: {needs}");
            } else {
                assert!(at < 6, "{format:?} cut at {at}: {error}");
            }
        }
    }
}

#[test]
fn blocks_of_lz4_end_where_they_end() {
    let bytes = lz4(&noise(1, 3500));
    assert_eq!(verdict(&bytes, 5), Ok(()));
    let between = [4 + 1004, 4 + 2 * 1004, 4 + 3 * 1004];
    for at in 0..bytes.len() {
        assert_eq!(verdict(&bytes[..at], 5).is_ok(), between.contains(&at), "{at}");
    }
    let padded = [&bytes[..], &[0; 3]].concat();
    assert_eq!(verdict(&padded, 5), Ok(()));
    assert_eq!(verdict(&[padded, vec![0; 600]].concat(), 5), Ok(()));
    assert_eq!(verdict(&[&bytes[..], &bytes].concat(), 5), Ok(()), "two archives, each with its magic");
    // Fewer than four zeros make a size of them and of what follows.
    let archive = cpio(&content(1, 700));
    for next in [Format::Cpio, Format::Gzip(false), Format::Xz(Check::Crc32, false), Format::Zstd(3, true, true)] {
        let next = next.pack(&archive);
        for zeros in 0..4 {
            let result = verdict(&[&bytes, &vec![0; zeros][..], &next].concat(), 5);
            let is_refused = matches!(result, Err(Unbootable::NotUnpacked { why, .. }) if why.contains("four zeros"));
            assert!(is_refused, "{zeros}: {result:?}");
        }
        let aligned = (bytes.len() + 4).next_multiple_of(4);
        assert_eq!(verdict(&[&bytes, &vec![0; aligned - bytes.len()][..], &next].concat(), 5), Ok(()));
    }
    // Nothing comes out of the first block, if its size is none.
    let mut damaged = bytes;
    damaged[7] = 0x7f;
    assert!(matches!(verdict(&damaged, 5), Err(Unbootable::Damaged { what: "lz4 stream", .. })));
}

/// A multiple of what is decompressed at once comes out of a stream whose last byte ends a piece.
#[test]
fn gzip_that_comes_out_in_full_buffers() {
    for kib in [64, 128, 192] {
        let mut archive = cpio(b"x");
        archive.resize(kib << 10, 0);
        let bytes = gzip(&archive, false);
        for piece in [1, 2, 3, bytes.len() - 8, bytes.len()] {
            assert_eq!(verdict(&bytes, piece), Ok(()), "{kib} KiB in pieces of {piece}");
        }
        assert!(verdict(&bytes[..bytes.len() - 9], 3).is_err());
    }
}

#[test]
fn what_is_no_initramfs() {
    let no: [&[u8]; 7] =
        [b"", b"abc", b"not an initramfs", &[0; 4096], b"070707 is cpio -c", b"\x04\x22\x4d\x18 lz4", b"hsqs\0\0\0\0"];
    for bytes in no {
        assert_eq!(verdict(bytes, 3), Err(Unbootable::NotInitramfs), "{bytes:?}");
    }
    assert_eq!(InitramfsWatch::begins(b"not an initramfs"), Err(Unbootable::NotInitramfs));
    assert_eq!(InitramfsWatch::begins(&initramfs(b"x")[..20]), Ok(()));
}

/// Linux says so in its log, and boots with what it has.
#[test]
fn what_follows_a_whole_part_passes() {
    let whole = initramfs(&content(2, 500));
    for behind in [&b"signed by somebody"[..], b"\x01", b"\0\0\x02", b"B", &noise(3, 5000), b"\0\0\0\0\x01\x02\x03"] {
        assert_eq!(verdict(&[&whole, behind].concat(), 9), Ok(()), "{behind:?}");
    }
    // Unless it is of a format that Linux does not know: there may be the system.
    for foreign in [&b"070707 is cpio -c"[..], b"\x04\x22\x4d\x18 lz4", b"LZIP\x01 ", b"hsqs\0\0\0\0", b"P*M\x18\x04\0"]
    {
        let result = verdict(&[&whole, foreign].concat(), 9);
        assert!(matches!(result, Err(Unbootable::NotUnpacked { what: "next part", .. })), "{foreign:?}: {result:?}");
    }
    // Unless it may be the beginning of another.
    for magic in &MAGICS[1..9] {
        let result = verdict(&[&whole[..], &magic[..magic.len().min(4)]].concat(), 9);
        assert!(matches!(result, Err(Unbootable::Cut { .. })), "{magic:?}: {result:?}");
    }
}

#[test]
fn an_archive_with_an_entry_that_is_none() {
    let mut archive = cpio(&content(1, 700));
    let trailer = archive.len() - 124;
    archive[trailer + 5] = b'7';
    assert_eq!(verdict(&archive, 50), Err(Unbootable::Damaged { what: "cpio archive", at: trailer as u64 }));
}

/// Of a long one, hardly anything is read.
#[test]
fn headings_are_few() {
    let big = content(5, 6 << 20);
    for (format, most) in
        [(Format::Cpio, 1000), (Format::Zstd(1, true, true), 100_000), (Format::Xz(Check::Crc32, false), 100_000)]
    {
        let bytes = format.pack(&cpio(&big));
        let (verdict, shown) = verdict_by_headings(&bytes, 512);
        assert_eq!(verdict, Ok(()));
        assert!(shown < most, "{format:?}: {shown} of {} bytes", bytes.len());
    }
}
