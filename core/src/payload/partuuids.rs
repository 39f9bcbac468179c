//! The PARTUUIDs that the kernel command line of a slot names, such as those of `root=PARTUUID=@slot-partuuid@`.
//!
//! A slot keeps the words that were asked for, and the line that they became. So a word of the line that fits one that was asked
//! for says which partition had which PARTUUID when the slot was written. One that fits several of them says nothing.

use crate::prelude::*;

use uuid::Uuid;

use super::manifest::Manifest;
use crate::{
    boot::slot::Slot,
    disk::layout::Part,
    kernel::{
        cmdline::{MAX_BYTES, split_words},
        placeholder::{Placeholder, settle},
    },
};

const GUID_CHARS: usize = 36;
// Of the private use area, so that no command line has them.
const ANY: char = '\u{e000}';

const fn mark(part: Part) -> char {
    match part {
        Part::Esp => '\u{e001}',
        Part::Bios => '\u{e002}',
        Part::BootA => '\u{e003}',
        Part::BootB => '\u{e004}',
        Part::Meta => '\u{e005}',
        Part::State => '\u{e006}',
        Part::Ephemeral => '\u{e007}',
    }
}

/// The PARTUUIDs in the kernel command line of a slot that were put there for placeholders.
pub fn named_partuuids(manifest: &Manifest, slot: Slot) -> Vec<(Part, Uuid)> {
    let extra = manifest.kernel_args.iter().flat_map(|args| &args.extra);
    let (asked, line) = (manifest.payload_cmdline.iter().chain(extra), manifest.cmdline.as_deref().unwrap_or_default());
    // No installer has written a longer line. What was asked for has placeholders that are longer than their values.
    if line.len() > MAX_BYTES || asked.clone().map(String::len).sum::<usize>() > 8 * MAX_BYTES {
        return vec![];
    }
    let asked: Vec<String> = asked.flat_map(|text| split_words(text)).collect();
    let line = split_words(line);
    // What was asked for in so many words names what it wants.
    let settled = line.iter().filter(|word| !asked.contains(word));
    let patterns = asked.iter().filter_map(|word| settle(word, &|of| value(of, manifest, slot)).ok());
    let patterns: Vec<String> = patterns.collect();
    let mut named: Vec<(Part, Uuid)> = settled.flat_map(|word| meant(&patterns, word)).collect();
    named.sort_unstable();
    named.dedup();
    named
}

/// The value of a placeholder, or as many marks as it has characters.
fn value(of: Placeholder, manifest: &Manifest, slot: Slot) -> Option<String> {
    let marks = |mark: char, count: usize| Some(String::from_iter(core::iter::repeat_n(mark, count)));
    let partuuid = |part| marks(mark(part), GUID_CHARS);
    match of {
        Placeholder::Slot => Some(slot.to_string()),
        Placeholder::SlotPartuuid => partuuid(slot.into()),
        Placeholder::EspPartuuid => partuuid(Part::Esp),
        Placeholder::MetaPartuuid => partuuid(Part::Meta),
        Placeholder::StatePartuuid => partuuid(Part::State),
        Placeholder::EphemeralPartuuid => partuuid(Part::Ephemeral),
        Placeholder::DiskGuid => marks(ANY, GUID_CHARS),
        Placeholder::SlotUuid => marks(ANY, 9),
        Placeholder::SquashfsSha256 => marks(ANY, 64),
        Placeholder::Version => manifest.version.clone(),
    }
}

/// The PARTUUIDs in a word, if it can come from nothing else.
fn meant(patterns: &[String], word: &str) -> Vec<(Part, Uuid)> {
    let mut meanings = patterns.iter().filter_map(|pattern| fit(pattern, word));
    let first = meanings.next().unwrap_or_default();
    if meanings.all(|other| other == first) { first } else { vec![] }
}

/// The PARTUUIDs in a word. None: it does not fit.
fn fit(pattern: &str, word: &str) -> Option<Vec<(Part, Uuid)>> {
    let is_mark = |c: char| c == ANY || Part::ALL.into_iter().any(|part| mark(part) == c);
    let pairs = || pattern.chars().zip(word.chars());
    if pattern.chars().count() != word.chars().count() || !pairs().all(|(one, other)| is_mark(one) || one == other) {
        return None;
    }
    let guid = |part: &Part| {
        let at = pairs().filter(|(one, _)| *one == mark(*part)).map(|(_, other)| other);
        at.take(GUID_CHARS).collect::<String>().parse().ok()
    };
    Some(Part::ALL.into_iter().filter_map(|part| Some((part, guid(&part)?))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{kernel::arch::Arch, payload::manifest::KernelArgs};

    fn named(own: &str, extra: &[&str], line: &str) -> Vec<(Part, u128)> {
        let extra = extra.iter().map(|word| (*word).to_owned()).collect();
        let manifest = Manifest {
            format: 1,
            version: Some("1.2".to_owned()),
            epoch: 0,
            components: Default::default(),
            arch: Arch::NATIVE,
            files: vec![],
            unified: None,
            efi_stub: None,
            cmdline: Some(line.to_owned()),
            payload_cmdline: Some(own.to_owned()),
            kernel_args: Some(KernelArgs { extra, ..KernelArgs::default() }),
            image: None,
            signed_by: vec![],
        };
        named_partuuids(&manifest, Slot::B).into_iter().map(|(part, guid)| (part, guid.as_u128())).collect()
    }

    #[test]
    fn a_word_says_what_its_placeholder_stood_for() {
        let [one, two] = [1, 2].map(|n| Uuid::from_u128(n).to_string());
        let own = "quiet root=PARTUUID=@slot-partuuid@ at=@disk-guid@,@slot@,@version@,@esp-partuuid@";
        let line = format!("quiet console=tty0 root=PARTUUID={one} at={two},B,1.2,{one} x=/dev/disk/by-partuuid/{two}");
        let extra = ["x=/dev/disk/by-partuuid/@state-partuuid@ y"];
        assert_eq!(named(own, &extra, &line), [(Part::Esp, 1), (Part::BootB, 1), (Part::State, 2)]);
    }

    #[test]
    fn other_words_say_nothing() {
        let one = Uuid::from_u128(1).to_string();
        let of_others = format!("root=PARTUUID={one}");
        assert_eq!(named("quiet", &[], &of_others), []);
        // It took the place of the payload's own word.
        assert_eq!(named("root=PARTUUID=@slot-partuuid@", &["-root", &of_others], &of_others), []);
        assert_eq!(named("root=PARTUUID=@slot-partuuid@", &[], "root=PARTUUID=0123"), []);
        assert_eq!(named("root=PARTUUID=@slot-partuuid@", &[], &"root=PARTUUID=x".repeat(3)), []);
        assert_eq!(named("root=@slot-partuuid", &[], &of_others), []);
        assert_eq!(named("root=PARTUUID=@slot-partuuid@", &[], &format!("{of_others} {}", "x".repeat(MAX_BYTES))), []);
    }

    #[test]
    fn a_word_that_fits_several_says_nothing() {
        let [one, two] = [1, 2].map(|n| Uuid::from_u128(n).to_string());
        let line = format!("root=PARTUUID={one} data=PARTUUID={one} data=PARTUUID={two}");
        let root = "root=PARTUUID=@slot-partuuid@";
        for other in ["@ephemeral-partuuid@", "@disk-guid@"] {
            let data = [&*format!("data=PARTUUID={other}"), "data=PARTUUID=@state-partuuid@"];
            assert_eq!(named(root, &data, &line), [(Part::BootB, 1)], "{other}");
        }
        // It took the place of the payload's own word.
        let state = format!("root=PARTUUID={two}");
        assert_eq!(named(root, &["root=PARTUUID=@state-partuuid@"], &state), []);
        // Asked for twice, it is the same.
        assert_eq!(named(root, &[root], &state), [(Part::BootB, 2)]);
    }
}
