//! A user without any of root's rights.

use std::{fs, path::PathBuf};

use assert_cmd::Command;

use super::{World, assets, installer_path, program, tool};

/// UID and GID of nobody.
pub const NOBODY: u32 = 65534;

/// Nobody, who has a directory, the program and the boot assets where they can be read, and may read the payload.
pub struct Nobody {
    pub home: PathBuf,
    installer: PathBuf,
    assets: PathBuf,
}

impl Nobody {
    pub fn new(world: &World) -> Self {
        let nobody =
            Nobody { home: world.path("nobody"), installer: world.path("installer"), assets: world.path("assets") };
        fs::create_dir(&nobody.home).unwrap();
        std::os::unix::fs::chown(&nobody.home, Some(NOBODY), Some(NOBODY)).unwrap();
        fs::copy(installer_path(), &nobody.installer).unwrap();
        tool!("cp", "-r", assets(), &nobody.assets);
        tool!("chmod", "a+rx", world.path(""), &nobody.installer);
        tool!("chmod", "-R", "a+rX", &nobody.assets, world.payload.dir());
        nobody
    }

    /// The program as this user, at home and in a time zone of his own; it needs its arguments.
    pub fn installer(&self) -> Command {
        self.installer_by(&[])
    }

    /// The same, started by another program, which gets it behind its own arguments.
    pub fn installer_by(&self, starter: &[&str]) -> Command {
        let mut command = program("setpriv");
        command.args(["--reuid", &NOBODY.to_string(), "--regid", &NOBODY.to_string()]);
        command.args(["--clear-groups", "--no-new-privs", "--inh-caps=-all"]).args(starter).arg(&self.installer);
        command.env("SLIPWAY_ASSETS", &self.assets).env_remove("SOURCE_DATE_EPOCH").env("TZ", "Asia/Tokyo");
        command.env("TMPDIR", &self.home).env("HOME", &self.home).current_dir(&self.home);
        command
    }
}
