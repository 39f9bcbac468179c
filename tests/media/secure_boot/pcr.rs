//! PCR 11, and who may open what is sealed to it.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::json;
use slipway_core::{digest::Sha256, efi::pcr::PHASES};
use slipway_test_support::world::{Payload, finished, program};

use super::*;

/// The value of PCR 11 after these phases, by `systemd-measure`.
fn measured(world: &World, uki: &Path, phases: &str) -> String {
    let mut command = program("/usr/lib/systemd/systemd-measure");
    command.args(["calculate", "--bank=sha256", "--json=short"]);
    // `:` is no phase at all.
    command.arg(format!("--phase={}", if phases.is_empty() { ":" } else { phases }));
    for (name, file) in [("linux", Payload::KERNEL), ("initrd", Payload::INITRAMFS), ("osrel", "os-release")] {
        command.arg(format!("--{name}={}", world.payload.path(file).display()));
    }
    for name in ["cmdline", "pcrpkey"] {
        let file = world.path(name);
        std::fs::write(&file, text(section(world, uki, &format!(".{name}")))).unwrap();
        command.arg(format!("--{name}={}", file.display()));
    }
    let said: serde_json::Value = serde_json::from_str(&finished(&mut command)).unwrap();
    said["sha256"][0]["hash"].as_str().unwrap().to_owned()
}

#[test]
fn pcr_11_is_what_systemd_says_and_its_policies_are_signed() {
    let world = world();
    let (key, pcr) = (Key::rsa(&world, "ours"), Key::rsa(&world, "pcr"));
    let out = world.path("uki.efi");
    let asked = format!("--pcr-key={}", pcr.key.display());
    let report = uki(&world, &out, &key, &[&asked, "--pcr-phase=", "--pcr-phase=enter-initrd:leave-initrd"]);
    assert_eq!(report["system"]["pcr11"], measured(&world, &out, ""));
    assert_eq!(report["system"]["pcr_phases"], json!(["", "enter-initrd:leave-initrd"]));

    let public = world.path("pcr.public");
    finished(program("openssl").args(["pkey", "-pubout", "-in"]).arg(&pcr.key).arg("-out").arg(&public));
    assert_eq!(text(section(&world, &out, ".pcrpkey")), std::fs::read_to_string(&public).unwrap());
    let document: serde_json::Value = serde_json::from_str(&text(section(&world, &out, ".pcrsig"))).unwrap();
    let rows = document["sha256"].as_array().unwrap();
    assert_eq!((document.as_object().unwrap().len(), rows.len()), (1, 2));
    let pkcs1 = world.path("pkcs1");
    let mut command = program("openssl");
    command.args(["rsa", "-pubin", "-RSAPublicKey_out", "-outform", "DER", "-in"]).arg(&public).arg("-out").arg(&pkcs1);
    finished(&mut command);
    let fingerprint = Sha256::of(&std::fs::read(pkcs1).unwrap()).to_string();
    for (row, phases) in rows.iter().zip(["", "enter-initrd:leave-initrd"]) {
        assert_eq!((&row["pcrs"], &row["pkfp"]), (&json!([11]), &json!(fingerprint)));
        let value: Sha256 = measured(&world, &out, phases).parse().unwrap();
        // TPM2_PolicyPCR of the specification, from the start of a policy.
        let head = [&[0; 32][..], &[0, 0, 1, 0x7f, 0, 0, 0, 1, 0, 0x0b, 3, 0, 8, 0], &Sha256::of(&value.0).0].concat();
        let policy = Sha256::of(&head);
        assert_eq!(row["pol"], policy.to_string());
        let (message, signature) = (world.path("message"), world.path("signature"));
        std::fs::write(&message, policy.0).unwrap();
        std::fs::write(&signature, STANDARD.decode(row["sig"].as_str().unwrap()).unwrap()).unwrap();
        let mut verify = program("openssl");
        verify.args(["dgst", "-sha256", "-verify"]).arg(&public).arg("-signature").arg(&signature).arg(&message);
        finished(&mut verify);
    }

    // Another command line is another value; without phases all of systemd's are signed.
    let other = world.path("other.efi");
    let changed = uki(&world, &other, &key, &[&asked, "--extra-kernel-arg=init=/bin/sh"]);
    assert_ne!(changed["system"]["pcr11"], report["system"]["pcr11"]);
    assert_eq!(changed["system"]["pcr_phases"], json!(PHASES));
}
