//! The variables of UEFI firmware, through efivarfs (Documentation/filesystems/efivarfs.rst).

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use nix::{
    errno::Errno,
    mount::{MsFlags, mount},
    sys::statfs::{FsType, statfs},
};
use slipway_core::efi::variable::{ATTRIBUTES, Variable};

use super::ioctl;

/// Mount point of efivarfs. The kernel makes the directory under UEFI only; any program may mount it.
const EFIVARS: &str = "/sys/firmware/efi/efivars";
const EFIVARFS: FsType = FsType(0xde5e_81e4);
/// 1 while a platform key may still be written (UEFI 2.10, section 3.3).
pub const SETUP_MODE: &str = "SetupMode";
/// 1 while the firmware verifies what it starts.
pub const SECURE_BOOT: &str = "SecureBoot";
// In front of each value.
const ATTRIBUTE_BYTES: usize = 4;

/// Mount the firmware's variables where nothing has done so yet, as in an initramfs, with systemd's options: it finds them
/// mounted then. Under BIOS there are none. `Unsupported` is the error of a kernel that will never show them: it was built
/// without efivarfs, its module is missing, or it does not ask the firmware (`efi=noruntime`).
pub fn mount_efivarfs() -> io::Result<()> {
    match statfs(EFIVARS) {
        Ok(there) if there.filesystem_type() == EFIVARFS => return Ok(()),
        Ok(_) => {}
        Err(Errno::ENOENT) => return Ok(()),
        Err(e) => return Err(e.into()),
    }
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    // The kernel loads the module for it. Another program may do the same at this moment.
    match mount(Some("efivarfs"), EFIVARS, Some("efivarfs"), flags, None::<&str>) {
        Ok(()) | Err(Errno::EBUSY) => Ok(()),
        Err(e @ (Errno::ENODEV | Errno::EOPNOTSUPP)) => Err(io::Error::new(io::ErrorKind::Unsupported, e)),
        Err(e) => Err(e.into()),
    }
}

/// A firmware's variables of Secure Boot.
pub trait EfiVariables {
    /// Content of the variable; none if there is no such variable.
    fn read(&self, variable: Variable) -> io::Result<Option<Vec<u8>>>;

    /// Whether a variable of this name, which the firmware itself sets, is 1. None if there is no such variable.
    fn flag(&self, name: &str) -> io::Result<Option<bool>>;

    /// Have the firmware carry out a change: `auth` is all of an `.auth` file.
    fn change(&self, variable: Variable, auth: &[u8]) -> io::Result<()>;
}

/// The variables of this machine.
#[derive(Clone, Debug)]
pub struct Efivarfs {
    dir: PathBuf,
}

impl Efivarfs {
    pub fn of_this_machine() -> Self {
        Efivarfs { dir: EFIVARS.into() }
    }

    fn path(&self, variable: Variable) -> PathBuf {
        self.dir.join(format!("{}-{}", variable.name(), variable.vendor()))
    }
}

impl EfiVariables for Efivarfs {
    fn read(&self, variable: Variable) -> io::Result<Option<Vec<u8>>> {
        value(&self.path(variable))
    }

    fn flag(&self, name: &str) -> io::Result<Option<bool>> {
        let value = value(&self.dir.join(format!("{name}-{}", Variable::Pk.vendor())))?;
        Ok(value.map(|value| value == [1]))
    }

    fn change(&self, variable: Variable, auth: &[u8]) -> io::Result<()> {
        let path = self.path(variable);
        // The kernel protects variables against `rm -rf`. It takes no other flag back.
        match File::open(&path) {
            Ok(file) => ioctl::set_immutable(&file, false)?,
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(e),
        }
        let mut file = OpenOptions::new().write(true).create(true).truncate(false).open(&path)?;
        // A write is one call of the firmware.
        let all = [&ATTRIBUTES.to_le_bytes(), auth].concat();
        let written = file.write(&all)?;
        if written != all.len() {
            return Err(io::Error::other(format!("the kernel took {written} of {} bytes", all.len())));
        }
        // The variable is set, even if the flag is not.
        let _ = File::open(&path).and_then(|file| ioctl::set_immutable(&file, true));
        Ok(())
    }
}

fn value(path: &Path) -> io::Result<Option<Vec<u8>>> {
    match fs::read(path) {
        // A variable that could not be made leaves an empty file behind.
        Ok(bytes) if bytes.is_empty() => Ok(None),
        Ok(bytes) => {
            let value = bytes.get(ATTRIBUTE_BYTES..).ok_or_else(|| io::Error::other("it has no attributes"))?;
            Ok(Some(value.to_vec()))
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_behind_their_attributes() {
        let dir = tempfile::tempdir().unwrap();
        let variables = Efivarfs { dir: dir.path().to_owned() };
        let put = |name: &str, bytes: &[u8]| fs::write(dir.path().join(name), bytes).unwrap();
        assert_eq!(variables.read(Variable::Db).unwrap(), None);
        assert_eq!(variables.flag(SETUP_MODE).unwrap(), None);
        put("db-d719b2cb-3d3a-4596-a3bc-dad00e67656f", b"\x27\0\0\0value");
        put("SetupMode-8be4df61-93ca-11d2-aa0d-00e098032b8c", b"\x06\0\0\0\x01");
        put("SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c", b"\x06\0\0\0\0");
        assert_eq!(variables.read(Variable::Db).unwrap().as_deref(), Some(&b"value"[..]));
        assert_eq!(variables.flag(SETUP_MODE).unwrap(), Some(true));
        assert_eq!(variables.flag(SECURE_BOOT).unwrap(), Some(false));
        put("PK-8be4df61-93ca-11d2-aa0d-00e098032b8c", b"");
        assert_eq!(variables.read(Variable::Pk).unwrap(), None);
        put("PK-8be4df61-93ca-11d2-aa0d-00e098032b8c", b"\x27\0");
        variables.read(Variable::Pk).unwrap_err();
    }
}
