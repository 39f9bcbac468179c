//! Disk selectors: a condition that picks the disk a machine config means.

use crate::prelude::*;

use core::fmt;

use crate::{
    glob::glob,
    yaml::{ConfigError, Field},
};

/// The properties of one disk, named as in Talos' CEL variable `disk`. Texts that are unknown are empty; sizes are bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "Talos documents these names; only the less obvious ones are explained here")]
pub struct DiskTraits {
    pub dev_path: String,
    pub size: u64,
    /// Optimal I/O size in bytes.
    pub io_size: u64,
    /// Logical block size in bytes.
    pub sector_size: u64,
    pub readonly: bool,
    /// An optical drive.
    pub cdrom: bool,
    /// It has moving parts.
    pub rotational: bool,
    pub model: String,
    pub serial: String,
    /// Such as `scsi:t-0x00`.
    pub modalias: String,
    pub wwid: String,
    /// UUID of an NVMe namespace.
    pub uuid: String,
    /// Name of an MMC card.
    pub name: String,
    /// Place in the device tree, below `/sys/devices`.
    pub bus_path: String,
    /// `nvme`, `sata`, `usb`, `virtio`, `mmc`, …; empty for loop devices and the like.
    pub transport: String,
    /// Links to the disk in `/dev/disk`.
    pub symlinks: Vec<String>,
}

/// The type of a field of `disk`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldType {
    Text,
    Number,
    Bool,
    Texts,
}

/// The fields of `disk`.
pub const FIELDS: [(&str, FieldType); 16] = [
    ("dev_path", FieldType::Text),
    ("size", FieldType::Number),
    ("io_size", FieldType::Number),
    ("sector_size", FieldType::Number),
    ("readonly", FieldType::Bool),
    ("cdrom", FieldType::Bool),
    ("rotational", FieldType::Bool),
    ("model", FieldType::Text),
    ("serial", FieldType::Text),
    ("modalias", FieldType::Text),
    ("wwid", FieldType::Text),
    ("uuid", FieldType::Text),
    ("name", FieldType::Text),
    ("bus_path", FieldType::Text),
    ("transport", FieldType::Text),
    ("symlinks", FieldType::Texts),
];

impl DiskTraits {
    fn text(&self, field: &str) -> &str {
        match field {
            "dev_path" => &self.dev_path,
            "model" => &self.model,
            "serial" => &self.serial,
            "modalias" => &self.modalias,
            "wwid" => &self.wwid,
            "uuid" => &self.uuid,
            "name" => &self.name,
            "bus_path" => &self.bus_path,
            "transport" => &self.transport,
            _ => "",
        }
    }

    fn number(&self, field: &str) -> u64 {
        match field {
            "io_size" => self.io_size,
            "sector_size" => self.sector_size,
            _ => self.size,
        }
    }

    fn boolean(&self, field: &str) -> bool {
        match field {
            "cdrom" => self.cdrom,
            "rotational" => self.rotational,
            _ => self.readonly,
        }
    }
}

/// A comparison; [`Op::ALL`] has the symbols.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl Op {
    /// All symbols, the longer ones first, so that a parser can take the first that fits.
    pub const ALL: [(&str, Op); 6] = [
        ("==", Op::Equal),
        ("!=", Op::NotEqual),
        ("<=", Op::LessOrEqual),
        (">=", Op::GreaterOrEqual),
        ("<", Op::Less),
        (">", Op::Greater),
    ];

    fn holds<T: Ord + ?Sized>(self, left: &T, right: &T) -> bool {
        match self {
            Op::Equal => left == right,
            Op::NotEqual => left != right,
            Op::Less => left < right,
            Op::LessOrEqual => left <= right,
            Op::Greater => left > right,
            Op::GreaterOrEqual => left >= right,
        }
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = Op::ALL.iter().find(|(_, op)| op == self).map_or("", |(text, _)| text);
        f.write_str(text)
    }
}

/// A condition on a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selector {
    /// All conditions hold.
    All(Vec<Selector>),
    /// At least one of them holds.
    Any(Vec<Selector>),
    /// The condition does not hold.
    Not(Box<Selector>),
    /// A field is true.
    Bool(&'static str),
    /// A number compares like this.
    Number(&'static str, Op, u64),
    /// A text compares like this.
    Text(&'static str, Op, String),
    /// A text matches a pattern, in which `*` stands for any characters.
    Glob(&'static str, String),
    /// This is one of the links to the disk.
    Symlink(String),
}

impl Selector {
    /// Why a disk does not match; `None` if it does.
    pub fn mismatch(&self, disk: &DiskTraits) -> Option<String> {
        let is = |field: &str, value: &dyn fmt::Debug| format!("{field} is {value:?}");
        match self {
            Selector::All(parts) => {
                let reasons: Vec<_> = parts.iter().filter_map(|part| part.mismatch(disk)).collect();
                (!reasons.is_empty()).then(|| reasons.join(", "))
            }
            Selector::Any(parts) => {
                let reasons: Option<Vec<_>> = parts.iter().map(|part| part.mismatch(disk)).collect();
                reasons.map(|all| all.join(" and "))
            }
            Selector::Not(part) => part.mismatch(disk).is_none().then(|| format!("{part} is true")),
            Selector::Bool(field) => (!disk.boolean(field)).then(|| is(field, &false)),
            Selector::Number(field, op, value) => {
                let own = disk.number(field);
                (!op.holds(&own, value)).then(|| format!("{}, not {op} {value}", is(field, &own)))
            }
            Selector::Text(field, op, value) => {
                let own = disk.text(field);
                (!op.holds(own, value.as_str())).then(|| format!("{}, not {op} {value:?}", is(field, &own)))
            }
            Selector::Glob(field, pattern) => {
                let own = disk.text(field);
                (!glob(pattern, own)).then(|| format!("{}, not like {pattern:?}", is(field, &own)))
            }
            Selector::Symlink(link) => (!disk.symlinks.contains(link)).then(|| format!("{link} is not a link to it")),
        }
    }

    /// Read `machine.install.diskSelector`. All keys must hold; texts are patterns.
    pub fn of_keys(field: &Field) -> Result<Self, ConfigError> {
        field.only(&KEYS)?;
        let mut parts = Vec::new();
        for key in KEYS {
            if let Some(value) = field.get(key)? {
                parts.extend(of_key(key, value.text()?).map_err(|what| value.wrong(what))?);
            }
        }
        real_disks(parts).map_err(|what| field.wrong(what))
    }

    /// Read the same keys written as `key:value,key:value`. A value may contain colons but no comma.
    pub fn of_words(text: &str) -> Result<Self, String> {
        let mut parts = Vec::new();
        let mut seen = Vec::new();
        for word in text.split(',') {
            let (key, value) = word.split_once(':').ok_or_else(|| format!("{word:?} is not KEY:VALUE"))?;
            if !KEYS.contains(&key) {
                return Err(format!("{key:?} is not a key of a disk selector: {}", KEYS.join(", ")));
            }
            if value.is_empty() || seen.contains(&key) {
                return Err(format!(
                    "{key}: {}",
                    if value.is_empty() { "the value is missing" } else { "it is given twice" }
                ));
            }
            seen.push(key);
            parts.extend(of_key(key, value).map_err(|what| format!("{key}: {what}"))?);
        }
        real_disks(parts)
    }
}

const KEYS: [&str; 9] = ["size", "name", "model", "serial", "modalias", "uuid", "wwid", "busPath", "type"];

/// Condition of one key. An empty text sets none.
fn of_key(key: &str, value: &str) -> Result<Option<Selector>, String> {
    let glob = |name| (!value.is_empty()).then(|| Selector::Glob(name, value.to_owned()));
    let transport = |name: &str| Selector::Text("transport", Op::Equal, name.to_owned());
    Ok(match (key, value) {
        ("size", size) => {
            let (op, bytes) = condition(size)?;
            Some(Selector::Number("size", op, bytes))
        }
        ("type", "") => None,
        ("type", "ssd") => Some(Selector::Not(Box::new(Selector::Bool("rotational")))),
        ("type", "hdd") => Some(Selector::Bool("rotational")),
        ("type", "nvme") => Some(transport("nvme")),
        ("type", "sd") => Some(transport("mmc")),
        ("type", other) => return Err(format!("{other:?} is not ssd, hdd, nvme or sd")),
        ("name", _) => glob("name"),
        ("model", _) => glob("model"),
        ("serial", _) => glob("serial"),
        ("modalias", _) => glob("modalias"),
        ("uuid", _) => glob("uuid"),
        ("wwid", _) => glob("wwid"),
        _ => glob("bus_path"),
    })
}

/// Like Talos, select only real disks that can be written: no loop devices, no optical drives.
fn real_disks(mut parts: Vec<Selector>) -> Result<Selector, String> {
    if parts.is_empty() {
        return Err("it selects every disk: give it size, model, serial or another key".to_owned());
    }
    parts.push(Selector::Text("transport", Op::NotEqual, String::new()));
    parts.extend(["readonly", "cdrom"].map(|name| Selector::Not(Box::new(Selector::Bool(name)))));
    Ok(Selector::All(parts))
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let joined =
            |parts: &[Selector], with: &str| parts.iter().map(ToString::to_string).collect::<Vec<_>>().join(with);
        match self {
            Selector::All(parts) => f.write_str(&joined(parts, " && ")),
            Selector::Any(parts) => write!(f, "({})", joined(parts, " || ")),
            Selector::Not(part) => write!(f, "!({part})"),
            Selector::Bool(field) => write!(f, "disk.{field}"),
            Selector::Number(field, op, value) => write!(f, "disk.{field} {op} {value}u"),
            Selector::Text(field, op, value) => write!(f, "disk.{field} {op} {value:?}"),
            Selector::Glob(field, pattern) => write!(f, "glob({pattern:?}, disk.{field})"),
            Selector::Symlink(link) => write!(f, "{link:?} in disk.symlinks"),
        }
    }
}

/// Parse a size such as `>= 1TB`. No operator means `==`. Units count by 1000, or by 1024 with an `i`.
fn condition(text: &str) -> Result<(Op, u64), String> {
    let text = text.trim();
    let found = Op::ALL.iter().filter(|(_, op)| *op != Op::NotEqual).find(|(name, _)| text.starts_with(name));
    let (op, size) = found.map_or((Op::Equal, text), |(name, op)| (*op, text[name.len()..].trim_start()));
    let digits = size.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(size.len());
    let unit = size[digits..].trim().to_ascii_lowercase();
    let unit = unit.strip_suffix('b').unwrap_or(&unit);
    let (letter, base) = unit.strip_suffix('i').map_or((unit, 1000u64), |letter| (letter, 1024));
    let power = match (letter, base) {
        ("", 1000) => Some(0),
        (letter, _) => ["k", "m", "g", "t", "p", "e"].iter().position(|l| *l == letter).map(|at| at as u32 + 1),
    };
    let bytes = power.and_then(|power| decimal(&size[..digits])?.scaled(base.pow(power)));
    bytes.map(|bytes| (op, bytes)).ok_or_else(|| format!("{text:?} is not a size such as 4GB, >= 1TB or < 512GiB"))
}

/// A decimal number, exact: its digits, and how many of them are behind the point.
struct Decimal {
    digits: u128,
    places: u32,
}

fn decimal(text: &str) -> Option<Decimal> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    // 20 digits hold every 64-bit size and cannot overflow below.
    if whole.len() + fraction.len() > 20 {
        return None;
    }
    let digits = format!("{whole}{fraction}").parse().ok()?;
    Some(Decimal { digits, places: fraction.len() as u32 })
}

impl Decimal {
    fn scaled(&self, factor: u64) -> Option<u64> {
        let product = self.digits.checked_mul(u128::from(factor))?;
        u64::try_from(product / 10u128.pow(self.places)).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        for (text, expected) in [
            ("4GB", (Op::Equal, 4_000_000_000)),
            (">= 1TB", (Op::GreaterOrEqual, 1_000_000_000_000)),
            ("> 1.5 TiB", (Op::Greater, 3 << 39)),
            ("<=512gib", (Op::LessOrEqual, 512 << 30)),
            ("== 1024", (Op::Equal, 1024)),
            ("<10 b", (Op::Less, 10)),
            (" < 2k", (Op::Less, 2000)),
        ] {
            assert_eq!(condition(text), Ok(expected), "{text}");
        }
        for bad in ["", ">", "big", "> GB", "!= 4GB", "=> 4GB", "1 XB", "1.2.3GB", "-1GB", "16EiB", "ib", "9e9"] {
            assert!(condition(bad).is_err(), "{bad}: {:?}", condition(bad));
        }
    }

    #[test]
    fn keys_and_values_in_one_word() {
        let text = |words: &str| Selector::of_words(words).map(|selector| selector.to_string());
        let real = "disk.transport != \"\" && !(disk.readonly) && !(disk.cdrom)";
        assert_eq!(
            text("size:>=1TB,type:ssd").unwrap(),
            format!("disk.size >= 1000000000000u && !(disk.rotational) && {real}")
        );
        assert_eq!(
            text("busPath:/pci0000:00/*,model:WDC W*").unwrap(),
            format!("glob(\"/pci0000:00/*\", disk.bus_path) && glob(\"WDC W*\", disk.model) && {real}")
        );
        for (words, error) in [
            ("", "\"\" is not KEY:VALUE"),
            ("sda", "\"sda\" is not KEY:VALUE"),
            ("serial:a,", "\"\" is not KEY:VALUE"),
            ("colour:red", "\"colour\" is not a key of a disk selector: size, name"),
            ("serial:", "serial: the value is missing"),
            ("serial:a,serial:b", "serial: it is given twice"),
            ("size:big", "size: \"big\" is not a size such as 4GB"),
            ("type:floppy", "type: \"floppy\" is not ssd, hdd, nvme or sd"),
        ] {
            let found = Selector::of_words(words).unwrap_err();
            assert!(found.starts_with(error), "{words}: {found}");
        }
    }

    #[test]
    fn a_disk_that_is_not_meant_is_told_why() {
        let disk = DiskTraits { size: 5, model: "Foo".into(), rotational: true, ..DiskTraits::default() };
        let model = Selector::Glob("model", "F*".into());
        let large = Selector::Number("size", Op::Greater, 9);
        let ssd = Selector::Not(Box::new(Selector::Bool("rotational")));
        assert_eq!(model.mismatch(&disk), None);
        let all = Selector::All(vec![model.clone(), large.clone(), ssd]);
        assert_eq!(all.mismatch(&disk).unwrap(), "size is 5, not > 9, disk.rotational is true");
        assert_eq!(Selector::Any(vec![model, large.clone()]).mismatch(&disk), None);
        let neither = Selector::Any(vec![large, Selector::Symlink("/dev/disk/x".into())]);
        assert_eq!(neither.mismatch(&disk).unwrap(), "size is 5, not > 9 and /dev/disk/x is not a link to it");
    }

    #[test]
    fn every_field_is_reached_by_its_name() {
        let disk = DiskTraits {
            size: 1,
            io_size: 2,
            sector_size: 3,
            dev_path: "dev_path".into(),
            model: "model".into(),
            serial: "serial".into(),
            modalias: "modalias".into(),
            wwid: "wwid".into(),
            uuid: "uuid".into(),
            name: "name".into(),
            bus_path: "bus_path".into(),
            transport: "transport".into(),
            ..DiskTraits::default()
        };
        for (name, _) in FIELDS.iter().filter(|(_, kind)| *kind == FieldType::Text) {
            assert_eq!(disk.text(name), *name);
        }
        assert_eq!(["size", "io_size", "sector_size"].map(|name| disk.number(name)), [1, 2, 3]);
        for (n, field) in ["readonly", "cdrom", "rotational"].iter().enumerate() {
            let one = DiskTraits { readonly: n == 0, cdrom: n == 1, rotational: n == 2, ..DiskTraits::default() };
            assert!(one.boolean(field) && !DiskTraits::default().boolean(field), "{field}");
        }
    }
}
