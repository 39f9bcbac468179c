use proptest::prelude::*;

use super::*;

const HEADERS: usize = 0x400;
const OPTIONAL: usize = 0x80 + 4 + COFF_BYTES;
const TABLE: usize = OPTIONAL + 240;

/// A program for x86 with these sections, each filled up to 512 bytes.
pub fn program(sections: &[(&str, &[u8])]) -> Vec<u8> {
    let mut bytes = vec![0; HEADERS];
    bytes[..2].copy_from_slice(b"MZ");
    put(&mut bytes, 0x3c, 0x80);
    bytes[0x80..0x84].copy_from_slice(b"PE\0\0");
    bytes[0x84..0x86].copy_from_slice(&[0x64, 0x86]);
    bytes[0x84 + 16] = 240;
    bytes[OPTIONAL..OPTIONAL + 2].copy_from_slice(&PE32_PLUS.to_le_bytes());
    for (at, value) in
        [(SECTION_ALIGNMENT, 0x1000), (FILE_ALIGNMENT, 0x200), (SIZE_OF_HEADERS, HEADERS as u32), (DIRECTORIES, 16)]
    {
        put(&mut bytes, OPTIONAL + at, value);
    }
    Pe::parse(&bytes).unwrap().with_sections(sections).unwrap()
}

fn small_program() -> Vec<u8> {
    program(&[(".text", b"code"), (".data", &[7; 600])])
}

fn parse(bytes: &[u8]) -> Result<Pe<'_>, PeError> {
    Pe::parse(bytes)
}

/// The program with these numbers in the row of a section: bytes in the file, and where they begin.
fn moved(row: usize, length: u32, at: u32) -> Vec<u8> {
    let mut bytes = small_program();
    put(&mut bytes, TABLE + row * SECTION_BYTES + 16, length);
    put(&mut bytes, TABLE + row * SECTION_BYTES + 20, at);
    bytes
}

#[test]
fn headers_and_sections_are_read() {
    let bytes = small_program();
    let pe = parse(&bytes).unwrap();
    assert_eq!(pe.arch(), Some(Arch::Amd64));
    assert_eq!(
        (pe.content(".text"), pe.content(".data"), pe.content(".x")),
        (Some(&b"code"[..]), Some(&[7; 600][..]), None)
    );
    let places: Vec<_> = pe.sections().iter().map(|s| (s.virtual_address, s.virtual_bytes, s.file.clone())).collect();
    assert_eq!(places, [(0x1000, 4, 0x400..0x600), (0x2000, 600, 0x600..0xa00)]);
    assert!(!pe.is_signed() && pe.signatures().unwrap().is_empty());
    let field = |at| number(&bytes, OPTIONAL + at).unwrap();
    assert_eq!((field(SIZE_OF_IMAGE), field(INITIALIZED_DATA)), (0x3000, 0x600));
}

#[test]
fn what_signers_disagree_about_is_refused_and_named() {
    let says = |bytes: &[u8]| parse(bytes).unwrap_err().to_string();
    assert_eq!(
        says(&moved(1, 0x200, 0x800)),
        "a gap of 512 bytes between section \".text\" and section \".data\", about which signers disagree"
    );
    assert_eq!(
        says(&moved(0, 0, 0)),
        "a gap of 512 bytes between the headers and section \".data\", about which signers disagree"
    );
    assert_eq!(says(&moved(1, 0x400, 0x500)), "section \".text\" and section \".data\" overlap");
    assert_eq!(says(&moved(0, 0x200, 0x300)), "the headers and section \".text\" overlap");
    assert_eq!(says(&moved(1, 0x600, 0x600)), "it ends within section \".data\"");
    assert_eq!(says(&moved(1, u32::MAX, 0x600)), "it ends within section \".data\"");
    assert_eq!(says(&moved(1, 0x200, 0x600)), "512 bytes behind its last section that are no signatures");
    assert_eq!(says(&[small_program(), vec![0; 3]].concat()), "3 bytes behind its last section that are no signatures");
    assert_eq!(says(&moved(1, 0x3fc, 0x600)), "its last section does not end at a multiple of 8 bytes");
    assert_eq!(says(b"#!/bin/sh\n"), "not an EFI program: it does not begin with MZ");
    assert_eq!(says(&[&b"MZ"[..], &[0; 62]].concat()), "not an EFI program: it has no PE header");
    let mut narrow = small_program();
    narrow[OPTIONAL] = 0x0b;
    narrow[OPTIONAL + 1] = 1;
    assert_eq!(says(&narrow), "not an EFI program: it is not a 64-bit program (PE32+)");
    let mut four = small_program();
    put(&mut four, OPTIONAL + DIRECTORIES, 4);
    assert_eq!(says(&four), "not an EFI program: its headers have no place for signatures");
    let mut many = small_program();
    many[0x86] = 200;
    assert_eq!(says(&many), "it ends within its headers");
    // Sections may stand in any order in the headers, and one without bytes in the file is anywhere.
    let mut swapped = small_program();
    let (first, second) = swapped[TABLE..TABLE + 2 * SECTION_BYTES].split_at_mut(SECTION_BYTES);
    first.swap_with_slice(second);
    assert!(parse(&swapped).is_ok());
}

/// Each byte of a signed program is in the digest, or in one of the three places that are not.
#[test]
fn the_digest_covers_everything_but_what_signing_changes() {
    let plain = small_program();
    let signed = parse(&plain).unwrap().with_signature(&[0xab; 100]).unwrap();
    let digest = parse(&signed).unwrap().digest();
    assert_eq!(parse(&plain).unwrap().digest(), digest, "signing does not change it");
    let (sum, entry) = (OPTIONAL + CHECKSUM, OPTIONAL + CERTIFICATES);
    let mut not_covered = 0;
    for at in 0..signed.len() {
        for bit in [1, 0x80] {
            let mut changed = signed.clone();
            changed[at] ^= bit;
            let same = parse(&changed).is_ok_and(|pe| pe.digest() == digest);
            let covered = !((sum..sum + 4).contains(&at) || (entry..entry + 8).contains(&at) || at >= plain.len());
            assert!(!(same && covered), "byte {at:#x} is not covered");
            not_covered += usize::from(same);
        }
    }
    // The checksum and the bytes behind the last section; a wrong entry is refused.
    assert_eq!(not_covered, 2 * (4 + signed.len() - plain.len()));
}

#[test]
fn a_signature_is_put_in_and_replaced() {
    let plain = small_program();
    let one = parse(&plain).unwrap().with_signature(&[1; 13]).unwrap();
    assert_eq!(one.len(), plain.len() + 24);
    assert_eq!(one[plain.len()..plain.len() + 8], [21, 0, 0, 0, 0, 2, 2, 0]);
    let pe = parse(&one).unwrap();
    assert!(pe.is_signed());
    assert_eq!(pe.signatures().unwrap(), [&[1; 13]]);
    let two = pe.with_signature(&[2; 8]).unwrap();
    assert_eq!(parse(&two).unwrap().signatures().unwrap(), [&[2; 8]]);
    assert_eq!(two.len(), plain.len() + 16);
    // Sections come in front of signatures, which then are of another program.
    let more = pe.with_sections(&[(".more", b"x")]).unwrap();
    assert!(!parse(&more).unwrap().is_signed());
    // Bytes that do not lead from one signature to the next.
    let mut wrong = one;
    wrong[plain.len()] = 7;
    assert_eq!(parse(&wrong).unwrap().signatures(), Err(PeError::Signatures));
    wrong[plain.len()] = 25;
    assert_eq!(parse(&wrong).unwrap().signatures(), Err(PeError::Signatures));
}

#[test]
fn sections_are_added_above_those_in_memory() {
    let plain = small_program();
    let content = [9; 5000];
    let bytes = parse(&plain).unwrap().with_sections(&[(".one", &content), (".empty", b""), (".two", b"2")]).unwrap();
    let pe = parse(&bytes).unwrap();
    let added: Vec<_> = pe.sections()[2..].iter().map(|s| (s.virtual_address, s.virtual_bytes)).collect();
    assert_eq!(added, [(0x3000, 5000), (0x5000, 0), (0x5000, 1)]);
    assert_eq!((pe.content(".one"), pe.content(".two")), (Some(&content[..]), Some(&b"2"[..])));
    assert_eq!(number(&bytes, OPTIONAL + SIZE_OF_IMAGE), Some(0x6000));
    assert_eq!(pe.content(".text"), Some(&b"code"[..]));
    let room = (HEADERS - TABLE) / SECTION_BYTES - 2;
    let many = vec![(".x", &b"x"[..]); room + 1];
    let error = parse(&plain).unwrap().with_sections(&many).unwrap_err();
    assert_eq!(error, PeError::NoRoom { room, need: room + 1 });
    assert!(parse(&plain).unwrap().with_sections(&many[1..]).is_ok());
}

/// As Debian's linker leaves them behind systemd's stub.
#[test]
fn symbols_are_cut_off_and_nothing_else_is() {
    let plain = small_program();
    let with_tail = |tail: &[u8], symbols: u32| {
        let mut bytes = [&plain, tail].concat();
        put(&mut bytes, 0x84 + 8, plain.len() as u32);
        put(&mut bytes, 0x84 + 12, symbols);
        bytes
    };
    let tail = [&[5; 2 * SYMBOL_BYTES][..], &[9, 0, 0, 0], b"name\0"].concat();
    for filling in [0, 7] {
        let bytes = with_tail(&[&tail[..], &vec![0; filling]].concat(), 2);
        assert_eq!(parse(&bytes).unwrap_err(), PeError::Tail(tail.len() + filling));
        let cut = without_symbols(&bytes).unwrap();
        assert_eq!(parse(&cut).unwrap().digest(), parse(&plain).unwrap().digest());
        assert_eq!(cut, plain);
    }
    assert_eq!(without_symbols(&plain).unwrap(), plain);
    let signed = parse(&plain).unwrap().with_signature(&[1; 8]).unwrap();
    assert_eq!(without_symbols(&signed).unwrap(), signed);
    for (bytes, tail) in [
        (with_tail(&[&tail[..], b"more"].concat(), 2), tail.len() + 4),
        (with_tail(&tail, 3), tail.len()),
        (with_tail(&tail, u32::MAX), tail.len()),
        (with_tail(&tail[..20], 2), 20),
        ([&plain, &tail[..]].concat(), tail.len()),
    ] {
        assert_eq!(without_symbols(&bytes).unwrap_err(), PeError::Tail(tail));
    }
}

proptest! {
    #[test]
    fn no_program_is_too_odd(edits in prop::collection::vec((0_usize..0x800, any::<u32>()), 0..6), cut in 0_usize..0x900) {
        let mut bytes = parse(&small_program()).unwrap().with_signature(&[3; 40]).unwrap();
        for (at, value) in edits {
            // Most of the bytes that are read are small numbers in the headers.
            let value = if value & 1 == 0 { value } else { value & 0xfff };
            put(&mut bytes, at, value);
        }
        bytes.truncate(bytes.len().saturating_sub(cut.saturating_sub(0x400)));
        let _ = without_symbols(&bytes);
        if let Ok(pe) = parse(&bytes) {
            let digest = pe.digest();
            let _ = pe.signatures();
            if let Ok(signed) = pe.with_signature(b"signature") {
                let signed = parse(&signed).unwrap();
                prop_assert_eq!(signed.digest(), digest);
            }
            if let Ok(larger) = pe.with_sections(&[(".a", b"a"), (".b", &[1; 700])]) {
                prop_assert!(parse(&larger).unwrap().sections().len() == pe.sections().len() + 2);
            }
        }
    }
}
