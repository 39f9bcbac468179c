//! Sizes and positions on a disk. Bytes and logical blocks convert only with a [`SectorSize`].

use crate::prelude::*;

use core::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// Bytes in a mebibyte.
pub const MIB: u64 = 1 << 20;
/// Bytes in a gibibyte.
pub const GIB: u64 = 1 << 30;

/// Logical block size of a disk, the unit of an LBA.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(try_from = "u32", into = "u32")]
#[schemars(with = "u32")]
pub enum SectorSize {
    /// 512 bytes, also on "512e" disks.
    S512,
    /// 4096 bytes ("4Kn" disks). Such a disk boots only under UEFI.
    S4096,
}

impl SectorSize {
    /// Bytes of a logical block.
    pub const fn bytes(self) -> u64 {
        match self {
            Self::S512 => 512,
            Self::S4096 => 4096,
        }
    }
}

impl TryFrom<u32> for SectorSize {
    type Error = String;
    fn try_from(bytes: u32) -> Result<Self, String> {
        match bytes {
            512 => Ok(Self::S512),
            4096 => Ok(Self::S4096),
            other => Err(format!("logical sector size of {other} bytes is not supported: use 512 or 4096")),
        }
    }
}

impl From<SectorSize> for u32 {
    fn from(s: SectorSize) -> Self {
        match s {
            SectorSize::S512 => 512,
            SectorSize::S4096 => 4096,
        }
    }
}

impl FromStr for SectorSize {
    type Err = String;
    fn from_str(s: &str) -> Result<Self, String> {
        s.parse::<u32>().map_err(|e| format!("{s:?}: {e}")).and_then(Self::try_from)
    }
}

/// A logical block address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Lba(pub u64);

impl Lba {
    /// Byte offset of this block; `None` if it exceeds 64 bits.
    pub fn offset(self, sector: SectorSize) -> Option<u64> {
        self.0.checked_mul(sector.bytes())
    }
}

/// A range of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Extent {
    /// Offset of the first byte.
    pub offset: u64,
    /// Length in bytes.
    pub len: u64,
}

impl Extent {
    /// Offset behind the last byte.
    pub const fn end(self) -> u64 {
        self.offset + self.len
    }

    /// Whether `other` lies completely inside.
    pub const fn contains(self, other: Extent) -> bool {
        other.offset >= self.offset && other.end() <= self.end()
    }

    /// Whether both have a byte. Nothing overflows: one of them may come from a disk.
    pub const fn meets(self, other: Extent) -> bool {
        self.offset < other.offset.saturating_add(other.len) && other.offset < self.offset.saturating_add(self.len)
    }

    /// LBA of the first byte.
    pub const fn first_lba(self, sector: SectorSize) -> Lba {
        Lba(self.offset / sector.bytes())
    }

    /// LBA of the last byte, for GPT, whose ranges are inclusive.
    pub const fn last_lba(self, sector: SectorSize) -> Lba {
        Lba(self.end() / sector.bytes() - 1)
    }
}

/// A byte count as people write it: `300MiB`, `1GiB`, `4096`. It prints exactly, in the largest unit that divides it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteSize(pub u64);

const UNITS: [(&str, u64); 4] = [("TiB", 1 << 40), ("GiB", GIB), ("MiB", MIB), ("KiB", 1 << 10)];

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, unit) in UNITS {
            if self.0 >= unit && self.0.is_multiple_of(unit) {
                return write!(f, "{} {name}", self.0 / unit);
            }
        }
        write!(f, "{} bytes", self.0)
    }
}

impl FromStr for ByteSize {
    type Err = String;
    fn from_str(s: &str) -> Result<Self, String> {
        let digits = s.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = s.split_at(digits);
        let number: u64 = number
            .parse()
            .map_err(|_| format!("{s:?} is not a size: write bytes or a number with KiB, MiB, GiB or TiB"))?;
        let unit = unit.trim();
        let factor = match unit.to_ascii_lowercase().as_str() {
            "" | "b" | "bytes" => 1,
            lower => UNITS
                .iter()
                // `1G` means 1 GiB, too.
                .find(|(name, _)| name.to_ascii_lowercase() == lower || name[..1].to_ascii_lowercase() == lower)
                .map(|(_, factor)| *factor)
                .ok_or_else(|| format!("{unit:?} is not a unit: use KiB, MiB, GiB or TiB"))?,
        };
        number
            .checked_mul(factor)
            .map(ByteSize)
            .ok_or_else(|| format!("{s} is too large: the bytes must fit in 64 bits"))
    }
}

/// A byte count for people: exact if that is short, otherwise to one decimal place, which is left out if it is 0.
pub fn approx(bytes: u64) -> String {
    let exact = ByteSize(bytes).to_string();
    if exact.len() <= SHORT {
        return exact;
    }
    #[expect(clippy::cast_precision_loss, reason = "one decimal place is shown")]
    let rounded = |(name, unit): &(&str, u64)| {
        let number = format!("{:.1}", bytes as f64 / *unit as f64);
        format!("{} {name}", number.strip_suffix(".0").unwrap_or(&number))
    };
    UNITS.iter().find(|(_, unit)| bytes >= *unit).map_or(exact, rounded)
}

/// Characters of an exact size such as `1644 MiB`.
const SHORT: usize = 8;

/// Round up to a multiple of `step`; `None` on overflow.
pub fn round_up(value: u64, step: u64) -> Option<u64> {
    value.checked_next_multiple_of(step)
}

/// Round down to a multiple of `step`.
pub const fn round_down(value: u64, step: u64) -> u64 {
    value - value % step
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn byte_sizes_print_and_parse_back() {
        for n in [0, 1, 511, 512, 1024, MIB, 300 * MIB, GIB, 3 << 40, u64::MAX] {
            let text = ByteSize(n).to_string();
            assert_eq!(text.parse::<ByteSize>().unwrap(), ByteSize(n), "{text}");
        }
        assert_eq!("1G".parse::<ByteSize>().unwrap().0, GIB);
        assert_eq!("64mib".parse::<ByteSize>().unwrap().0, 64 * MIB);
        for bad in ["", "GiB", "1.5GiB", "-1", "1XB", "99999999999999TiB"] {
            assert!(bad.parse::<ByteSize>().is_err(), "{bad}");
        }
    }

    #[test]
    fn sizes_for_people() {
        for (bytes, text) in [
            (0, "0 bytes"),
            (512, "512 bytes"),
            (16_896, "16.5 KiB"),
            (17 << 10, "17 KiB"),
            (1644 * MIB, "1644 MiB"),
            (4 * GIB, "4 GiB"),
            (4 * GIB - 1, "4 GiB"),
            (10 * GIB + 512, "10 GiB"),
            (MIB - 1, "1024 KiB"),
            (8_598_323, "8.2 MiB"),
        ] {
            assert_eq!(approx(bytes), text);
        }
    }

    #[test]
    fn extents_know_their_blocks() {
        let e = Extent { offset: MIB, len: MIB };
        assert_eq!(e.first_lba(SectorSize::S512), Lba(2048));
        assert_eq!(e.last_lba(SectorSize::S512), Lba(4095));
        assert_eq!(e.first_lba(SectorSize::S4096), Lba(256));
        assert!(e.contains(Extent { offset: 2 * MIB - 1, len: 1 }));
        assert!(!e.contains(Extent { offset: 2 * MIB, len: 1 }));
    }
}
