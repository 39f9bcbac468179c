//! Instructions for an unattended installation, from the kernel command line of a live system and the machine config.
//!
//! | word | |
//! |---|---|
//! | `slipway.install=/dev/sda` | onto this disk |
//! | `slipway.install=serial:X,size:>=1TB` | onto the one disk that `machine.install.diskSelector` would select with these keys |
//! | `slipway.install=config` | onto the disk that the machine config names |
//! | `slipway.install.preserve=true\|false` | whether to keep an installation on it; if not given, one is left alone |
//! | `slipway.install.then=reboot\|poweroff\|stay` | what to do afterwards |
//! | `slipway.medium=ID` | ID of the live medium |
//! | `talos.halt_if_installed=1` | do nothing if another disk holds an installation |
//!
//! A misspelt word is an error even if no installation is asked for: it may be the one that should keep the data.

use crate::prelude::*;

use serde::{Deserialize, Serialize};

use crate::{
    config::{DiskChoice, MachineConfig, Selector},
    kernel::cmdline::arguments,
    media::medium_id::MediumId,
};

const INSTALL: &str = "slipway.install";

/// An unattended installation that is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the other fields are what their names say")]
pub struct Instructions {
    /// The source of the request, for people: a kernel argument, or the machine config.
    pub by: &'static str,
    pub disk: DiskChoice,
    /// Treatment of an installation on it.
    pub existing: ExistingInstallation,
    pub then: Then,
    /// Do nothing if another disk holds an installation, unless `existing` is given.
    pub halt_if_installed: bool,
    pub medium: Option<MediumId>,
}

/// Treatment of an installation that is found on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExistingInstallation {
    /// Leave it alone and refuse to install.
    Refuse,
    /// Upgrade its other slot; keep STATE and EPHEMERAL.
    Preserve,
    /// Overwrite it.
    Overwrite,
}

/// The next action of the caller after an unattended installation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Then {
    /// Reboot. The disk boots even if the live medium is still in.
    Reboot,
    /// Switch off.
    Poweroff,
    /// Stay in the live system.
    Stay,
}

impl Then {
    /// The value of `slipway.install.then`.
    pub const fn word(self) -> &'static str {
        match self {
            Then::Reboot => "reboot",
            Then::Poweroff => "poweroff",
            Then::Stay => "stay",
        }
    }
}

/// Instructions that are wrong or contradict each other.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say what the fields are")]
pub enum InstructionsError {
    /// A word is unknown or has a wrong value.
    #[error("kernel command line: {word}: {why}")]
    Word { word: String, why: String },
    /// An installation is asked for, but no disk is named.
    #[error("{0} asks for an installation, but no disk is named: {NAME_A_DISK}")]
    NoDisk(&'static str),
    /// Command line and config disagree on whether the data is kept.
    #[error(
        "slipway.install.preserve=true on the kernel command line, and `wipe: true` in the machine config: drop one"
    )]
    KeptAndWiped,
}

const NAME_A_DISK: &str = "give machine.install.disk, machine.install.diskSelector or an UnattendedInstallConfig in the \
    machine config on stdin, or slipway.install=/dev/… on the kernel command line";

impl InstructionsError {
    /// The remedy, as the message ends with it.
    pub const fn remedy(&self) -> Option<&'static str> {
        match self {
            Self::NoDisk(_) => Some(NAME_A_DISK),
            Self::Word { .. } | Self::KeptAndWiped => None,
        }
    }
}

impl Instructions {
    /// Read command line and config; `None` if neither asks for an installation.
    pub fn read(cmdline: &str, config: Option<&MachineConfig>) -> Result<Option<Self>, InstructionsError> {
        let words = Words(arguments(cmdline));
        words.only(&["", ".preserve", ".then"])?;
        let target = words.one(INSTALL, target)?;
        let preserve = words.one("slipway.install.preserve", |value| match value {
            "true" => Ok(true),
            "false" => Ok(false),
            other => Err(format!("{other:?} is neither true nor false")),
        })?;
        let then = words.one("slipway.install.then", |value| {
            let all = [Then::Reboot, Then::Poweroff, Then::Stay];
            let found = all.into_iter().find(|then| then.word() == value);
            found.ok_or_else(|| format!("{value:?} is not reboot, poweroff or stay"))
        })?;
        let medium = words.one("slipway.medium", str::parse)?;
        let named = || config.and_then(|config| config.disk.clone());
        let (by, disk) = match target {
            Some(Target::Disk(disk)) => ("slipway.install on the kernel command line", Some(disk)),
            Some(Target::Config) => ("slipway.install=config on the kernel command line", named()),
            None if config.is_some_and(|config| config.installs) => ("the machine config", named()),
            None => return Ok(None),
        };
        let disk = disk.ok_or(InstructionsError::NoDisk(by))?;
        let existing = match (preserve, config.and_then(|config| config.wipe)) {
            (Some(true), Some(true)) => return Err(InstructionsError::KeptAndWiped),
            (Some(true), _) => ExistingInstallation::Preserve,
            (Some(false), _) | (None, Some(true)) => ExistingInstallation::Overwrite,
            (None, _) => ExistingInstallation::Refuse,
        };
        let said = config.and_then(|config| config.reboot).map(|reboot| if reboot { Then::Reboot } else { Then::Stay });
        let then = then.or(said).unwrap_or(Then::Reboot);
        let halt_if_installed = words.values("talos.halt_if_installed").next() == Some(Some("1"));
        Ok(Some(Instructions { by, disk, existing, then, halt_if_installed, medium }))
    }
}

enum Target {
    Disk(DiskChoice),
    Config,
}

fn target(value: &str) -> Result<Target, String> {
    match value {
        "" => Err("it names no disk: /dev/…, config, or KEY:VALUE[,KEY:VALUE…] of a disk selector".to_owned()),
        "config" => Ok(Target::Config),
        path if path.starts_with('/') => Ok(Target::Disk(DiskChoice::Path(path.to_owned()))),
        words => Selector::of_words(words).map(|selector| Target::Disk(DiskChoice::Selector(selector))),
    }
}

struct Words(Vec<(String, Option<String>)>);

impl Words {
    fn values<'w>(&'w self, key: &'w str) -> impl Iterator<Item = Option<&'w str>> {
        self.0.iter().filter(move |(k, _)| k == key).map(|(_, value)| value.as_deref())
    }

    /// The value of a key. Repeating a key is fine only with the same value.
    fn one<T>(&self, key: &str, parse: impl Fn(&str) -> Result<T, String>) -> Result<Option<T>, InstructionsError> {
        let wrong = |why| InstructionsError::Word { word: key.to_owned(), why };
        let mut values = self.values(key).map(Option::unwrap_or_default);
        let Some(first) = values.next() else { return Ok(None) };
        if let Some(other) = values.find(|other| *other != first) {
            return Err(wrong(format!("it is given as {first:?} and as {other:?}: drop one")));
        }
        parse(first).map(Some).map_err(wrong)
    }

    /// Refuse unknown words that begin with `slipway.install`.
    fn only(&self, suffixes: &[&str]) -> Result<(), InstructionsError> {
        let ours = self.0.iter().filter_map(|(key, _)| key.strip_prefix(INSTALL));
        let mut unknown = ours.filter(|rest| !suffixes.contains(rest));
        unknown.next().map_or(Ok(()), |rest| {
            Err(InstructionsError::Word {
                word: format!("{INSTALL}{rest}"),
                why: "there is no such word; known are slipway.install, slipway.install.preserve and slipway.install.then"
                    .to_owned(),
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INSTALL_CONFIG: &str = "machine: {install: {disk: /dev/vdc}}\n";
    const UNATTENDED: &str = "kind: UnattendedInstallConfig\napiVersion: v1alpha1\nprovisioning:\n  \
        diskSelector: {match: disk.size > 1u}\n";

    fn parsed(cmdline: &str, config: &str) -> Result<Option<Instructions>, InstructionsError> {
        let config = MachineConfig::parse(config.as_bytes()).unwrap();
        Instructions::read(cmdline, config.as_ref())
    }

    fn instructions(cmdline: &str, config: &str) -> Instructions {
        parsed(cmdline, config).unwrap_or_else(|e| panic!("{e}")).unwrap_or_else(|| panic!("nothing is asked for"))
    }

    #[test]
    fn nobody_asks() {
        for cmdline in ["", "quiet talos.platform=metal", "slipway.install.preserve=true slipway.install.then=stay"] {
            for config in ["", "machine: {type: worker}\n"] {
                assert_eq!(parsed(cmdline, config), Ok(None), "{cmdline} {config}");
            }
        }
    }

    #[test]
    fn the_disk_is_named_by_the_word_then_by_the_config() {
        let path = |path: &str| DiskChoice::Path(path.into());
        let by_word = instructions("slipway.install=/dev/vda", INSTALL_CONFIG);
        assert_eq!((by_word.disk, by_word.by), (path("/dev/vda"), "slipway.install on the kernel command line"));
        assert_eq!(instructions("slipway.install=config", INSTALL_CONFIG).disk, path("/dev/vdc"));
        let by_config = instructions("quiet", INSTALL_CONFIG);
        assert_eq!((by_config.disk, by_config.by), (path("/dev/vdc"), "the machine config"));
        assert!(matches!(instructions("", UNATTENDED).disk, DiskChoice::Selector(_)));
        let selector = Selector::of_words("serial:a b,size:>= 1GB").unwrap();
        for cmdline in ["\"slipway.install=serial:a b,size:>= 1GB\"", "slipway.install=\"serial:a b,size:>= 1GB\""] {
            assert_eq!(instructions(cmdline, "").disk, DiskChoice::Selector(selector.clone()), "{cmdline}");
        }
    }

    #[test]
    fn an_installation_is_kept_unless_something_else_is_said() {
        let existing = |words: &str, more: &str| {
            let config = format!("machine: {{install: {{disk: /dev/vda{more}}}}}\n");
            parsed(words, &config).map(|found| found.unwrap().existing)
        };
        assert_eq!(existing("", ""), Ok(ExistingInstallation::Refuse));
        assert_eq!(existing("", ", wipe: false"), Ok(ExistingInstallation::Refuse));
        assert_eq!(existing("", ", wipe: true"), Ok(ExistingInstallation::Overwrite));
        assert_eq!(existing("slipway.install.preserve=false", ", wipe: false"), Ok(ExistingInstallation::Overwrite));
        assert_eq!(existing("slipway.install.preserve=true", ", wipe: false"), Ok(ExistingInstallation::Preserve));
        assert_eq!(existing("slipway.install.preserve=true", ", wipe: true"), Err(InstructionsError::KeptAndWiped));
    }

    #[test]
    fn what_comes_after_it() {
        let then = |cmdline: &str, more: &str| instructions(cmdline, &format!("{UNATTENDED}{more}")).then;
        assert_eq!(then("", ""), Then::Reboot);
        assert_eq!(then("", "reboot: true\n"), Then::Reboot);
        assert_eq!(then("", "reboot: false\n"), Then::Stay);
        assert_eq!(then("slipway.install.then=poweroff", "reboot: true\n"), Then::Poweroff);
        assert_eq!(then("slipway.install.then=reboot", "reboot: false\n"), Then::Reboot);
    }

    #[test]
    fn medium_and_halt() {
        let asked = |words: &str| instructions(&format!("slipway.install=/dev/vda {words}"), "");
        assert_eq!((asked("").medium, asked("").halt_if_installed), (None, false));
        let all = asked("slipway.medium=00000000000000ff talos.halt_if_installed=1");
        assert_eq!((all.medium, all.halt_if_installed), (Some(MediumId(255)), true));
        assert!(!asked("talos.halt_if_installed=0").halt_if_installed);
    }

    #[test]
    fn wrong_words() {
        for (cmdline, error) in [
            ("slipway.install", "slipway.install: it names no disk: /dev/…, config, or KEY:VALUE"),
            ("slipway.install=", "slipway.install: it names no disk"),
            ("slipway.install=sda", "slipway.install: \"sda\" is not KEY:VALUE"),
            ("slipway.install=dev/sda", "slipway.install: \"dev/sda\" is not KEY:VALUE"),
            ("slipway.install=serail:x", "slipway.install: \"serail\" is not a key of a disk selector"),
            ("slipway.install=/dev/a slipway.install=/dev/b", "slipway.install: it is given as \"/dev/a\" and as"),
            ("slipway.install.preserv=true", "slipway.install.preserv: there is no such word"),
            ("slipway.installs=/dev/a", "slipway.installs: there is no such word"),
            ("slipway.install.preserve=yes", "slipway.install.preserve: \"yes\" is neither true nor false"),
            ("slipway.install.preserve", "slipway.install.preserve: \"\" is neither true nor false"),
            ("slipway.install.then=halt", "slipway.install.then: \"halt\" is not reboot, poweroff or stay"),
            ("slipway.medium=5", "slipway.medium: \"5\" is not the ID of a live medium"),
        ] {
            let found = parsed(cmdline, "").unwrap_err().to_string();
            assert!(found.starts_with(&format!("kernel command line: {error}")), "{cmdline}: {found}");
        }
        for (cmdline, config) in [
            ("slipway.install=config", ""),
            ("slipway.install=config", "machine: {type: worker}\n"),
            ("", "machine: {install: {wipe: false}}\n"),
        ] {
            let found = parsed(cmdline, config).unwrap_err();
            assert!(matches!(found, InstructionsError::NoDisk(_)), "{cmdline} {config}: {found}");
        }
        assert!(parsed("slipway.install=/dev/a slipway.install=/dev/a", "").is_ok());
    }
}
