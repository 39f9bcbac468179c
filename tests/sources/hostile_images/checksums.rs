//! Payloads and what `installer checksum` wrote about them.

use super::*;

pub const ROWS: &[Row] = &[
    ("a wrong digest in SHA256SUMS", INPUT, &["vmlinuz: SHA-256 is"], |c| {
        c.listed_apart(|name, bytes| match name {
            "SHA256SUMS" => replaced(bytes, "vmlinuz"),
            _ => bytes.to_vec(),
        });
    }),
    ("a file that is not the one that was listed", INSTALL, &["rootfs.squashfs", "SHA-256 of what was read"], |c| {
        c.listed_apart(|name, bytes| match name {
            "rootfs.squashfs" => [&bytes[..bytes.len() - 1], &[!bytes[bytes.len() - 1]]].concat(),
            _ => bytes.to_vec(),
        });
    }),
    (
        "a file that is longer than the one that was listed",
        INSTALL,
        &["bytes in its layer, but manifest.json says"],
        |c| {
            c.listed_apart(|name, bytes| if name == "vmlinuz" { [bytes, &[0]].concat() } else { bytes.to_vec() });
        },
    ),
    ("a manifest that is not the one that was listed", INPUT, &["manifest.json: SHA-256 is"], |c| {
        c.listed_apart(|name, bytes| if name == "manifest.json" { [bytes, b"\n"].concat() } else { bytes.to_vec() });
    }),
    ("a SHA256SUMS that names a file elsewhere", INPUT, &["not a plain file name"], |c| {
        c.listed_apart(|name, bytes| match name {
            "SHA256SUMS" => [bytes, format!("{}  ../../etc/passwd\n", "0".repeat(64)).as_bytes()].concat(),
            _ => bytes.to_vec(),
        });
    }),
    ("a SHA256SUMS of 10 MiB", INPUT, &["SHA256SUMS: larger than 64 KiB"], |c| {
        c.listed_apart(|name, bytes| if name == "SHA256SUMS" { vec![b'0'; 10 << 20] } else { bytes.to_vec() });
    }),
    ("a cmdline that is not listed", INPUT, &["does not list cmdline"], |c| {
        let cmdline = Layer::new(dirs().file(&format!("{DIR}/cmdline"), b"init=/bin/sh").end(), Pack::Gzip);
        c.layers(vec![Layer::new(c.tar().end(), Pack::Gzip), cmdline]);
    }),
    ("a manifest with a file of 8 EiB", INPUT, &["slot"], |c| {
        relisted(c, |m| m["files"][0]["size"] = json!(8_u64 << 60));
    }),
    ("a manifest with other files", INPUT, &["one initramfs and optionally"], |c| {
        relisted(c, |m| m["files"][1]["name"] = json!("../../x"));
    }),
    ("a manifest without files", INPUT, &["one initramfs and optionally"], |c| relisted(c, |m| m["files"] = json!([]))),
    ("a kernel that is not the listed one, above the checksums", INPUT, &["vmlinuz: SHA-256 is"], |c| {
        let kernel = Layer::new(dirs().file(KERNEL, b"another kernel").end(), Pack::Gzip);
        c.layers(vec![Layer::new(c.tar().end(), Pack::Gzip), kernel]);
    }),
    ("a squashfs that is not listed, above the checksums", INPUT, &["does not list rootfs.squashfs"], |c| {
        let squashfs = Layer::new(dirs().file(&format!("{DIR}/rootfs.squashfs"), b"hsqs").end(), Pack::Gzip);
        let below = Layer::new(without(c, "rootfs.squashfs"), Pack::Gzip);
        c.layers(vec![below, squashfs]);
    }),
    ("an initramfs that is not listed, below the checksums", INSTALL, &["does not list initramfs.gz"], |c| {
        let copied: Vec<_> = c.files.iter().map(|(n, _)| n.as_str()).filter(|n| !CHECKSUM_FILES.contains(n)).collect();
        let with_it = dirs().file(&format!("{DIR}/initramfs.gz"), b"x");
        let files = c.files.iter().filter(|(n, _)| copied.contains(&n.as_str()));
        let tar = files.fold(with_it, |tar, (n, bytes)| tar.file(&format!("{DIR}/{n}"), bytes));
        c.layers(vec![Layer::new(tar.end(), Pack::Gzip), layer(c.files, &CHECKSUM_FILES, Pack::Gzip)]);
    }),
    ("a file that was listed and is whited out", INPUT, &["lists a file that is not there: os-release"], |c| {
        let gone = Layer::new(dirs().file(&format!("{DIR}/.wh.os-release"), b"").end(), Pack::Gzip);
        c.layers(vec![Layer::new(c.tar().end(), Pack::Gzip), gone]);
    }),
    ("a kernel that is none, listed by other means", INSTALL, &["not a Linux kernel"], |c| {
        forged(c, "vmlinuz", b"no kernel at all");
    }),
    ("a squashfs that is none, listed by other means", INSTALL, &["not a squashfs"], |c| {
        forged(c, "rootfs.squashfs", b"no squashfs at all");
    }),
    ("a manifest of the future", INPUT, &["format 2"], |c| relisted(c, |m| m["format"] = json!(2))),
    ("a manifest for another architecture", INPUT, &["arm64"], |c| relisted(c, |m| m["arch"] = json!("arm64"))),
    ("a command line that GRUB would run", INPUT, &["quotes inside a word"], |c| {
        relisted(c, |m| m["cmdline"] = json!("quiet x='; halt; '"));
    }),
];

/// The list with a zero digest for one file.
fn replaced(sums: &[u8], name: &str) -> Vec<u8> {
    let text = std::str::from_utf8(sums).unwrap();
    let line = |l: &str| if l.ends_with(name) { format!("{}  {name}\n", "0".repeat(64)) } else { format!("{l}\n") };
    text.lines().map(line).collect::<String>().into_bytes()
}

/// A list of checksums whose digests are right, around a manifest that was edited.
fn relisted(c: &Case, edit: impl Fn(&mut serde_json::Value)) {
    let mut manifest: serde_json::Value = serde_json::from_slice(c.bytes("manifest.json")).unwrap();
    edit(&mut manifest);
    let manifest = manifest.to_string().into_bytes();
    let sums = std::str::from_utf8(c.bytes("SHA256SUMS")).unwrap();
    let kept = sums.lines().filter(|l| !l.ends_with("manifest.json")).map(|l| format!("{l}\n"));
    let sums = kept.chain([format!("{}  manifest.json\n", Sha256::of(&manifest))]).collect::<String>();
    // A renamed file is listed under its new name, too.
    let sums = sums + &format!("{}  x\n", Sha256::of(c.bytes("initramfs.xz")));
    let checksums =
        dirs().file(&format!("{DIR}/SHA256SUMS"), sums.as_bytes()).file(&format!("{DIR}/manifest.json"), &manifest);
    c.layers(vec![Layer::new(c.tar().end(), Pack::Gzip), Layer::new(checksums.end(), Pack::Gzip)]);
}

/// A payload without one of its files, listed: a tar archive.
fn without(c: &Case, name: &str) -> Vec<u8> {
    let mut manifest: serde_json::Value = serde_json::from_slice(c.bytes("manifest.json")).unwrap();
    manifest["files"].as_array_mut().unwrap().retain(|f| f["name"] != name);
    let manifest = manifest.to_string().into_bytes();
    let kept = c.files.iter().filter(|(n, _)| n != name && !CHECKSUM_FILES.contains(&n.as_str()));
    let sums = kept.clone().map(|(n, bytes)| format!("{}  {n}\n", Sha256::of(bytes)));
    let sums = sums.chain([format!("{}  manifest.json\n", Sha256::of(&manifest))]).collect::<String>();
    let tar = kept.fold(dirs(), |tar, (n, bytes)| tar.file(&format!("{DIR}/{n}"), bytes));
    tar.file(&format!("{DIR}/SHA256SUMS"), sums.as_bytes()).file(&format!("{DIR}/manifest.json"), &manifest).end()
}

/// Checksums by a program that does not look into the files: one of them is something else.
fn forged(c: &Case, name: &str, bytes: &[u8]) {
    let mut manifest: serde_json::Value = serde_json::from_slice(c.bytes("manifest.json")).unwrap();
    for file in manifest["files"].as_array_mut().unwrap().iter_mut().filter(|f| f["name"] == name) {
        (file["size"], file["sha256"]) = (json!(bytes.len()), json!(Sha256::of(bytes).to_string()));
    }
    let manifest = manifest.to_string().into_bytes();
    let edited = c.files.iter().filter(|(n, _)| !CHECKSUM_FILES.contains(&n.as_str()));
    let edited: Vec<_> = edited.map(|(n, old)| (n, if n == name { bytes } else { old })).collect();
    let sums = edited.iter().map(|(n, bytes)| format!("{}  {n}\n", Sha256::of(bytes)));
    let sums = sums.chain([format!("{}  manifest.json\n", Sha256::of(&manifest))]).collect::<String>();
    let tar = edited.iter().fold(dirs(), |tar, (n, bytes)| tar.file(&format!("{DIR}/{n}"), bytes));
    let checksums =
        dirs().file(&format!("{DIR}/SHA256SUMS"), sums.as_bytes()).file(&format!("{DIR}/manifest.json"), &manifest);
    c.layers(vec![Layer::new(tar.end(), Pack::Gzip), Layer::new(checksums.end(), Pack::Gzip)]);
}
