//! The UEFI loader's record of a boot in the variable `SlipwayBoot`, and when it counts.
//!
//! The command line of a unified kernel image is signed and the same in every boot, so the loader records there which
//! slot it started. A variable outlives its purpose, and other programs can write one of that name: an operating
//! system, a stored one. None of these may name the slot of a system. So it counts only if the command line names none,
//! only if it is not stored, and only if it equals the loader's own, byte for byte.

use crate::prelude::*;

use core::fmt;

use slipway_boot::loader_variable;
use uuid::Uuid;

use super::slot::Slot;

/// Attributes that the loader gives it, as efivarfs shows them in front of the value. Without `NON_VOLATILE`: the
/// firmware forgets the variable with the power, and takes no such variable once the kernel runs.
const ATTRIBUTES: [u8; 4] = loader_variable::ATTRIBUTES.to_le_bytes();

/// The words of a boot, and why some are not among them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BootWords {
    /// Words of the kernel command line, and behind them those of the variable if it counts.
    pub line: String,
    /// Why a variable that is there does not count. The system does not know its slot then.
    pub not_believed: Option<NotBelieved>,
}

impl BootWords {
    /// `variable`: as efivarfs shows it, or why it cannot be read. It is asked for only if it can count.
    pub fn read(cmdline: &str, variable: impl FnOnce() -> Result<Option<Vec<u8>>, String>) -> Self {
        let line = cmdline.trim_end();
        let without = |not_believed| BootWords { line: line.to_owned(), not_believed };
        if says_where_from(line) {
            return without(None);
        }
        let told = variable().map_err(NotBelieved::Unreadable);
        match told.and_then(|value| value.as_deref().map(LoaderVariable::parse).transpose()) {
            Ok(Some(told)) => BootWords { line: format!("{line} {told}"), not_believed: None },
            Ok(None) => without(None),
            Err(why) => without(Some(why)),
        }
    }
}

/// Whether a kernel command line itself names the booted system. A live medium runs from no slot: a variable of an
/// earlier loader, whose slot did not start, is not about it.
pub fn says_where_from(cmdline: &str) -> bool {
    let says = |word: &str| word.starts_with("slipway.disk=") || word.starts_with("slipway.medium=");
    cmdline.split_ascii_whitespace().any(says)
}

/// Content of the variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoaderVariable {
    /// The slot that was started.
    pub slot: Slot,
    /// GUID of its disk.
    pub disk: Uuid,
    /// Whether it is a trial.
    pub trial: bool,
}

impl LoaderVariable {
    /// Read the variable as efivarfs shows it.
    pub fn parse(value: &[u8]) -> Result<Self, NotBelieved> {
        let (attributes, words) = value.split_first_chunk().ok_or(NotBelieved::Words)?;
        if *attributes != ATTRIBUTES {
            return Err(NotBelieved::Attributes(*attributes));
        }
        Self::of_words(words).ok_or(NotBelieved::Words)
    }

    fn of_words(words: &[u8]) -> Option<Self> {
        let text = str::from_utf8(words).ok()?;
        let mut words = text.split(' ');
        let mut value = |key| words.next()?.strip_prefix(key)?.strip_prefix('=');
        let slot = value("slipway.slot")?.parse().ok()?;
        let disk = value("slipway.disk")?.parse().ok()?;
        let told = LoaderVariable { slot, disk, trial: value("slipway.try")? == "1" };
        // Nothing is missing, doubled, behind it or spelt in another way.
        (told.to_string() == text).then_some(told)
    }
}

/// The loader's own text.
impl fmt::Display for LoaderVariable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LoaderVariable { slot, disk, trial } = self;
        write!(f, "slipway.slot={slot} slipway.disk={disk} slipway.try={}", u8::from(*trial))
    }
}

/// Why the variable does not count.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotBelieved {
    /// It is stored, or other programs may write it.
    #[error(
        "the variable SlipwayBoot of the firmware is not believed: its attributes are {}, and those that the loader gives it are \
         {}, so another program wrote it; which slot runs, and whether it is a trial, is not known",
        hex(.0),
        hex(&ATTRIBUTES)
    )]
    Attributes([u8; 4]),
    /// It says something else than the loader does.
    #[error(
        "the variable SlipwayBoot of the firmware is not believed: it does not hold slipway.slot, slipway.disk and slipway.try as \
         the loader writes them, and nothing else; which slot runs, and whether it is a trial, is not known"
    )]
    Words,
    /// The kernel does not show it.
    #[error(
        "the variable SlipwayBoot of the firmware cannot be read ({0}): which slot runs, and whether it is a trial, is not known"
    )]
    Unreadable(String),
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::boot::running::Running;

    const GUID: &str = "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0";

    fn words(slot: &str, disk: &str, r#try: &str) -> String {
        format!("slipway.slot={slot} slipway.disk={disk} slipway.try={try}")
    }

    fn value(attributes: [u8; 4], words: &str) -> Vec<u8> {
        [&attributes[..], words.as_bytes()].concat()
    }

    fn told(words: &str) -> Result<LoaderVariable, NotBelieved> {
        LoaderVariable::parse(&value(ATTRIBUTES, words))
    }

    fn boot(cmdline: &str, variable: &[u8]) -> BootWords {
        BootWords::read(cmdline, || Ok(Some(variable.to_vec())))
    }

    #[test]
    fn what_the_loader_writes() {
        let disk = GUID.parse().unwrap();
        assert_eq!(told(&words("A", GUID, "0")), Ok(LoaderVariable { slot: Slot::A, disk, trial: false }));
        assert_eq!(told(&words("B", GUID, "1")), Ok(LoaderVariable { slot: Slot::B, disk, trial: true }));
    }

    #[test]
    fn what_it_does_not_write() {
        let good = words("B", GUID, "1");
        let bad = [
            String::new(),
            "quiet".to_owned(),
            words("C", GUID, "1"),
            words("b", GUID, "1"),
            words("B", "x", "1"),
            words("B", "", "1"),
            words("B", &GUID.to_uppercase(), "1"),
            words("B", &GUID.replace('-', ""), "1"),
            words("B", &format!("{{{GUID}}}"), "1"),
            words("B", GUID, "2"),
            words("B", GUID, ""),
            words("B", GUID, "01"),
            format!("slipway.slot=B slipway.disk={GUID}"),
            format!("slipway.disk={GUID} slipway.slot=B slipway.try=1"),
            format!("{good} slipway.try=0"),
            format!("{good} slipway.rootfs=00"),
            format!("{good} slipway.shell"),
            format!("slipway.shell {good}"),
            format!("slipway.slot=A {good}"),
            format!("{good} "),
            format!(" {good}"),
            format!("{good}\n"),
            format!("{good}\0"),
            good.replacen(' ', "  ", 1),
            good.replacen(' ', "\t", 1),
        ];
        for bad in bad {
            assert_eq!(told(&bad), Err(NotBelieved::Words), "{bad:?}");
        }
        assert_eq!(LoaderVariable::parse(&[&ATTRIBUTES[..], b"slipway.slot=\xff"].concat()), Err(NotBelieved::Words));
        for short in [&[][..], &[6], &[6, 0, 0]] {
            assert_eq!(LoaderVariable::parse(short), Err(NotBelieved::Words));
        }
    }

    /// Stored, for the boot services alone, authenticated, or with bits that have no meaning.
    #[test]
    fn attributes_of_others() {
        for bad in [[7, 0, 0, 0], [2, 0, 0, 0], [0x26, 0, 0, 0], [0, 0, 0, 6], [6, 0, 0, 1]] {
            let boot = boot("quiet", &value(bad, &words("B", GUID, "1")));
            assert_eq!((boot.line.as_str(), &boot.not_believed), ("quiet", &Some(NotBelieved::Attributes(bad))));
        }
        let text = NotBelieved::Attributes([7, 0, 0, 0]).to_string();
        assert!(text.contains("07 00 00 00") && text.contains("06 00 00 00"), "{text}");
    }

    /// A unified kernel image was started and came back, and then the same run of the loader started a slot with a command
    /// line of its own. The variable is still that of the image.
    #[test]
    fn a_command_line_that_says_it_counts() {
        let stale = value(ATTRIBUTES, &words("B", GUID, "1"));
        let line = format!("quiet {}\n", words("A", GUID, "0"));
        let disk = GUID.parse().unwrap();
        let found = boot(&line, &stale);
        assert_eq!(found, BootWords { line: line.trim_end().to_owned(), not_believed: None });
        assert_eq!(Running::from_cmdline(&found.line, disk), Running::This { slot: Slot::A, trial: false });
        // Any value counts: no sensible value would mean that this is no such image.
        for line in ["slipway.disk=", "slipway.disk=sda quiet", "slipway.medium=1 quiet"] {
            assert_eq!(boot(line, &stale), BootWords { line: line.to_owned(), not_believed: None });
            let unasked = BootWords::read(line, || panic!("it is not asked for"));
            assert_eq!(unasked.line, line);
        }
        for line in ["", "quiet", "slipway.disks=1 xslipway.disk=1", "slipway.slot=A slipway.try=0"] {
            let found = boot(line, &stale);
            assert_eq!(
                Running::from_cmdline(&found.line, disk),
                Running::This { slot: Slot::B, trial: true },
                "{line}"
            );
        }
    }

    /// If the variable does not count, the system does not know its slot: as without a variable.
    #[test]
    fn not_believed() {
        let disk = GUID.parse().unwrap();
        let unreadable = BootWords::read("quiet\n", || Err("Input/output error".to_owned()));
        assert!(matches!(&unreadable.not_believed, Some(NotBelieved::Unreadable(why)) if why.contains("Input")));
        let none = BootWords::read("quiet\n", || Ok(None));
        assert_eq!(none.not_believed, None);
        let wrong = boot("quiet\n", &value(ATTRIBUTES, "slipway.try=1"));
        assert_eq!(wrong.not_believed, Some(NotBelieved::Words));
        for boot in [unreadable, none, wrong] {
            assert_eq!((boot.line.as_str(), Running::from_cmdline(&boot.line, disk)), ("quiet", Running::Unknown));
        }
    }

    fn like_it() -> impl Strategy<Value = Vec<u8>> {
        let letter = prop::sample::select(vec!["A", "B", "C", ""]);
        let number = prop::sample::select(vec!["0", "1", "2", ""]);
        let space = prop::sample::select(vec![" ", "  ", "\n", ""]);
        let more = prop::sample::select(vec!["", "", " ", " slipway.shell", "\0"]);
        let last = prop::sample::select(vec![6u8, 7, 0]);
        (letter, number, space, more, last, any::<u128>()).prop_map(|(slot, r#try, space, more, first, guid)| {
            let disk = Uuid::from_u128(guid);
            let text = format!("slipway.slot={slot}{space}slipway.disk={disk} slipway.try={try}{more}");
            value([first, 0, 0, 0], &text)
        })
    }

    proptest! {
        #[test]
        fn what_is_told_is_read(b in any::<bool>(), guid in any::<u128>(), trial in any::<bool>()) {
            let told = LoaderVariable { slot: if b { Slot::B } else { Slot::A }, disk: Uuid::from_u128(guid), trial };
            prop_assert_eq!(LoaderVariable::parse(&value(ATTRIBUTES, &told.to_string())), Ok(told));
        }

        /// Any content of the variable adds the loader's own words to the command line, or nothing and the reason.
        #[test]
        fn nothing_else_gets_in(
            variable in prop_oneof![like_it(), prop::collection::vec(any::<u8>(), 0..150)],
            cmdline in "(quiet|slipway\\.disk=1|slipway\\.shell| ){0,4}",
        ) {
            let found = boot(&cmdline, &variable);
            let added = found.line.strip_prefix(cmdline.trim_end()).unwrap();
            if says_where_from(&cmdline) || found.not_believed.is_some() {
                prop_assert_eq!(added, "");
                prop_assert!(!says_where_from(&cmdline) || found.not_believed.is_none());
            } else {
                let told = LoaderVariable::parse(&variable).unwrap();
                prop_assert_eq!(added, format!(" {told}"));
                prop_assert_eq!(value(ATTRIBUTES, &told.to_string()), variable);
            }
        }
    }
}
