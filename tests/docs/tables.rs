//! What stands for what in the sandbox, and what is not run there.

/// Payloads in the sandbox, and their versions.
pub const PAYLOADS: [(&str, &str); 5] = [
    ("payload", "1.0.0"),
    ("payload-1.1", "1.1.0"),
    ("payload-1.2", "1.2.0"),
    ("payload-1.3", "1.3.0"),
    ("payload-arm64", "1.0.0"),
];

/// Tags of `os` in the registry, and what they carry. The first is also `out/image`, a layout, and `os.tar`, an archive.
pub const IMAGES: [(&str, &str); 2] = [("1.2", "payload-1.2"), ("1.3", "payload-1.3")];

/// Bytes of `/dev/sda`.
pub const DISK_BYTES: u64 = 8 << 30;

/// What the documents say, and what is run in its place.
pub fn substitutions(disk: &str, second: &str, registry_port: u16) -> Vec<(&'static str, String)> {
    let registry = format!("127.0.0.1:{registry_port}");
    vec![
        // A loop device of 8 GiB.
        ("/dev/sda", disk.to_owned()),
        // Another one, where a document names it.
        ("/dev/sdb", second.to_owned()),
        // Debian's registry, with TLS. It is its own mirror.
        ("registry.example", registry.clone()),
        ("mirror.example", registry),
        ("/usr/install/amd64", "payload".to_owned()),
        ("/run/slipway/payload", "payload".to_owned()),
        ("/srv/tftp", "tftp".to_owned()),
        ("/etc/slipway/update.toml", "update.toml".to_owned()),
    ]
}

/// The preparations that a document takes for granted: commands that are run before its own.
pub const PRELUDE: &[(&str, &[&str])] = &[
    ("docs/architecture.md", INSTALLED),
    ("docs/upgrade-and-boot.md", &[INSTALLED[0], INSTALLED[1], "truncate -s 4G node.raw", NODE]),
    ("docs/damage.md", &["truncate -s 4G disk.raw", IMAGE]),
    ("docs/troubleshooting.md", &[INSTALLED[0], "truncate -s 4G disk.raw", IMAGE]),
    ("docs/reports-and-events.md", &["truncate -s 4G disk.raw", IMAGE]),
    ("docs/growing.md", &["truncate -s 4G disk.raw", IMAGE]),
    ("docs/runbook.md", INSTALLED),
    ("docs/auto-upgrade.md", INSTALLED),
    (
        "docs/delta-upgrades.md",
        &[INSTALLED[0], INSTALLED[1], "openssl ecparam -name prime256v1 -genkey -noout -out os.key"],
    ),
    ("docs/signatures.md", &["echo '{\"bomFormat\": \"CycloneDX\"}' > sbom.cdx.json"]),
];
/// A system that was installed and runs from its disk.
const INSTALLED: &[&str] = &["installer install --disk /dev/sda --source dir:payload", "reboot"];
const IMAGE: &str = "installer install --disk disk.raw --source dir:payload";
const NODE: &str = "installer install --disk node.raw --source dir:payload";

/// A command that no test machine can run, or that runs this test.
pub struct NotRun {
    pub command: &'static str,
    pub why: &'static str,
    /// The proof that it works: tests, or scripts that are run by themselves.
    pub proof: &'static [&'static str],
}

const fn not_run(command: &'static str, why: &'static str, proof: &'static [&'static str]) -> NotRun {
    NotRun { command, why, proof }
}

const BUILDS: &str = "it builds and fetches what hack/test has built before this test is run";
const LONG: &str = "it takes from minutes to hours, and is run by itself";

const DOCKER: &str = "it needs a docker daemon; skopeo puts the same image there";
const SYSTEMD: &str = "no systemd runs here; its programs read the units";

pub const NOT_RUN: &[NotRun] = &[
    not_run("hack/demo", "it builds and boots a virtual machine", &["hack/demo", "vm-tests/main.rs"]),
    not_run("hack/test", "it runs this test", &["hack/test"]),
    not_run("hack/test --quick", "it runs this test's neighbours", &["hack/test"]),
    not_run("hack/test --test docs", "it runs this test", &["hack/test"]),
    not_run("hack/test --test vm bios", "it boots virtual machines", &["vm-tests/main.rs"]),
    not_run(
        "hack/test --test vm sealed:: -- --ignored",
        "it boots virtual machines",
        &["vm-tests/sealed.rs", "hack/campaign"],
    ),
    not_run("hack/campaign --for 60", LONG, &["hack/campaign", "docs/campaign.tsv"]),
    not_run("hack/check", "hack/test runs it", &["hack/check"]),
    not_run("cargo test -p slipway-core", "it builds and runs the tests of core, as hack/test does", &["hack/test"]),
    not_run("cargo test -p slipway-rollout", "hack/test runs these tests", &["fleet/rollout/tests/rollout"]),
    not_run("hack/test --test etcd", "it fetches etcd, and hack/test runs it", &["fleet/slipwayd/tests/etcd"]),
    not_run("hack/test -p slipway-node", "hack/test runs these tests", &["fleet/node/tests/node"]),
    not_run("fleet/hack/build", "it compiles a release for minutes", &["fleet/hack/build"]),
    not_run("fleet/hack/image", "it compiles a release, and runs what it made", &["fleet/hack/image"]),
    not_run("hack/build", BUILDS, &["hack/test"]),
    not_run("hack/build amd64 arm64", BUILDS, &["hack/test"]),
    not_run("CARGO_NET_OFFLINE=true hack/build", BUILDS, &["hack/build", "Containerfile"]),
    not_run(
        "cargo vendor --locked --versioned-dirs --sync loader/Cargo.toml vendor",
        "it fetches all crates; hack/image --all-inside does it",
        &["hack/image", "tests/sources/container_image.rs"],
    ),
    not_run("hack/image", BUILDS, &["hack/test", "tests/sources/container_image.rs"]),
    not_run("hack/image --key release.key", BUILDS, &["tests/sources/image_documents.rs"]),
    not_run("hack/payload out/payload --version 1.0.0", BUILDS, &["hack/lib.sh", "hack/test"]),
    not_run("hack/build --programs arm64", BUILDS, &["hack/artefacts"]),
    not_run(
        "hack/payload out/payload-arm64 --version 1.0.0 --arch arm64 --installer out/installer-arm64",
        BUILDS,
        &["hack/artefacts", "vm-tests/arm64.rs"],
    ),
    not_run(
        "SLIPWAY_UPDATE_GOLDEN=1 hack/test --test library",
        "it would write the source",
        &["tests/library/install_plan.rs"],
    ),
    not_run("git diff tests/golden", "it shows what the line before would write", &["tests/golden"]),
    not_run("hack/crash --states 200000", LONG, &["hack/crash", "tests/safety/crash"]),
    not_run("hack/fuzz all --seconds 60", LONG, &["hack/fuzz", "tests/library/fuzz_seeds.rs"]),
    not_run(
        "hack/fuzz adv out/fuzz/findings/adv/FILE",
        "there is no finding",
        &["hack/fuzz", "tests/library/fuzz_seeds.rs"],
    ),
    not_run("dd if=os.iso of=/dev/sdX bs=4M conv=fsync", "there is no stick", &["vm-tests/live.rs"]),
    not_run(
        "qemu-system-aarch64 -M virt -cpu cortex-a57 -m 1024 -nographic \\\n    \
         -drive if=pflash,format=raw,readonly=on,file=/usr/share/AAVMF/AAVMF_CODE.fd \\\n    \
         -drive if=virtio,format=raw,file=arm64.raw",
        "it boots a virtual machine",
        &["vm-tests/main.rs"],
    ),
    not_run(
        "docker build -f Containerfile -t slipway .",
        "it needs a docker daemon and public images; hack/image builds the same Containerfile",
        &["Containerfile", "hack/image", "tests/sources/container_image.rs"],
    ),
    not_run(
        "docker run --rm -v $PWD/out:/out --entrypoint /bin/imager os aws",
        "it needs a docker daemon",
        &["tests/sources/container_image.rs", "tests/media/imager.rs"],
    ),
    not_run("docker build -t registry.example/os:1.2 .", DOCKER, &["tests/sources/auto_upgrade.rs"]),
    not_run("docker push registry.example/os:1.2", DOCKER, &["tests/sources/auto_upgrade.rs"]),
    not_run(
        "cosign sign --key cosign.key registry.example/os:1.2",
        "cosign is in no package of Debian's; openssl signs what it would sign, and it is put where it would put it",
        &["tests/sources/signatures/images.rs", "tests/sources/signatures/bundles.rs"],
    ),
    not_run(
        "cosign verify-attestation --key os.pem --type cyclonedx registry.example/os:1.2",
        "cosign is in no package of Debian's; openssl verifies the bundle that it would find",
        &["tests/sources/signatures/attestations.rs"],
    ),
    not_run(
        "installer sign dir:payload --public-key os.pem --sign-command 'openssl dgst -sha256 -binary | \
         pkcs11-tool --module /usr/lib/softhsm/libsofthsm2.so --login --pin env:PIN --sign --label os --mechanism ECDSA \
         --signature-format openssl'",
        "no token is here; openssl signs as such a command",
        &["tests/sources/signatures/signing.rs"],
    ),
    not_run("systemctl enable --now slipway-update.timer", SYSTEMD, &["vm-tests/auto_upgrade.rs"]),
    not_run(
        "skopeo copy oci-archive:out/image.tar docker-daemon:slipway:latest",
        "it needs a docker daemon; skopeo reads the archive",
        &["tests/sources/container_image.rs"],
    ),
    not_run(
        "podman run --rm --privileged --network host --pid host -v /dev:/dev os install --disk /dev/sda",
        "it needs podman and a machine to give away; the virtual machines run the image with crun",
        &["vm-tests/machined.rs", "tests/sources/container_image.rs"],
    ),
];

/// Flags of other programs that the documents name, and whose they are.
pub const FOREIGN_FLAGS: &[(&str, &str)] = &[
    ("--add", "hack/fixtures"),
    ("--against", "hack/bench"),
    ("--all", "skopeo"),
    ("--check", "xz, sha256sum, hack/release"),
    ("--programs", "hack/build"),
    ("--image", "talosctl"),
    ("--stage", "talosctl"),
    ("--download-only", "bootc"),
    ("--from-downloaded", "bootc"),
    ("--lock-finalization", "rpm-ostree"),
    ("--stop-after", "mender-update"),
    ("--preserve-digests", "skopeo"),
    ("--recursive", "oras"),
    ("--now", "systemctl"),
    ("--what", "systemd-inhibit"),
    ("--delete", "sgdisk"),
    ("--dump", "sfdisk"),
    ("--empty", "systemd-repart"),
    ("--entrypoint", "docker"),
    ("--flushbufs", "blockdev"),
    ("--for", "hack/campaign"),
    ("--ignored", "a test program"),
    ("--installer", "hack/payload"),
    ("--record", "hack/bench"),
    ("--rehearsal", "hack/release"),
    ("--report", "hack/campaign"),
    ("--shard", "hack/campaign"),
    ("--label", "pkcs11-tool"),
    ("--locked", "cargo"),
    ("--login", "pkcs11-tool"),
    ("--mechanism", "pkcs11-tool"),
    ("--module", "pkcs11-tool"),
    ("--network", "podman"),
    ("--pid", "podman"),
    ("--pin", "pkcs11-tool"),
    ("--privileged", "podman"),
    ("--quick", "hack/bench, hack/test"),
    ("--rm", "docker, podman"),
    ("--seconds", "hack/fuzz"),
    ("--sign", "pkcs11-tool"),
    ("--signature-format", "pkcs11-tool"),
    ("--states", "hack/crash"),
    ("--sync", "cargo"),
    ("--test", "cargo"),
    ("--tpm2-public-key", "systemd-cryptenroll"),
    ("--tpm2-public-key-pcrs", "systemd-cryptenroll"),
    ("--tpm2-pcrs", "systemd-cryptenroll"),
    ("--recovery-key", "systemd-cryptenroll"),
    ("--versioned-dirs", "cargo"),
];
