//! Firmware with Secure Boot starts what the keys of `installer keys` have signed, and nothing else. It takes these
//! keys from Linux, in setup mode.
//!
//! Subject: src/ops/keys.rs core/src/efi/auth.rs core/src/efi/signature.rs core/src/efi/signed_data.rs
//! Needs: root boot-assets payloads qemu

use std::{
    ffi::OsStr,
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use tempfile::TempDir;

use crate::{
    qemu::{Drive, Firmware, Machine},
    world::{World, run, scratch_dir},
};

const INIT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/vm-tests/guest/secure-boot.sh");

/// Keys, a payload that carries them, and a machine's variables.
pub struct Bench {
    dir: TempDir,
    pub firmware: Firmware,
}

impl Bench {
    pub fn new(firmware: Firmware) -> Self {
        let bench = Bench { dir: scratch_dir(), firmware };
        fs::copy(firmware.fresh_variables(), bench.path("variables")).expect("the variables can be copied");
        bench.keys("keys", &[]);
        bench
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn arg(&self, flag: &str, name: &str) -> String {
        format!("--{flag}={}", self.path(name).display())
    }

    /// Its report.
    pub fn installer(&self, args: &[&str]) -> Vec<u8> {
        run(&World::get().installer, [&["--progress=none"], args].concat())
    }

    pub fn keys(&self, dir: &str, args: &[&str]) {
        let to = self.path(dir).display().to_string();
        self.installer(&[&["keys", to.as_str()], args].concat());
    }

    pub fn signer(&self, dir: &str) -> [String; 2] {
        [
            self.arg("key", &format!("{dir}/uki-signing-key.pem")),
            self.arg("certificate", &format!("{dir}/uki-signing-cert.pem")),
        ]
    }

    /// The payload of the reference OS.
    pub fn plain_payload(&self) -> &'static Path {
        World::get().payload_for(self.firmware.arch())
    }

    /// The same with another init behind its own, and these files in /keys of it.
    fn payload(&self, name: &str, keys: &[PathBuf]) {
        let in_keys = |file: &PathBuf| Path::new("keys").join(file.file_name().unwrap_or_default());
        let files: Vec<_> = keys.iter().map(|file| (file.clone(), in_keys(file))).collect();
        self.payload_with(name, INIT, &files);
    }

    /// The same, with this script as init, and files under names of theirs.
    pub fn payload_with(&self, name: &str, init: &str, files: &[(PathBuf, PathBuf)]) {
        let (tree, payload) = (self.path("tree"), self.path(name));
        let _ = fs::remove_dir_all(&tree);
        fs::create_dir_all(&tree).expect("a directory can be made");
        fs::copy(init, tree.join("init")).expect("the script can be copied");
        let executable = fs::Permissions::from_mode(0o755);
        fs::set_permissions(tree.join("init"), executable).expect("it can be made executable");
        for (file, to) in files {
            let to = tree.join(to);
            fs::create_dir_all(to.parent().unwrap_or(&tree)).expect("a directory can be made");
            fs::copy(file, to).expect("a file can be copied");
        }
        run("cp", [OsStr::new("-r"), self.plain_payload().as_os_str(), payload.as_os_str()]);
        // An archive begins at a multiple of four bytes.
        let pack = "truncate -s %4 \"$1\"/initramfs.xz && cd \"$0\" && find . | cpio --quiet -o -H newc >>\"$1\"/initramfs.xz && rm \"$1\"/SHA256SUMS";
        run("sh", [OsStr::new("-c"), OsStr::new(pack), tree.as_os_str(), payload.as_os_str()]);
        self.installer(&["checksum", &payload.display().to_string()]);
    }

    pub fn uki(&self, payload: &str, out: &str, args: &[&str]) {
        let source = format!("--source=dir:{}", self.path(payload).display());
        let arch = format!("--arch={}", self.firmware.arch());
        // Debian has the stub for another architecture in that one's package.
        let stub = World::get().stub_for(self.firmware.arch()).map(|stub| format!("--stub={}", stub.display()));
        let stub: Vec<_> = stub.iter().map(String::as_str).collect();
        let all = ["uki", &source, &arch, &self.arg("out", out), "--extra-kernel-arg=panic=-1"];
        self.installer(&[&all[..], &stub, args].concat());
    }

    /// A disk from which firmware starts this program, and a machine with it. It keeps its variables.
    pub fn machine(&self, program: &str) -> Machine {
        let disk = self.path(&format!("{program}.disk"));
        fs::File::create(&disk).and_then(|file| file.set_len(128 << 20)).expect("a disk can be made");
        let (disk, program) = (disk.display().to_string(), self.path(program).display().to_string());
        run("mformat", ["-i", &disk, "-F", "::"]);
        run("mmd", ["-i", &disk, "::/EFI", "::/EFI/BOOT"]);
        run("mcopy", ["-i", &disk, &program, &format!("::/{}", self.firmware.removable())]);
        let drive = Drive::new(Path::new(&disk)).boot_index(1);
        Machine::with_secure_boot(self.firmware, &self.path("variables")).memory(1024).drive(&drive)
    }

    /// The boot assets with a signed loader.
    pub fn signed_loader(&self) -> String {
        let (assets, to) = (World::get().installer.with_file_name("assets"), self.path("assets"));
        run("cp", [OsStr::new("-r"), assets.as_os_str(), to.as_os_str()]);
        let loader = to.join(self.firmware.arch()).join("loader.efi").display().to_string();
        let signer = self.signer("keys");
        let program =
            [&["uki", "--force", "--program", &loader, "--out", &loader][..], &signer.each_ref().map(String::as_str)];
        self.installer(&program.concat());
        let sums = "cd \"$0\" && rm SHA256SUMS && sha256sum -- * >../sums && mv ../sums SHA256SUMS";
        let dir = to.join(self.firmware.arch());
        run("sh", ["-c", sums].map(OsStr::new).into_iter().chain([dir.as_os_str()]));
        to.display().to_string()
    }

    /// A payload that enrols the keys.
    pub fn enrolling(&self, name: &str) {
        self.payload(name, &["db", "KEK", "PK"].map(|name| self.path(&format!("keys/{name}.auth"))));
    }

    /// Starts it in setup mode.
    pub fn enrol(&self, program: &str) {
        let mut console = self.machine(program).start();
        console.wait_for("SLIPWAY-FIRMWARE setup=01 secure=00");
        for name in ["db", "KEK", "PK"] {
            console.wait_for(&format!("SLIPWAY-WROTE {name}"));
        }
        console.wait_for("SLIPWAY-ENROLLED setup=00");
        console.expect_power_off();
    }

    /// The same for a machine that has the keys already.
    pub fn enrolled(firmware: Firmware) -> Self {
        let bench = Bench::new(firmware);
        bench.enrolling("enrolling");
        bench.uki("enrolling", "enrolling.efi", &[]);
        bench.enrol("enrolling.efi");
        bench
    }

    /// Has the firmware revoke a program: a signed one of its own writes that to dbx.
    pub fn revoke(&self, program: &str) {
        let signer = self.signer("keys");
        let signer = signer.each_ref().map(String::as_str);
        let revoke = self.arg("revoke", program);
        self.keys("revoked", &[&signer[..], &[revoke.as_str()]].concat());
        self.payload("revoking", &[self.path("revoked/dbx.auth")]);
        self.uki("revoking", "revoking.efi", &signer);
        let mut console = self.machine("revoking.efi").start();
        console.wait_for("SLIPWAY-FIRMWARE setup=00 secure=01");
        console.wait_for("SLIPWAY-WROTE dbx");
        console.expect_power_off();
    }

    /// The firmware refuses it and goes on, and its system has said nothing.
    pub fn refuses(&self, program: &str) {
        self.machine(program).start().expect_refusal(program, &["SLIPWAY-"]);
    }
}

stories! {
    /// First start: in setup mode an unsigned UKI starts, and the firmware takes `db.auth`, `KEK.auth` and `PK.auth`
    /// from Linux. Second to fourth: the same UKI, one that other keys have signed, and a signed one with a changed
    /// command line are refused. Fifth: the signed one starts, and Secure Boot is on. Sixth: another signed UKI appends
    /// `dbx.auth`, which revokes the first. Seventh: the first one is refused. Eighth: the other one starts.
    firmware_starts_what_our_keys_have_signed_and_nothing_else: campaign Uefi, campaign UefiArm64 =>
        starts_what_our_keys_have_signed;
}

fn starts_what_our_keys_have_signed(firmware: Firmware) {
    let bench = Bench::new(firmware);
    bench.enrolling("first");
    let signer = bench.signer("keys");
    let signer = signer.each_ref().map(String::as_str);
    bench.uki("first", "unsigned.efi", &[]);
    bench.uki("first", "signed.efi", &signer);
    bench.keys("other", &[]);
    let other = bench.signer("other");
    bench.uki("first", "other.efi", &other.each_ref().map(String::as_str));
    let mut bytes = fs::read(bench.path("signed.efi")).expect("it was made");
    // In the command line: `panic=-1` becomes `panic=.1`.
    let at = bytes.windows(8).position(|text| text == b"panic=-1").expect("it is in there");
    bytes[at + 6] = b'.';
    fs::write(bench.path("changed.efi"), bytes).expect("it can be written");

    bench.enrol("unsigned.efi");
    for program in ["unsigned.efi", "other.efi", "changed.efi"] {
        bench.refuses(program);
    }
    let mut console = bench.machine("signed.efi").start();
    console.wait_for("SLIPWAY-FIRMWARE setup=00 secure=01");
    console.expect_power_off();
    bench.revoke("signed.efi");
    bench.refuses("signed.efi");
    let mut console = bench.machine("revoking.efi").start();
    console.wait_for("SLIPWAY-FIRMWARE setup=00 secure=01");
}
