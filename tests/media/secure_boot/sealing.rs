//! What is sealed to the PCR key, judged by a TPM: swtpm, and tpm2-tools as its user. The TPM hashes what a stub measures, and
//! decides itself.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Child,
    thread::sleep,
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::Value;
use slipway_test_support::world::{Payload, finished, program};

use super::*;

const SECRET: &str = "a key of a volume";

/// A TPM that was just switched on. Its registers are zero; what it has sealed it still opens.
struct Tpm<'w> {
    world: &'w World,
    process: Child,
}

impl<'w> Tpm<'w> {
    fn start(world: &'w World) -> Self {
        let state = world.path("tpm");
        fs::create_dir_all(&state).unwrap();
        let (socket, control) = (state.join("socket"), state.join("socket.ctrl"));
        for old in [&socket, &control] {
            let _ = fs::remove_file(old);
        }
        let at = |flag: &str, path: &Path, more: &str| format!("{flag}type=unixio,path={}{more}", path.display());
        let mut command = std::process::Command::new("swtpm");
        command.args(["socket", "--tpm2", "--flags", "not-need-init,startup-clear"]);
        command.arg("--tpmstate").arg(format!("dir={}", state.display()));
        command.arg(at("--ctrl=", &control, "")).arg(at("--server=", &socket, ",disconnect"));
        // It says so whenever a tool has done with it.
        let process = command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null()).spawn().unwrap();
        while !socket.exists() || !control.exists() {
            sleep(Duration::from_millis(10));
        }
        let tpm = Tpm { world, process };
        tpm.does("tpm2_createprimary", &["-C", "o", "-G", "ecc", "-c", "@primary"]);
        tpm
    }

    fn path(&self, name: &str) -> PathBuf {
        self.world.path(&format!("tpm/{name}"))
    }

    /// One command of tpm2-tools; `@NAME` is a file. No resource manager frees memory in this TPM, so each command flushes what it has loaded.
    fn tries(&self, tool: &str, args: &[&str]) -> Option<String> {
        let tcti = format!("swtpm:path={}", self.path("socket").display());
        let file = |arg: &&str| match arg.split_once('@') {
            Some((before, name)) => format!("{before}{}", self.path(name).display()),
            None => (*arg).to_owned(),
        };
        let output = program(tool).env("TPM2TOOLS_TCTI", &tcti).args(args.iter().map(file)).output().unwrap();
        finished(program("tpm2_flushcontext").env("TPM2TOOLS_TCTI", &tcti).arg("-t"));
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn does(&self, tool: &str, args: &[&str]) -> String {
        self.tries(tool, args).unwrap_or_else(|| panic!("{tool} {args:?} failed"))
    }

    /// The secret, sealed to whatever value of PCR 11 this key has signed.
    fn seal(&self, key: &Key) {
        fs::write(self.path("secret"), SECRET).unwrap();
        self.load(key);
        self.does("tpm2_startauthsession", &["-S", "@session"]);
        self.does("tpm2_policyauthorize", &["-S", "@session", "-n", "@name", "-L", "@policy"]);
        self.does("tpm2_flushcontext", &["@session"]);
        let sealed = ["-C", "@primary", "-L", "@policy", "-i", "@secret", "-u", "@sealed.public", "-r", "@sealed"];
        self.does("tpm2_create", &sealed);
    }

    fn load(&self, key: &Key) {
        finished(
            program("openssl").args(["pkey", "-pubout", "-in"]).arg(&key.key).arg("-out").arg(self.path("public")),
        );
        self.does("tpm2_loadexternal", &["-C", "o", "-G", "rsa", "-u", "@public", "-c", "@key", "-n", "@name"]);
    }

    fn measure(&self, bytes: &[u8]) {
        fs::write(self.path("event"), bytes).unwrap();
        self.does("tpm2_pcrevent", &["11", "@event"]);
    }

    /// What systemd's stub measures before it starts the kernel of this UKI of the payload.
    fn measure_uki(&self, uki: &Path) {
        let file = |name: &str| self.world.payload.read(name);
        let part = |name: &str| text(section(self.world, uki, name)).into_bytes();
        for (name, content) in [
            (".linux", file(Payload::KERNEL)),
            (".osrel", file("os-release")),
            (".cmdline", part(".cmdline")),
            (".initrd", file(Payload::INITRAMFS)),
            (".pcrpkey", part(".pcrpkey")),
        ] {
            self.measure(format!("{name}\0").as_bytes());
            self.measure(&content);
        }
    }

    /// Whether the secret comes out with one of the signed policies that are in this UKI.
    fn opens(&self, key: &Key, uki: &Path) -> bool {
        let document: Value = serde_json::from_str(&text(section(self.world, uki, ".pcrsig"))).unwrap();
        let rows = document["sha256"].as_array().unwrap();
        assert!(!rows.is_empty());
        rows.iter().any(|row| self.opens_by(key, row).is_some_and(|said| said == SECRET))
    }

    fn opens_by(&self, key: &Key, row: &Value) -> Option<String> {
        let policy: slipway_core::digest::Sha256 = row["pol"].as_str().unwrap().parse().unwrap();
        fs::write(self.path("signed"), policy.0).unwrap();
        fs::write(self.path("signature"), STANDARD.decode(row["sig"].as_str().unwrap()).unwrap()).unwrap();
        self.load(key);
        let signature = ["-g", "sha256", "-f", "rsassa", "-m", "@signed", "-s", "@signature"];
        self.tries("tpm2_verifysignature", &[&["-c", "@key", "-t", "@ticket"], &signature[..]].concat())?;
        self.does("tpm2_startauthsession", &["--policy-session", "-S", "@session"]);
        self.does("tpm2_policypcr", &["-S", "@session", "-l", "sha256:11"]);
        let authorized = ["-S", "@session", "-i", "@signed", "-n", "@name", "-t", "@ticket"];
        let opened = self.tries("tpm2_policyauthorize", &authorized).and_then(|_| {
            self.does("tpm2_load", &["-C", "@primary", "-u", "@sealed.public", "-r", "@sealed", "-c", "@object"]);
            self.tries("tpm2_unseal", &["-c", "@object", "-p", "session:@session"])
        });
        self.does("tpm2_flushcontext", &["@session"]);
        opened
    }
}

impl Drop for Tpm<'_> {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn a_tpm_opens_for_signed_values_of_pcr_11_and_for_no_others() {
    let world = world();
    let (key, pcr, other) = (Key::rsa(&world, "ours"), Key::rsa(&world, "pcr"), Key::rsa(&world, "other"));
    let [first, next, changed] = ["first.efi", "next.efi", "changed.efi"].map(|name| world.path(name));
    let make = |out: &Path, pcr: &Key, extra: &[&str]| {
        let asked = format!("--pcr-key={}", pcr.key.display());
        uki(&world, out, &key, &[&[asked.as_str(), "--pcr-phase=enter-initrd"], extra].concat());
    };
    make(&first, &pcr, &[]);
    make(&next, &pcr, &["--extra-kernel-arg=next"]);
    // For Secure Boot the same key has signed it.
    make(&changed, &other, &["--extra-kernel-arg=init=/bin/sh"]);

    let tpm = Tpm::start(&world);
    tpm.seal(&pcr);
    tpm.measure_uki(&first);
    assert!(!tpm.opens(&pcr, &first), "not signed for this moment");
    tpm.measure(b"enter-initrd");
    assert!(tpm.opens(&pcr, &first));
    tpm.measure(b"leave-initrd");
    assert!(!tpm.opens(&pcr, &first), "one more measurement");
    drop(tpm);

    // An upgrade: another value, signed by the same key. Nothing is sealed again.
    let tpm = Tpm::start(&world);
    tpm.measure_uki(&next);
    tpm.measure(b"enter-initrd");
    assert!(tpm.opens(&pcr, &next));
    assert!(!tpm.opens(&pcr, &first), "the policy of another system");
    drop(tpm);

    let tpm = Tpm::start(&world);
    tpm.measure_uki(&changed);
    tpm.measure(b"enter-initrd");
    assert!(!tpm.opens(&other, &changed), "signed by another key");
    for signed in [&first, &next] {
        assert!(!tpm.opens(&pcr, signed), "whoever changes the command line takes the signatures of another system");
    }
}
