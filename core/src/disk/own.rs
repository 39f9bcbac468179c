//! Decides which disk the system was booted from, among those with the GUID that the kernel command line names.

use crate::prelude::*;

use core::fmt;

use uuid::Uuid;

use super::{drive_record::DriveRecord, identity::DiskIdentity};
use crate::report::FailureId;

/// A disk with the GUID that the kernel command line names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The disk.
    pub disk: DiskIdentity,
    /// The drive that was installed, by this disk's record. It need not be this one.
    pub record: Option<DriveRecord>,
}

/// Disks of a machine that may be its own.
#[derive(Clone, Debug, Default)]
pub struct Candidates {
    /// All disks with the GUID, each drive once.
    pub disks: Vec<Candidate>,
    /// They are drives, not loop devices and the like.
    pub are_hardware: bool,
    /// Disks whose GUID could not be read: the path, and why.
    pub unknown: Vec<String>,
}

/// The disk that was booted, and the others with its GUID.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnDisk {
    /// The disk.
    pub disk: DiskIdentity,
    /// Its copies.
    pub copies: Vec<DiskIdentity>,
    /// The drive that was installed, if it is not this one.
    pub installed: Option<DriveRecord>,
}

/// No disk was named, and none can be taken instead. Nothing was written.
#[derive(Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the messages say what the fields are")]
pub enum NoDisk {
    /// An install overwrites a disk, so it takes none of its own accord.
    Install,
    /// The boot rule did not start this system.
    NotBooted,
    /// The system runs in memory.
    Live,
    /// The kernel does not list its disks.
    NoList(String),
    /// No disk has the GUID.
    NotFound { guid: Uuid, unknown: Vec<String> },
    /// Clones, and nothing tells which of them was booted.
    Several { guid: Uuid, disks: Vec<String> },
    /// The only one that was found is a copy, and its original may be the disk that was booted.
    MaybeACopy { guid: Uuid, disk: String, installed: String, unknown: Vec<String> },
}

/// The flag that names a disk.
const FLAG: &str = "--disk PATH";

impl core::error::Error for NoDisk {}

impl fmt::Display for NoDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.asking_for(FLAG))
    }
}

impl NoDisk {
    /// Its identifier.
    pub const fn id(&self) -> FailureId {
        match self {
            Self::Several { .. } | Self::MaybeACopy { .. } => FailureId::DiskAmbiguous,
            Self::Install | Self::NotBooted | Self::Live | Self::NoList(_) | Self::NotFound { .. } => {
                FailureId::NoDiskGiven
            }
        }
    }

    /// The remedy, as the message has it.
    pub fn remedy(&self) -> String {
        self.remedy_by(FLAG)
    }

    fn remedy_by(&self, flag: &str) -> String {
        match self {
            Self::Install => format!("give {flag}, or a machine config on stdin that names one"),
            _ => format!("give {flag}; `lsblk -o PATH,SIZE,MODEL,SERIAL` lists the disks"),
        }
    }

    /// The message, for a verb to which another flag names the disk.
    pub fn asking_for(&self, flag: &str) -> String {
        const BOOTED: &str = "the kernel command line names disk GUID";
        let (why, rest) = match self {
            Self::Install => return format!("no disk: {}", self.remedy_by(flag)),
            Self::NotBooted => (
                ", and this system was not booted from a disk by Slipway's boot rule (slipway.disk= is not on the kernel command line)"
                    .to_owned(),
                String::new(),
            ),
            Self::Live => (", and this is a live system, which runs from no disk".to_owned(), String::new()),
            Self::NoList(why) => (
                format!(
                    ", and the disks of this machine cannot be listed ({why}): `mount -t sysfs sysfs /sys` makes that possible"
                ),
                String::new(),
            ),
            Self::NotFound { guid, unknown } => (
                format!("; {BOOTED} {guid}, and no disk of this machine has it"),
                lines("Not looked at:", unknown),
            ),
            Self::Several { guid, disks } => (
                format!(
                    "; {BOOTED} {guid}, which more than one disk has, and it is not known which of them was booted"
                ),
                lines("They are:", disks),
            ),
            Self::MaybeACopy { guid, disk, installed, unknown } => (
                format!(
                    "; {BOOTED} {guid}, and the only disk that was found with it, {disk}, may be a copy of the one that was \
                     booted: it says that the system was installed on another drive ({installed})"
                ),
                lines("Not looked at:", unknown),
            ),
        };
        format!("no disk is named{why}: {}{rest}", self.remedy_by(flag))
    }
}

/// [`NoDisk`] for a verb to which a disk is named by something else than `--disk`.
#[derive(Debug, PartialEq, Eq)]
pub struct NoDiskBy {
    /// Why none can be taken instead.
    pub none: NoDisk,
    /// What names the disk.
    pub flag: &'static str,
}

impl core::error::Error for NoDiskBy {}

impl fmt::Display for NoDiskBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.none.asking_for(self.flag))
    }
}

impl NoDiskBy {
    /// The remedy, as the message has it.
    pub fn remedy(&self) -> String {
        self.none.remedy_by(self.flag)
    }
}

fn lines(title: &str, lines: &[String]) -> String {
    let each = lines.iter().map(|line| format!("\n  - {line}"));
    if lines.is_empty() { String::new() } else { format!(". {title}{}", each.collect::<String>()) }
}

/// The only disk with the GUID, or, among clones, the only installed drive.
///
/// A drive that another one was copied to, for good, is taken, too. But firmware starts from hardware, and while a disk
/// cannot be looked at that may be the original.
pub fn own_disk(guid: Uuid, candidates: Candidates) -> Result<OwnDisk, NoDisk> {
    let Candidates { mut disks, are_hardware, unknown } = candidates;
    let is_original =
        |candidate: &Candidate| candidate.record.as_ref().is_some_and(|drive| drive.matches(&candidate.disk));
    let originals: Vec<usize> = (0..disks.len()).filter(|n| is_original(&disks[*n])).collect();
    let chosen = match (disks.len(), &originals[..]) {
        (0, _) => return Err(NoDisk::NotFound { guid, unknown }),
        (1, _) => 0,
        (_, [one]) => *one,
        _ => {
            let disks = disks.iter().map(|candidate| Named(&candidate.disk).to_string()).collect();
            return Err(NoDisk::Several { guid, disks });
        }
    };
    let Candidate { disk, record } = disks.remove(chosen);
    let installed = record.filter(|drive| !drive.matches(&disk));
    if let Some(drive) = &installed
        && (!are_hardware || !unknown.is_empty())
    {
        let (disk, installed) = (Named(&disk).to_string(), drive.to_string());
        return Err(NoDisk::MaybeACopy { guid, disk, installed, unknown });
    }
    let copies = disks.into_iter().map(|candidate| candidate.disk).collect();
    Ok(OwnDisk { disk, copies, installed })
}

/// A disk by the text that is printed on the drive.
struct Named<'d>(&'d DiskIdentity);

impl fmt::Display for Named<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let DiskIdentity { path, model, serial, .. } = self.0;
        let [model, serial] = [model, serial].map(|text| text.as_deref().unwrap_or("none"));
        write!(f, "{path} (model {model}, serial {serial})")
    }
}

impl OwnDisk {
    /// A note if there are copies, or if the disk is one: it names the disk that was taken.
    pub fn note(&self) -> Option<String> {
        if let Some(drive) = &self.installed {
            let disk = Named(&self.disk);
            return Some(format!("{disk} is taken, though the system was installed on another drive ({drive})"));
        }
        let copies: Vec<String> = self.copies.iter().map(|copy| Named(copy).to_string()).collect();
        (!copies.is_empty()).then(|| {
            let copies = copies.join(", ");
            format!(
                "of the disks with this disk GUID, {} is the one that was installed; also: {copies}",
                Named(&self.disk)
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::identity::DiskKind;

    const GUID: Uuid = Uuid::from_u128(7);

    fn disk(path: &str, serial: &str) -> DiskIdentity {
        let (path, serial) = (path.to_owned(), Some(serial.to_owned()));
        DiskIdentity { path, kind: DiskKind::Disk, model: Some("M".to_owned()), serial, wwid: None }
    }

    /// Disks with their serial numbers, and the serial number in the record of each.
    fn candidates(disks: &[(&str, &str, Option<&str>)]) -> Candidates {
        let candidate = |(path, serial, recorded): &(&str, &str, Option<&str>)| Candidate {
            disk: disk(path, serial),
            record: recorded.and_then(|serial| DriveRecord::for_disk(&disk("", serial))),
        };
        let disks = disks.iter().map(candidate).collect();
        Candidates { disks, are_hardware: true, unknown: vec!["/dev/sdz: I/O".into()] }
    }

    fn chosen(disks: &[(&str, &str, Option<&str>)]) -> Result<OwnDisk, NoDisk> {
        own_disk(GUID, candidates(disks))
    }

    /// An unrelated half-dead disk does not block the ways back.
    #[test]
    fn the_only_one_is_taken_if_nothing_speaks_against_it() {
        for record in [None, Some("S1")] {
            for are_hardware in [true, false] {
                let candidates = Candidates { are_hardware, ..candidates(&[("/dev/sda", "S1", record)]) };
                let own = own_disk(GUID, candidates).unwrap();
                assert_eq!((own.disk.path.as_str(), own.copies.len(), own.note()), ("/dev/sda", 0, None));
            }
        }
    }

    /// The booted disk may be unreadable, or have dropped off the bus.
    #[test]
    fn a_copy_is_not_taken_where_its_original_may_be_the_one_that_was_booted() {
        let copy = || candidates(&[("/dev/sda", "S2", Some("S1"))]);
        for (are_hardware, unknown) in [(true, copy().unknown), (false, vec![]), (false, copy().unknown)] {
            let text = own_disk(GUID, Candidates { are_hardware, unknown: unknown.clone(), ..copy() });
            let text = text.unwrap_err().to_string();
            for part in ["/dev/sda (model M, serial S2)", "another drive (serial S1)", "--disk", &GUID.to_string()] {
                assert!(text.contains(part), "{part:?} is not in {text}");
            }
            assert_eq!(text.ends_with("Not looked at:\n  - /dev/sdz: I/O"), !unknown.is_empty(), "{text}");
        }
        // A replaced drive has such a copy.
        let own = own_disk(GUID, Candidates { unknown: vec![], ..copy() }).unwrap();
        let note = own.note().unwrap();
        assert!(note.contains("/dev/sda (model M, serial S2)") && note.contains("another drive (serial S1)"), "{note}");
    }

    #[test]
    fn of_clones_the_one_that_was_installed() {
        let own = chosen(&[("/dev/sda", "S2", Some("S1")), ("/dev/sdb", "S1", Some("S1"))]).unwrap();
        assert_eq!(own.disk.path, "/dev/sdb");
        let note = own.note().unwrap();
        assert!(note.contains("/dev/sdb (model M, serial S1) is the one") && note.contains("/dev/sda"), "{note}");
        let own = chosen(&[("/dev/sda", "S1", Some("S1")), ("/dev/sdb", "S2", None)]).unwrap();
        assert_eq!(own.disk.path, "/dev/sda");
    }

    #[test]
    fn what_cannot_be_told_apart_is_listed() {
        for records in [[None, None], [Some("S0"), Some("S0")], [Some("S1"), Some("S2")]] {
            let refused = chosen(&[("/dev/sda", "S1", records[0]), ("/dev/sdb", "S2", records[1])]).unwrap_err();
            let text = refused.to_string();
            for part in
                ["more than one disk", "- /dev/sda (model M, serial S1)", "- /dev/sdb", "--disk", &GUID.to_string()]
            {
                assert!(text.contains(part), "{part:?} is not in {text}");
            }
        }
    }

    #[test]
    fn none_names_what_could_not_be_looked_at() {
        let text = chosen(&[]).unwrap_err().to_string();
        assert!(text.contains("no disk of this machine has it") && text.ends_with("\n  - /dev/sdz: I/O"), "{text}");
        let text = own_disk(GUID, Candidates::default()).unwrap_err().to_string();
        assert!(!text.contains("Not looked at"), "{text}");
    }
}
