//! The program in a root of its own, as in the container that machined starts: `/bin/installer`, `/bin/imager`, the
//! payload in `/usr/install/amd64`, the boot assets in `/usr/share/slipway/assets`, and mkfs.xfs.

use std::{fs, os::unix::fs::symlink, path::PathBuf};

use assert_cmd::Command;
use slipway_test_support::world::{self, World, assets};

pub struct Container(PathBuf);

impl Container {
    pub fn new(world: &World) -> Self {
        let root = world.path("container");
        for dir in [
            "dev",
            "proc",
            "sys",
            "tmp",
            "usr/bin",
            "usr/sbin",
            "usr/lib",
            "usr/lib64",
            "usr/install/amd64",
            "usr/share/slipway/assets",
        ] {
            fs::create_dir_all(root.join(dir)).unwrap();
        }
        for dir in ["bin", "sbin", "lib", "lib64"] {
            symlink(format!("usr/{dir}"), root.join(dir)).unwrap();
        }
        fs::copy(env!("CARGO_BIN_EXE_installer"), root.join("usr/bin/installer")).unwrap();
        symlink("installer", root.join("usr/bin/imager")).unwrap();
        Container(root)
    }

    /// A path inside, seen from outside.
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// A program inside, with nothing but its own files: no /dev, /proc or /sys, an empty environment.
    pub fn bare(&self, program: &str, args: &[&str]) -> Command {
        self.command("", program, args)
    }

    /// A program inside, with what machined mounts, a payload, and a kernel command line.
    pub fn run(&self, payload: &std::path::Path, cmdline: &str, program: &str, args: &[&str]) -> Command {
        let file = self.path("cmdline");
        fs::write(&file, cmdline).unwrap();
        let mounts = format!(
            "mount --rbind /dev \"$root/dev\" && mount --rbind /sys \"$root/sys\" && mount -t proc none \"$root/proc\" && \
             mount --bind {} \"$root/proc/cmdline\" && mount --bind {} \"$root/usr/install/amd64\" && \
             mount --bind {} \"$root/usr/share/slipway/assets\" && mount --bind /usr/sbin \"$root/usr/sbin\" && ",
            file.display(),
            payload.display(),
            assets().display()
        );
        self.command(&mounts, program, args)
    }

    fn command(&self, mounts: &str, program: &str, args: &[&str]) -> Command {
        // The test build is linked dynamically.
        let libraries = "mount --bind /usr/lib \"$root/usr/lib\" && mount --bind /usr/lib64 \"$root/usr/lib64\" && ";
        let script = format!("root=$1; shift; {libraries}{mounts}exec chroot \"$root\" \"$@\"");
        let mut command = Command::new("/usr/bin/unshare");
        command.args(["--mount", "/bin/sh", "-c", &script, "sh"]).arg(&self.0).arg(program).args(args);
        command.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").timeout(world::PATIENCE);
        command
    }
}
