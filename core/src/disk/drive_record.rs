//! The drive that a disk was installed on. A copy of a disk has the same disk GUID and the same record, but not the
//! same drive around it: so the record tells the original from its copies.

use crate::prelude::*;

use super::identity::{DiskIdentity, DiskKind};

/// The record, as a path on the ESP. The initramfs of the OS reads it, so it is plain text: a line `key=value` each.
pub const DRIVE: &str = "slipway/drive.env";

/// The drive that an install was made on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriveRecord {
    wwid: Option<String>,
    serial: Option<String>,
}

impl DriveRecord {
    /// `None` for a drive without an identity, and for an image file: that is copied to any number of drives.
    pub fn for_disk(disk: &DiskIdentity) -> Option<Self> {
        if disk.kind == DiskKind::Image {
            return None;
        }
        // A shell compares whole lines: values that it cannot compare are not recorded.
        let plain = |value: &Option<String>| value.clone().filter(|v| !v.is_empty() && !v.contains(char::is_control));
        Some(DriveRecord { wwid: plain(&disk.wwid), serial: plain(&disk.serial) }).filter(Self::says_something)
    }

    const fn says_something(&self) -> bool {
        self.wwid.is_some() || self.serial.is_some()
    }

    /// The record as text.
    pub fn render(&self) -> String {
        let pairs = [("wwid", &self.wwid), ("serial", &self.serial)];
        pairs.iter().filter_map(|(key, value)| Some(format!("{key}={}\n", value.as_ref()?))).collect()
    }

    /// Read a record. `None` if it says nothing.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let text = core::str::from_utf8(bytes).ok()?;
        let value = |key: &str| {
            let mut lines = text.lines().filter_map(|line| line.strip_prefix(key)?.strip_prefix('='));
            lines.next().filter(|value| !value.is_empty()).map(str::to_owned)
        };
        Some(DriveRecord { wwid: value("wwid"), serial: value("serial") }).filter(Self::says_something)
    }

    /// Whether this is the drive: by WWID, or by serial number where one of the two has no WWID.
    pub fn matches(&self, disk: &DiskIdentity) -> bool {
        match (&self.wwid, &disk.wwid) {
            (Some(recorded), Some(own)) => recorded == own,
            _ => self.serial.is_some() && self.serial == disk.serial,
        }
    }
}

impl core::fmt::Display for DriveRecord {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match (&self.serial, &self.wwid) {
            (Some(serial), _) => write!(f, "serial {serial}"),
            (None, wwid) => write!(f, "WWID {}", wwid.as_deref().unwrap_or_default()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk(wwid: Option<&str>, serial: Option<&str>) -> DiskIdentity {
        let own = |text: Option<&str>| text.map(str::to_owned);
        let path = "/dev/sda".to_owned();
        DiskIdentity { path, kind: DiskKind::Disk, model: None, serial: own(serial), wwid: own(wwid) }
    }

    #[test]
    fn golden() {
        let record = DriveRecord::for_disk(&disk(Some("naa.5000"), Some("S 1"))).unwrap();
        assert_eq!(record.render(), "wwid=naa.5000\nserial=S 1\n");
        assert_eq!(DriveRecord::parse(record.render().as_bytes()), Some(record));
        let record = DriveRecord::for_disk(&disk(None, Some("S1"))).unwrap();
        assert_eq!(record.render(), "serial=S1\n");
        assert_eq!(DriveRecord::parse(record.render().as_bytes()), Some(record));
    }

    #[test]
    fn nothing_is_recorded_of_what_has_no_identity() {
        assert_eq!(DriveRecord::for_disk(&disk(None, None)), None);
        assert_eq!(DriveRecord::for_disk(&disk(None, Some("a\nb"))), None);
        assert_eq!(DriveRecord::for_disk(&DiskIdentity { kind: DiskKind::Image, ..disk(Some("w"), Some("s")) }), None);
        for bytes in [&b""[..], b"serial=\n", b"other=1\n", &[0; 512], &[0xff]] {
            assert_eq!(DriveRecord::parse(bytes), None);
        }
    }

    #[test]
    fn the_wwid_counts_then_the_serial_number() {
        let record = |wwid, serial| DriveRecord::for_disk(&disk(wwid, serial)).unwrap();
        assert!(record(Some("w"), Some("s")).matches(&disk(Some("w"), Some("s"))));
        assert!(record(Some("w"), None).matches(&disk(Some("w"), Some("t"))));
        assert!(!record(Some("w"), Some("s")).matches(&disk(Some("v"), Some("s"))), "two namespaces of one NVMe drive");
        assert!(record(Some("w"), Some("s")).matches(&disk(None, Some("s"))), "a kernel that knows no WWID");
        assert!(record(None, Some("s")).matches(&disk(Some("w"), Some("s"))));
        assert!(!record(None, Some("s")).matches(&disk(Some("w"), Some("t"))));
        assert!(!record(Some("w"), None).matches(&disk(None, None)), "nothing is not equal to nothing");
    }
}
