//! Programs that firmware verifies, and the keys for that. `sbverify` and `osslsigncode` judge signatures, `objcopy` what is
//! in a program, `systemd-measure` PCR 11, swtpm with tpm2-tools what is sealed to it, `openssl` keys, and efitools the variables, which they make to the last byte.

mod disk;
mod enroll;
mod keys;
mod medium;
mod pcr;
mod profile;
mod sealing;
mod uki;

use std::path::{Path, PathBuf};

use assert_cmd::Command;
use serde_json::Value;
use slipway_test_support::world::{Outcome, Payload, World, finished, installer, program};

/// systemd's own, as Debian has it.
const STUB: &str = "/usr/lib/systemd/boot/efi/linuxx64.efi.stub";

/// A payload with a command line of its own.
fn world() -> World {
    let world = World::new();
    world.payload.write("cmdline", "quiet rootsum=@squashfs-sha256@\n");
    world
}

/// Whether firmware that knows this certificate would start a program.
fn sbverify(key: &Key, file: &Path) -> bool {
    program("sbverify").arg("--cert").arg(&key.certificate).arg(file).output().unwrap().status.success()
}

/// A key with its certificate.
struct Key {
    key: PathBuf,
    certificate: PathBuf,
}

impl Key {
    fn new(world: &World, name: &str, kind: &[&str]) -> Self {
        let key = Key { key: world.path(&format!("{name}.key")), certificate: world.path(&format!("{name}.pem")) };
        let mut command = program("openssl");
        command.args(["req", "-new", "-x509", "-nodes", "-sha256", "-days", "2", "-subj", "/CN=test/", "-newkey"]);
        finished(command.args(kind).arg("-keyout").arg(&key.key).arg("-out").arg(&key.certificate));
        key
    }

    fn rsa(world: &World, name: &str) -> Self {
        Key::new(world, name, &["rsa:2048"])
    }

    fn args(&self) -> [String; 2] {
        [format!("--key={}", self.key.display()), format!("--certificate={}", self.certificate.display())]
    }
}

/// `installer uki` of the payload.
fn uki_command(world: &World, out: &Path, extra: &[&str]) -> Command {
    let mut command = installer(["uki", "--progress=none", "--output=json", "--out"]);
    command.arg(out).arg(format!("--source={}", world.payload.source())).args(extra);
    command.env_remove("INSTALLER_GRUB_USE_UKI_CMDLINE");
    command
}

/// The same, and it succeeds; its report.
fn uki(world: &World, out: &Path, key: &Key, extra: &[&str]) -> Value {
    Outcome::of(uki_command(world, out, extra).args(key.args())).succeeds().json()
}

/// The content of a section of a program, by binutils. They fill it up with zeros.
fn section(world: &World, file: &Path, name: &str) -> Vec<u8> {
    let to = world.path("section");
    let dump = format!("{name}={}", to.display());
    finished(program("objcopy").args(["--dump-section", &dump]).arg(file).arg(world.path("copy")));
    std::fs::read(to).unwrap()
}

/// Without the zeros at its end.
fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap().trim_end_matches('\0').to_owned()
}
