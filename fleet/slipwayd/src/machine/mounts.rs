//! The mounts to undo before a volume can be made anew, in their order. From the text of `/proc/self/mountinfo`
//! (proc_pid_mountinfo(5)); nothing is looked up here.

use std::{
    cmp::Reverse,
    fmt,
    path::{Path, PathBuf},
};

/// The number of a device, as the kernel writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Dev {
    /// Its driver.
    pub major: u32,
    /// Which of the driver's devices.
    pub minor: u32,
}

impl Dev {
    /// From `8:7`.
    pub fn parse(text: &str) -> Option<Self> {
        let (major, minor) = text.split_once(':')?;
        Some(Self { major: major.parse().ok()?, minor: minor.parse().ok()? })
    }
}

/// One mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    id: u64,
    parent: u64,
    /// The device of its file system.
    pub dev: Dev,
    /// Where it is.
    pub point: PathBuf,
    kind: String,
    options: String,
}

/// Why a volume cannot be unmounted at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Never {
    /// The system runs from it.
    Root,
    /// A kept volume is mounted inside of it.
    Kept(PathBuf),
    /// The kernel's text is not understood.
    Unknown(String),
}

impl fmt::Display for Never {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => f.write_str("the system's root lies on EPHEMERAL, so it cannot be made anew while it runs"),
            Self::Kept(point) => {
                write!(f, "{} is of STATE, lies inside of EPHEMERAL, and stays mounted", point.display())
            }
            Self::Unknown(line) => write!(f, "a line of mountinfo is not as expected: {line:?}"),
        }
    }
}

impl Mount {
    fn parse(line: &str) -> Option<Self> {
        let (mount, file_system) = line.split_once(" - ")?;
        let mut fields = mount.split(' ');
        let (id, parent) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
        let dev = Dev::parse(fields.next()?)?;
        let point = unescaped(fields.nth(1)?).into();
        // A source may be empty, or have a space.
        let mut of = file_system.splitn(2, ' ');
        let (kind, rest) = (of.next()?.to_owned(), of.next()?);
        let options = rest.rsplit(' ').next()?.to_owned();
        Some(Self { id, parent, dev, point, kind, options })
    }

    /// Whether it has a device of its own, and lies on others.
    pub fn is_overlay(&self) -> bool {
        self.kind == "overlay"
    }

    /// Whether it is an overlay of which a part lies on the mount at `point`.
    fn lies_on(&self, point: &Path) -> bool {
        let value = |option: &str| option.split_once('=').map(|(key, value)| (key.to_owned(), value.to_owned()));
        let dirs = self.options.split(',').filter_map(value);
        let dirs = dirs
            .filter(|(key, _)| matches!(key.as_str(), "lowerdir" | "lowerdir+" | "datadir+" | "upperdir" | "workdir"));
        let is_on = |dir: &str| {
            let dir = PathBuf::from(unescaped(dir));
            // A mount of the initramfs still has the path from there: `/root/var` is now `/var`.
            let rest: PathBuf = dir.components().skip(2).collect();
            dir.starts_with(point) || Path::new("/").join(rest).starts_with(point)
        };
        self.is_overlay() && dirs.into_iter().any(|(_, value)| value.split(':').any(is_on))
    }
}

/// The mounts of a text of mountinfo.
pub fn mounts(text: &str) -> Result<Vec<Mount>, Never> {
    let lines = text.lines().filter(|line| !line.is_empty());
    lines.map(|line| Mount::parse(line).ok_or_else(|| Never::Unknown(line.to_owned()))).collect()
}

/// The mounts of these devices.
pub fn parse(text: &str, devices: &[Dev]) -> Result<Vec<Mount>, Never> {
    Ok(mounts(text)?.into_iter().filter(|mount| devices.contains(&mount.dev)).collect())
}

/// The mounts to undo, each mount after all that are inside of it: every mount of the `volume`, bind mounts too, overlays
/// that lie on it, and whatever is mounted inside of these. Nothing of `kept`.
pub fn to_unmount(text: &str, volume: &[Dev], kept: &[Dev]) -> Result<Vec<Mount>, Never> {
    let all = mounts(text)?;
    let mut goes: Vec<bool> = all.iter().map(|mount| volume.contains(&mount.dev)).collect();
    loop {
        let inside = |mount: &Mount| {
            let holds = |of: &Mount| (of.id == mount.parent && of.id != mount.id) || mount.lies_on(&of.point);
            all.iter().zip(&goes).any(|(of, goes)| *goes && holds(of))
        };
        let more: Vec<bool> = all.iter().zip(&goes).map(|(mount, goes)| *goes || inside(mount)).collect();
        if more == goes {
            break;
        }
        goes = more;
    }
    let of_kept: Vec<&Mount> = all.iter().filter(|mount| kept.contains(&mount.dev)).collect();
    let is_kept = |mount: &Mount| kept.contains(&mount.dev) || of_kept.iter().any(|kept| mount.lies_on(&kept.point));
    let depth = |mount: &Mount| {
        let up = |of: &&Mount| all.iter().find(|parent| parent.id == of.parent && parent.id != of.id);
        // A circle, which no kernel makes, would end, too.
        std::iter::successors(Some(mount), up).take(all.len()).count()
    };
    let mut order = Vec::new();
    for (at, mount) in all.iter().enumerate().filter(|(at, _)| goes[*at]) {
        match mount {
            mount if mount.point == Path::new("/") => return Err(Never::Root),
            mount if is_kept(mount) => return Err(Never::Kept(mount.point.clone())),
            // Of those that are equally deep the last one first: an overlay comes after what it lies on.
            mount => order.push((Reverse((depth(mount), at)), mount.clone())),
        }
    }
    order.sort_by_key(|(place, _)| *place);
    Ok(order.into_iter().map(|(_, mount)| mount).collect())
}

/// The kernel writes space, tab, newline and backslash as octal escapes.
pub fn unescaped(text: &str) -> String {
    let mut words = text.split('\\');
    let mut plain = words.next().unwrap_or_default().to_owned();
    for word in words {
        let code = word.get(..3).and_then(|code| u8::from_str_radix(code, 8).ok());
        match code.zip(word.get(3..)) {
            Some((code, rest)) => {
                plain.push(char::from(code));
                plain.push_str(rest);
            }
            None => {
                plain.push('\\');
                plain.push_str(word);
            }
        }
    }
    plain
}
