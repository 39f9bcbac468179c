//! Files and variables in manual pages. A test compares the variables with those that the source reads.

use clap::Command;

/// A file or a variable.
pub struct Entry {
    pub name: &'static str,
    pub text: &'static str,
    of: Of,
}

/// The pages that have an entry.
enum Of {
    /// All of `installer`.
    Verbs,
    /// Pages of commands with this flag or argument.
    With(&'static str),
    /// These.
    Pages(&'static [&'static str]),
}

impl Entry {
    pub fn is_of(&self, command: &Command, page: &str) -> bool {
        match self.of {
            Of::Verbs => page.starts_with("installer"),
            Of::With(id) => command.get_arguments().any(|arg| arg.get_id() == id),
            Of::Pages(pages) => pages.contains(&page),
        }
    }
}

const fn entry(name: &'static str, of: Of, text: &'static str) -> Entry {
    Entry { name, text, of }
}

const CHANGE: &[&str] = &[
    "installer-upgrade",
    "installer-auto-upgrade",
    "installer-stage",
    "installer-activate",
    "installer-confirm",
    "installer-guard",
    "installer-rollback",
    "installer-repair",
    "installer-bootloader-update",
    "installer-bootloader-menu",
    "installer-status",
    "installer-history",
    "installer-verify",
    "installer-unattended",
];
const BOOTLOADERS: &[&str] = &[
    "installer-bootloader",
    "installer-bootloader-status",
    "installer-bootloader-update",
    "installer-upgrade",
    "installer-auto-upgrade",
    "installer-activate",
    "installer-repair",
];
const INSTALLS: &[&str] = &["installer-install", "installer-image", "installer-unattended", "imager"];
const WITH_XFS: &[&str] = &[
    "installer-install",
    "installer-image",
    "installer-unattended",
    "installer-upgrade",
    "installer-activate",
    "installer-wipe",
    "imager",
];

const WITH_TOOLS: &[&str] = &[
    "installer-install",
    "installer-image",
    "installer-unattended",
    "installer-upgrade",
    "installer-auto-upgrade",
    "installer-activate",
    "installer-wipe",
    "installer-keys",
    "imager",
];

/// Files that are read and written outside of the arguments.
pub const FILES: &[Entry] = &[
    entry("/dev/disk/by-id/", Of::With("disk"), "names of disks that stay the same from boot to boot."),
    entry(
        "/dev/disk/by-id/",
        Of::Pages(&["installer", "installer-inspect"]),
        "names of disks that stay the same from boot to boot.",
    ),
    entry("/proc/cmdline", Of::Pages(CHANGE), "the kernel command line: it names the disk and the slot that run."),
    entry(
        "/sys/firmware/efi/efivars/SlipwayBoot-*",
        Of::Pages(CHANGE),
        "what the UEFI loader says of this boot to a unified kernel image, whose own command line is signed. It counts only \
         where that has no slipway.disk=, and only if the firmware does not store it.",
    ),
    entry("/proc/sys/kernel/panic", Of::Pages(&["installer-guard"]), "10 in a trial, unless it was set otherwise."),
    entry(
        "slipway/boot.env, slipway/boot2.env",
        Of::Pages(CHANGE),
        "on the partition EFI: the boot state, in two copies.",
    ),
    entry("slipway/history", Of::Pages(CHANGE), "on the partition EFI: the last 64 changes of the disk."),
    entry("/run/slipway/", Of::Pages(CHANGE), "how far a verb that writes is, for those that read."),
    entry(
        "slot.env, slot.cfg, SHA256SUMS, boot.sha256, manifest.json",
        Of::Pages(CHANGE),
        "in a slot, beside the system: what the slot says of itself, how it is started, and the digests of its files.",
    ),
    entry(
        "EFI/BOOT/, slipway/chain.sha256",
        Of::Pages(BOOTLOADERS),
        "on the partition EFI: what UEFI starts, and the digests of all that starts the disk.",
    ),
    entry(
        "BOOT-A, BOOT-B",
        Of::Pages(&[
            "installer-snapshot",
            "installer-snapshot-list",
            "installer-snapshot-show",
            "installer-snapshot-restore",
        ]),
        "the partitions of the slots: behind all files of each, at its end, lies its snapshot.",
    ),
    entry(
        "META",
        Of::Pages(&[
            "installer-meta",
            "installer-meta-list",
            "installer-meta-get",
            "installer-meta-set",
            "installer-meta-delete",
        ]),
        "the partition that holds the tags, in two copies.",
    ),
    entry(
        "STATE, EPHEMERAL",
        Of::Pages(&["installer-wipe"]),
        "the partitions: configuration and identity of the machine, and all other data.",
    ),
    entry(
        "DIR/index.json, DIR/blobs/",
        Of::Pages(&["installer-chunk"]),
        "the OCI layout: what is new in it, and index.json last.",
    ),
    entry(
        "/usr/install/ARCH/",
        Of::Pages(&[
            "installer-install",
            "installer-image",
            "installer-unattended",
            "installer-upgrade",
            "installer-stage",
            "installer-checksum",
            "installer-uki",
            "imager",
        ]),
        "the payload if none is named: vmlinuz and initramfs.xz; rootfs.squashfs, uki.efi, cmdline, os-release, SHA256SUMS and \
         manifest.json are optional.",
    ),
    entry(
        "/etc/slipway/update.toml",
        Of::Pages(&["installer-auto-upgrade"]),
        "what to follow, and when to reboot. Without it nothing is done.",
    ),
    entry(
        "/etc/slipway/state.toml",
        Of::With("no_snapshot"),
        "what belongs to the running system, and goes back with it. Without it nothing is kept.",
    ),
    entry(
        "/etc/slipway/policy.toml",
        Of::With("trust_key"),
        "whose signatures are demanded of which sources, unless --trust-key or --trust-policy is given.",
    ),
    entry(
        "/usr/share/slipway/keys/*.pem",
        Of::With("trust_key"),
        "public keys, one of which must have signed, if there is no policy.",
    ),
    entry(
        "systemctl, busctl, systemd-run, systemd-analyze",
        Of::Pages(&["installer-auto-upgrade"]),
        "programs that ask logind who holds a reboot back, open windows, and reboot.",
    ),
    entry(
        "index.json, blobs/sha256/",
        Of::Pages(&["installer-attest"]),
        "in the OCI layout: where the attestation is put, beside the image.",
    ),
    entry(
        "SHA256SUMS.sig",
        Of::Pages(&["installer-sign"]),
        "in a payload directory: signatures over SHA256SUMS, in base64, each in a line of its own.",
    ),
    entry(
        "SHA256SUMS, manifest.json",
        Of::Pages(&["installer-checksum"]),
        "in the directory: the digests and sizes of all files.",
    ),
    entry(
        "/usr/share/slipway/assets/",
        Of::Pages(INSTALLS),
        "the boot loaders. /run/slipway/assets of a live medium, and a directory assets beside the program, come first.",
    ),
    entry(
        "/usr/share/slipway/assets/",
        Of::Pages(BOOTLOADERS),
        "the boot loaders. /run/slipway/assets of a live medium, and a directory assets beside the program, come first.",
    ),
    entry(
        "mkfs.xfs",
        Of::Pages(WITH_XFS),
        "the program that makes data volumes, looked for in $PATH, /usr/sbin and /sbin.",
    ),
    entry(
        "qemu-img, xorriso",
        Of::Pages(&["installer-image", "imager"]),
        "programs that make images in other formats than raw, and ISOs.",
    ),
    entry(
        "/usr/lib/systemd/boot/efi/linuxx64.efi.stub, linuxaa64.efi.stub",
        Of::Pages(&["installer-uki", "installer-install", "installer-image", "imager"]),
        "systemd's stubs, as Debian's systemd-boot-efi has them.",
    ),
    entry(
        "uki-signing-key.pem, uki-signing-cert.pem, uki-signing-cert.der, pcr-signing-key.pem, PK.auth, KEK.auth, db.auth, \
         dbx.auth",
        Of::Pages(&["installer-keys"]),
        "in the directory: what is made.",
    ),
    entry("PK.auth, KEK.auth, db.auth", Of::Pages(&["installer-enroll"]), "in the directory: what firmware gets."),
    entry(
        "/sys/firmware/efi/efivars/",
        Of::Pages(&["installer-enroll"]),
        "the firmware's variables. efivarfs has to be mounted there, not read-only.",
    ),
    entry(
        "/sys/bus/pci/devices/*/rom",
        Of::Pages(&["installer-enroll"]),
        "option ROMs of the devices. Each is switched on for reading, and off again.",
    ),
    entry("openssl", Of::Pages(&["installer-keys"]), "the program that makes keys, looked for in $PATH."),
    entry(
        "/secureboot/uki-signing-key.pem, uki-signing-cert.pem, pcr-signing-key.pem",
        Of::Pages(&["imager"]),
        "keys for profiles with `secureboot`, unless they name others.",
    ),
    entry("/out", Of::Pages(&["imager"]), "the directory of the image, unless another is named."),
    entry(
        "$XDG_RUNTIME_DIR/containers/auth.json, ~/.config/containers/auth.json, /run/containers/UID/auth.json, \
         ~/.docker/config.json",
        Of::With("authfile"),
        "credentials for registries, the first that has any for the image (containers-auth.json(5)).",
    ),
    entry(
        "/etc/ssl/certs/ca-certificates.crt, /etc/pki/tls/certs/ca-bundle.crt, /etc/ssl/ca-bundle.pem",
        Of::With("authfile"),
        "certificate authorities that are trusted beside those that are built in.",
    ),
    entry(
        "/etc/containers/certs.d/HOST/*.crt, /etc/docker/certs.d/HOST/*.crt",
        Of::With("authfile"),
        "certificate authorities of one registry.",
    ),
    entry(
        "/usr/share/bash-completion/completions/, /usr/share/zsh/vendor-completions/, /usr/share/fish/vendor_completions.d/",
        Of::Pages(&["installer-completions"]),
        "where Debian's shells look for the scripts.",
    ),
    entry("/usr/share/man/man8/", Of::Pages(&["installer-man"]), "where man(1) looks for the pages."),
];

/// The variables that are read.
pub const ENVIRONMENT: &[Entry] = &[
    entry(
        "INSTALLER_META_BASE64",
        Of::Verbs,
        "META tags for `install`, `image`, `unattended` and `upgrade`, unless --meta is given: base64 of \
         KEY=VALUE[;KEY=VALUE...], which may be gzip data. Other verbs only check it.",
    ),
    entry(
        "INSTALLER_GRUB_USE_UKI_CMDLINE",
        Of::Verbs,
        "if it is true, verbs that write a slot use the payload's own kernel arguments alone. Other verbs only check it.",
    ),
    entry(
        "SLIPWAY_ASSETS",
        Of::Pages(INSTALLS),
        "the directory with the boot loaders; nowhere else is looked for them then.",
    ),
    entry(
        "SLIPWAY_ASSETS",
        Of::Pages(BOOTLOADERS),
        "the directory with the boot loaders; nowhere else is looked for them then.",
    ),
    entry("SLIPWAY_KEYS", Of::With("trust_key"), "a directory in place of /usr/share/slipway/keys."),
    entry(
        "SOURCE_DATE_EPOCH",
        Of::Pages(&["installer-image", "installer-man", "imager"]),
        "the time that goes into what is made, seconds since 1970 UTC; otherwise a fixed one.",
    ),
    entry(
        "SOURCE_DATE_EPOCH",
        Of::Pages(&["installer-keys"]),
        "the time in the changes of variables, seconds since 1970 UTC; otherwise now.",
    ),
    entry("PATH", Of::Pages(WITH_TOOLS), "where other programs are looked for."),
    entry(
        "REGISTRY_AUTH_FILE",
        Of::With("authfile"),
        "credentials file, in place of all that FILES names; --authfile comes first.",
    ),
    entry(
        "XDG_RUNTIME_DIR, XDG_CONFIG_HOME, DOCKER_CONFIG, HOME",
        Of::With("authfile"),
        "where credentials files are.",
    ),
    entry("SSL_CERT_FILE", Of::With("authfile"), "certificate authorities, in place of the system's bundle."),
    entry(
        "ALL_PROXY, HTTPS_PROXY, HTTP_PROXY, NO_PROXY",
        Of::With("authfile"),
        "the proxy to registries: HTTPS_PROXY with TLS, HTTP_PROXY without, ALL_PROXY where neither is set. NO_PROXY lists what is reached without one: hosts with their subdomains, addresses and ranges of them, each with a port or without. Small letters do, too.",
    ),
    entry(
        "LC_ALL, LC_CTYPE, LANG",
        Of::Pages(&["installer-inspect"]),
        "whether the picture may have box-drawing characters.",
    ),
    entry("NO_COLOR", Of::Verbs, "if it is set: no colour. Without it there is colour on a terminal."),
    entry("CLICOLOR, CLICOLOR_FORCE", Of::Verbs, "0 in the first: no colour; 1 in the second: colour everywhere."),
    entry("TERM", Of::Verbs, "if it is `dumb`: no colour and no bars, as if there was no terminal."),
    entry("COLUMNS", Of::Verbs, "width of what is shown, in place of the terminal's."),
    entry("COLUMNS", Of::Pages(&["imager"]), "width of what is shown, in place of the terminal's."),
    entry("SUDO_USER", Of::Pages(CHANGE), "who asked; it goes into the history of the disk."),
];
