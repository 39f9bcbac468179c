//! Predicts whether the firmware of this machine would start an image: Secure Boot, judged by its variables.
//!
//! A part that cannot be looked at is reported as unknown. The caller decides about it.

use std::{fs, path::Path};

use slipway_core::{
    efi::{
        database::{Database, judge, surely_refused},
        signature_list,
        variable::Variable,
    },
    plan::bootloader::FirmwareSays,
};

use crate::{
    device::{EfiVariables, Efivarfs, SECURE_BOOT},
    trust::is_signed,
};

/// There on every machine with Linux that names its firmware, and empty in many containers.
const FIRMWARE: &str = "/sys/firmware";

/// State of Secure Boot, and the certificates that it trusts.
pub enum SecureBoot {
    /// It starts anything.
    Off,
    /// It starts programs that db signs and dbx does not forbid.
    On { db: Database, dbx: Database },
    /// It is unknown, for this reason.
    Unknown(String),
}

impl SecureBoot {
    pub fn of_this_machine() -> Self {
        Self::seen(Path::new(FIRMWARE), &Efivarfs::of_this_machine())
    }

    /// `dir` is the kernel's directory about the firmware.
    fn seen(dir: &Path, variables: &dyn EfiVariables) -> Self {
        let is_empty = |dir: &Path| fs::read_dir(dir).map_or(true, |mut entries| entries.next().is_none());
        let efi = dir.join("efi");
        if is_empty(dir) {
            return SecureBoot::Unknown(format!("{} is empty, as in a container", dir.display()));
        }
        if !efi.exists() {
            // Started by a BIOS, which verifies nothing.
            return SecureBoot::Off;
        }
        if is_empty(&efi.join("efivars")) {
            return SecureBoot::Unknown(format!("efivarfs is not mounted on {}", efi.join("efivars").display()));
        }
        match variables.flag(SECURE_BOOT) {
            Ok(Some(true)) => Self::databases(variables),
            Ok(_) => SecureBoot::Off,
            Err(e) => SecureBoot::Unknown(format!("{SECURE_BOOT}: {e}")),
        }
    }

    fn databases(variables: &dyn EfiVariables) -> Self {
        let read = |variable: Variable| {
            let held = variables.read(variable).map_err(|e| format!("{}: {e}", variable.name()))?;
            let entries = signature_list::parse(&held.unwrap_or_default());
            entries
                .map(|entries| Database::from_entries(variable, &entries))
                .map_err(|e| format!("{}: {e}", variable.name()))
        };
        match (read(Variable::Db), read(Variable::Dbx)) {
            (Ok(db), Ok(dbx)) => SecureBoot::On { db, dbx },
            (Err(why), _) | (_, Err(why)) => SecureBoot::Unknown(why),
        }
    }

    /// Why the firmware would not start an image with this name. None also where that is not known.
    pub fn against(&self, name: &str, image: &[u8]) -> Option<String> {
        let SecureBoot::On { db, dbx } = self else { return None };
        surely_refused(image, db, dbx, &is_signed).map(|why| format!("{name}: {why}"))
    }

    /// The firmware's answer to an image.
    pub fn verdict(&self, image: &[u8]) -> FirmwareSays {
        match self {
            SecureBoot::Off => FirmwareSays::AnythingStarts,
            SecureBoot::Unknown(why) => FirmwareSays::NotKnown(why.clone()),
            SecureBoot::On { db, dbx } => match judge(image, db, dbx, &is_signed) {
                Ok(()) => FirmwareSays::Starts,
                Err(why) => FirmwareSays::Refuses(why.to_string()),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::RefCell, io};

    use slipway_core::{digest::Sha256, efi::signature_list::digest_list};
    use uuid::Uuid;

    use super::*;

    /// Fake EFI variables.
    struct Variables {
        secure_boot: io::Result<Option<bool>>,
        db: RefCell<Option<io::Result<Option<Vec<u8>>>>>,
    }

    impl EfiVariables for Variables {
        fn read(&self, variable: Variable) -> io::Result<Option<Vec<u8>>> {
            match variable {
                Variable::Db => self.db.borrow_mut().take().unwrap(),
                _ => Ok(None),
            }
        }

        fn flag(&self, _: &str) -> io::Result<Option<bool>> {
            match &self.secure_boot {
                Ok(flag) => Ok(*flag),
                Err(e) => Err(io::Error::from(e.kind())),
            }
        }

        fn change(&self, _: Variable, _: &[u8]) -> io::Result<()> {
            unreachable!("nothing is changed")
        }
    }

    fn verdict_with(
        dirs: &str,
        secure_boot: io::Result<Option<bool>>,
        db: io::Result<Option<Vec<u8>>>,
    ) -> FirmwareSays {
        seen(dirs, secure_boot, db).verdict(b"no program")
    }

    fn seen(dirs: &str, secure_boot: io::Result<Option<bool>>, db: io::Result<Option<Vec<u8>>>) -> SecureBoot {
        let dir = tempfile::tempdir().unwrap();
        if !dirs.is_empty() {
            fs::create_dir_all(dir.path().join(dirs)).unwrap();
        }
        let variables = Variables { secure_boot, db: RefCell::new(Some(db)) };
        SecureBoot::seen(dir.path(), &variables)
    }

    #[test]
    fn what_cannot_be_looked_at_is_not_known() {
        let denied = || io::Error::from(io::ErrorKind::PermissionDenied);
        let unknown = |says: FirmwareSays| matches!(says, FirmwareSays::NotKnown(_));
        assert!(unknown(verdict_with("", Ok(Some(true)), Ok(None))), "a container");
        assert!(unknown(verdict_with("efi", Ok(Some(true)), Ok(None))), "no efivarfs");
        assert!(unknown(verdict_with("efi/efivars/x", Err(denied()), Ok(None))));
        assert!(unknown(verdict_with("efi/efivars/x", Ok(Some(true)), Err(denied()))));
        assert!(
            unknown(verdict_with("efi/efivars/x", Ok(Some(true)), Ok(Some(vec![1, 2, 3])))),
            "no list of signatures"
        );
        assert_eq!(verdict_with("acpi", Ok(Some(true)), Ok(None)), FirmwareSays::AnythingStarts, "a BIOS");
        assert_eq!(verdict_with("efi/efivars/x", Ok(Some(false)), Ok(None)), FirmwareSays::AnythingStarts);
        assert_eq!(
            verdict_with("efi/efivars/x", Ok(None), Ok(None)),
            FirmwareSays::AnythingStarts,
            "one without Secure Boot"
        );
        let list = digest_list(&[Sha256::of(b"another")], Uuid::nil());
        let refused = verdict_with("efi/efivars/x", Ok(Some(true)), Ok(Some(list)));
        assert!(matches!(refused, FirmwareSays::Refuses(_)), "{refused:?}");
    }
}
