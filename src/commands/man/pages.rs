//! Text of manual pages beside the definition of the command line. A test parses each example.

/// Text of one page.
pub struct Page {
    name: &'static str,
    /// Its purpose, and the command.
    pub examples: &'static [(&'static str, &'static str)],
    /// Verbs with pages of their own.
    pub see_also: &'static [&'static str],
    /// For the description, after the text of the help.
    pub more: &'static str,
}

/// Text of a page. A verb must have a page.
pub fn of(name: &str) -> &'static Page {
    PAGES.iter().find(|page| page.name == name).unwrap_or(&NONE)
}

const NONE: Page = page("", &[], &[], "");

const fn page(
    name: &'static str,
    examples: &'static [(&'static str, &'static str)],
    see_also: &'static [&'static str],
    more: &'static str,
) -> Page {
    Page { name, examples, see_also, more }
}

const fn of_snapshots(name: &'static str, examples: &'static [(&'static str, &'static str)]) -> Page {
    page(name, examples, &["snapshot"], "What snapshots are, and who takes them: installer-snapshot(8).")
}

const PAGES: &[Page] = &[
    page(
        "installer",
        &[
            (
                "Install the payload of a container image onto an empty disk:",
                "installer install --disk /dev/sda --source docker://registry.example/os:1.2",
            ),
            ("What is on the disk, and what boots next:", "installer status --disk /dev/sda"),
            (
                "Upgrade the system that runs; the next boot tries the new one:",
                "installer upgrade --disk /dev/sda --source docker://registry.example/os:1.3",
            ),
            ("From the new system, once it is well:", "installer confirm --disk /dev/sda"),
        ],
        &["install", "status", "upgrade", "confirm", "rollback", "image"],
        "At every instant, whatever fails, the disk boots a complete, verified system. A new system is written into \
         the slot that does not run, read back from the disk, and tried once; it becomes the default when it \
         confirms itself.\n\nThe program is also called `slipway`. Called as `imager` it makes images from \
         profiles: see imager(8).",
    ),
    page(
        "installer-install",
        &[
            ("Print the plan, write nothing:", "installer install --disk /dev/sda --source dir:/srv/payload --dry-run"),
            (
                "Install from a registry, onto a disk by its lasting name:",
                "installer install --disk /dev/disk/by-id/nvme-DISK --source docker://registry.example/os:1.2",
            ),
            (
                "Overwrite a disk that is not empty, with a serial console for the kernel:",
                "installer install --disk /dev/sda --force --extra-kernel-arg console=ttyS0",
            ),
        ],
        &["image", "unattended", "status", "verify", "upgrade"],
        "",
    ),
    page(
        "installer-image",
        &[
            (
                "A disk image for a cloud, compressed:",
                "installer image --kind raw --out aws.raw.zst --platform aws --source dir:/srv/payload",
            ),
            (
                "A disk image for a hypervisor, 20 GiB large:",
                "installer image --kind qcow2 --out vm.qcow2 --disk-size 20GiB --platform nocloud --source oci:os",
            ),
            (
                "An ISO that starts the system, and can install it:",
                "installer image --kind iso --out os.iso --source dir:/srv/payload --container oci:os",
            ),
        ],
        &["install", "unattended", "inspect"],
        "",
    ),
    page(
        "installer-unattended",
        &[
            (
                "In a live system that was started with slipway.install=/dev/sda, do what is asked for:",
                "installer unattended --output json",
            ),
            ("See what it would do, with a machine config:", "installer unattended --dry-run < machine-config.yaml"),
        ],
        &["install", "upgrade", "image"],
        "",
    ),
    page(
        "installer-upgrade",
        &[
            ("Print the plan, write nothing:", "installer upgrade --disk /dev/sda --source dir:/srv/payload --dry-run"),
            (
                "Upgrade from a registry, and leave the workloads most of the disk:",
                "installer upgrade --disk /dev/sda --source docker://registry.example/os:1.3 --limit-rate 50MiB/s",
            ),
            (
                "Erase EPHEMERAL as well, once the new slot is verified:",
                "installer upgrade --disk /dev/sda --source dir:/srv/payload --preserve=false",
            ),
        ],
        &["stage", "activate", "confirm", "rollback", "status"],
        "",
    ),
    page(
        "installer-auto-upgrade",
        &[
            ("What it would do now:", "installer auto-upgrade --dry-run"),
            ("What the timer runs:", "installer auto-upgrade"),
            (
                "Reboot into what waits for it, whatever the file says of windows:",
                "installer auto-upgrade --reboot-only --reboot now",
            ),
        ],
        &["upgrade", "confirm", "status", "history"],
        "A mistake in the file is exit code 2, with its line and column. `systemctl enable --now slipway-update.timer` turns it on.",
    ),
    page(
        "installer-stage",
        &[
            (
                "Write the new system now, try it later:",
                "installer stage --disk /dev/sda --source docker://registry.example/os:1.3",
            ),
            ("In the maintenance window:", "installer activate --disk /dev/sda"),
        ],
        &["activate", "upgrade", "status"],
        "This takes the time of an upgrade and can be done while the machine works: the system that runs is not \
         touched, and a reboot starts it again. `installer activate` does the rest in seconds. Another `stage` \
         replaces what is staged.",
    ),
    page(
        "installer-activate",
        &[("Have the next boot try the staged slot:", "installer activate --disk /dev/sda")],
        &["stage", "confirm", "rollback", "status"],
        "The new system must call `installer confirm`. If it does not, the boot after the trial starts the old \
         system again.",
    ),
    page(
        "installer-confirm",
        &[
            ("Keep the system that runs on trial:", "installer confirm --disk /dev/sda"),
            (
                "Keep it if it is well, which the programs in a directory say:",
                "installer confirm --checks /etc/slipway/health.d --check-timeout 2m",
            ),
        ],
        &["guard", "rollback", "status", "upgrade"],
        "slipway-confirm.service runs it until the checks pass. What failed last is recorded on the disk; `installer \
         status` of the system that comes back says it.",
    ),
    page(
        "installer-guard",
        &[
            ("What slipway-guard.service runs:", "installer guard"),
            ("Where nothing else feeds the hardware watchdog:", "installer guard --watchdog /dev/watchdog"),
        ],
        &["confirm", "rollback", "status", "history"],
        "Start it before all that can hang. Time counts from the start of the kernel, so a guard that is started again \
         gives no more of it.",
    ),
    page(
        "installer-rollback",
        &[
            ("See what it would do:", "installer rollback --disk /dev/sda --dry-run"),
            ("Do it; the next boot is the other system:", "installer rollback --disk /dev/sda"),
        ],
        &["confirm", "status", "upgrade"],
        "",
    ),
    page(
        "installer-repair",
        &[
            ("See what it would write again:", "installer repair --disk /dev/sda --dry-run"),
            ("Write it:", "installer repair --disk /dev/sda"),
        ],
        &["status", "verify", "rollback"],
        "",
    ),
    page(
        "installer-grow",
        &[
            ("See what it would do:", "installer grow --disk /dev/sda --dry-run"),
            ("In the system, at every boot:", "installer grow"),
        ],
        &["status", "inspect", "image"],
        "The old table stays whole until one sector names the new one, so a power cut leaves one or the other. What is \
         not XFS, or not mounted, is left as large as it is: the partition grows, and the answer says what is left to \
         do. An EPHEMERAL that systemd-repart(8) grows is better left to that.",
    ),
    page(
        "installer-wipe",
        &[
            (
                "Erase the data of workloads, keep the identity of the machine:",
                "installer wipe EPHEMERAL --disk /dev/sda",
            ),
            (
                "Leave both blank for the OS to make:",
                "installer wipe STATE EPHEMERAL --disk /dev/sda --format-data=false",
            ),
        ],
        &["status", "upgrade"],
        "Refused while anything uses these volumes. The slots, META and the boot state stay as they are.",
    ),
    page(
        "installer-history",
        &[
            ("What was done to the disk, and how each trial ended:", "installer history --disk /dev/sda"),
            ("The last five changes, for a program:", "installer history --disk /dev/sda --limit 5 --output json"),
        ],
        &["status"],
        "",
    ),
    page(
        "installer-status",
        &[
            ("What is on the disk, and what boots next:", "installer status --disk /dev/sda"),
            ("The same for a program, with every byte read:", "installer status --disk /dev/sda --full --output json"),
        ],
        &["inspect", "verify", "repair"],
        "",
    ),
    page(
        "installer-verify",
        &[("Read all that was written, from the disk itself:", "installer verify --disk /dev/sda")],
        &["repair", "status"],
        "",
    ),
    page(
        "installer-inspect",
        &[
            ("Draw a disk:", "installer inspect /dev/sda"),
            ("What an image in a registry would install:", "installer inspect docker://registry.example/os:1.2"),
            ("A file whose name has a colon:", "installer inspect ./disk:1.raw"),
        ],
        &["status", "verify", "pull"],
        "",
    ),
    page(
        "installer-pull",
        &[
            (
                "Keep an image for a machine without a network:",
                "installer pull docker://registry.example/os:1.2 oci:/srv/os:1.2",
            ),
            ("Install from the copy:", "installer install --disk /dev/sda --source oci:/srv/os:1.2"),
        ],
        &["install", "inspect", "upgrade"],
        "",
    ),
    page(
        "installer-push",
        &[
            (
                "Publish an image with its signatures:",
                "installer push oci:/srv/os:1.2 docker://registry.example/os:1.2",
            ),
            (
                "Into a registry of one's own, on this machine:",
                "installer push oci:/srv/os:1.2 docker://localhost:5000/os:1.2 --plain-http",
            ),
        ],
        &["pull", "sign", "attest"],
        "",
    ),
    page(
        "installer-chunk",
        &[
            ("Have upgrades to an image fetch only what changed:", "installer chunk oci:/srv/os:1.2"),
            ("Then publish it, signed after that:", "installer push oci:/srv/os:1.2 docker://registry.example/os:1.2"),
        ],
        &["push", "pull", "sign"],
        "",
    ),
    page(
        "installer-support",
        &[("After a failure, to ask for help:", "installer support failure.tar.gz")],
        &["status", "history", "verify"],
        "",
    ),
    page(
        "installer-checksum",
        &[
            ("List the digests of a payload after it was built:", "installer checksum /srv/payload"),
            (
                "From then on nothing else is taken:",
                "installer install --disk /dev/sda --source dir:/srv/payload --strict",
            ),
        ],
        &["inspect", "install"],
        "",
    ),
    page(
        "installer-sign",
        &[
            ("Sign a payload that has checksums:", "installer sign dir:/srv/payload --key os.key"),
            (
                "Sign an image, before it is copied to a registry:",
                "installer sign oci:/srv/os:1.2 --key os.key --identity registry.example/os",
            ),
            ("Sign an image in a registry:", "installer sign docker://registry.example/os:1.2 --key os.key"),
            (
                "With a key that is in no file:",
                "installer sign dir:/srv/payload --public-key os.pem --sign-command /usr/local/bin/sign-with-token",
            ),
        ],
        &["checksum", "inspect", "pull"],
        "A private key stays where it is: it is in no message. A signature by a command is written only if the public key \
         verifies it.",
    ),
    page(
        "installer-attest",
        &[
            (
                "What is in an image (an SBOM):",
                "installer attest oci:/srv/os:1.2 --predicate sbom.cdx.json --type cyclonedx --key os.key",
            ),
            (
                "How it was built:",
                "installer attest oci:/srv/os:1.2 --predicate provenance.json --type slsaprovenance1 --key os.key",
            ),
        ],
        &["sign", "inspect", "pull"],
        "What is said is not read, beyond that it is a JSON object. No install verifies an attestation: it is \
         for those who ask what is in an image, with cosign or another program.",
    ),
    page(
        "installer-uki",
        &[
            (
                "A signed UKI:",
                "installer uki --source dir:/srv/payload --out os.efi --key uki-signing-key.pem --certificate \
                 uki-signing-cert.pem",
            ),
            (
                "One that opens what is sealed to the key for PCR 11:",
                "installer uki --source dir:/srv/payload --out os.efi --key uki-signing-key.pem --certificate \
                 uki-signing-cert.pem --pcr-key pcr-signing-key.pem",
            ),
            (
                "Sign a boot loader:",
                "installer uki --program BOOTX64.EFI --out signed.efi --key uki-signing-key.pem --certificate \
                 uki-signing-cert.pem",
            ),
        ],
        &["keys", "image", "checksum"],
        "",
    ),
    page(
        "installer-keys",
        &[
            ("New keys, and files by which firmware learns them:", "installer keys /srv/keys"),
            (
                "Let nothing start any more that was in this file:",
                "installer keys /srv/revoked --revoke os.efi --key uki-signing-key.pem --certificate uki-signing-cert.pem",
            ),
        ],
        &["uki", "enroll"],
        "The owner of the private keys decides what starts on the machines. Keep the keys away from the machines, and keep a copy.",
    ),
    page(
        "installer-bootloader",
        &[("What starts the disk:", "installer bootloader status --disk /dev/sda")],
        &["bootloader-status", "bootloader-update", "bootloader-menu", "upgrade"],
        "A disk has two boot loaders: the UEFI image on the partition EFI, and GRUB for BIOS. One sector brings a new one into \
         force, so a power cut leaves the old one or the new one.",
    ),
    page(
        "installer-bootloader-status",
        &[("What starts the disk:", "installer bootloader status --disk /dev/sda")],
        &["bootloader", "bootloader-update", "bootloader-menu", "status", "verify"],
        "",
    ),
    page(
        "installer-bootloader-update",
        &[
            ("See what would be done:", "installer bootloader update --dry-run"),
            ("Do it:", "installer bootloader update"),
            ("Of a disk that nothing runs from:", "installer bootloader update --disk /dev/sdb --offline"),
        ],
        &["bootloader", "bootloader-status", "upgrade"],
        "A loader with a lower epoch is refused, whatever is asked. No loader takes the place of a signed one, unless it is \
         signed itself, or --ignore-secure-boot is given.",
    ),
    page(
        "installer-bootloader-menu",
        &[
            ("See what would be done:", "installer bootloader menu off --dry-run"),
            ("Let no key choose another slot:", "installer bootloader menu off"),
            ("Of a disk that nothing runs from:", "installer bootloader menu on --disk /dev/sdb"),
        ],
        &["bootloader", "bootloader-status", "install", "repair"],
        "This keeps out only a person at the keyboard: a program that can write to the disk can choose a slot without a menu, \
         and turn it on again. The firmware has a menu of its own, which needs a password.",
    ),
    page(
        "installer-enroll",
        &[
            ("What would be written, and what would start afterwards:", "installer enroll /srv/keys --dry-run"),
            (
                "In a live system, in a virtual machine alone:",
                "installer enroll /srv/keys --mode=if-safe --starts BOOTX64.EFI",
            ),
        ],
        &["keys", "uki"],
        "A driver in an option ROM that db does not let start is missing while the machine starts: a disk behind it is not \
         found, or nothing is seen on a screen. So such a machine is refused, and one with a ROM that cannot be looked at.",
    ),
    page(
        "installer-meta",
        &[("All tags:", "installer meta list --disk /dev/sda")],
        &["meta-list", "meta-get", "meta-set", "meta-delete"],
        "Tags are texts under a number, which the system and its installer leave for each other. Both copies of the \
         record are written, one after the other, so a power cut leaves the old tags or the new ones.",
    ),
    page(
        "installer-meta-list",
        &[("All tags:", "installer meta list --disk /dev/sda")],
        &["meta", "meta-get", "meta-set", "meta-delete"],
        "What tags are, and who writes them: installer-meta(8).",
    ),
    page(
        "installer-meta-get",
        &[("The value of one tag:", "installer meta get 0x0a --disk /dev/sda")],
        &["meta", "meta-list", "meta-set", "meta-delete"],
        "What tags are, and who writes them: installer-meta(8).",
    ),
    page(
        "installer-meta-set",
        &[("Where the machine stands:", "installer meta set 0x0a=rack-7 --disk /dev/sda")],
        &["meta", "meta-get", "meta-list", "meta-delete"],
        "What tags are, and who writes them: installer-meta(8).",
    ),
    page(
        "installer-meta-delete",
        &[("Forget it:", "installer meta delete 0x0a --disk /dev/sda")],
        &["meta", "meta-get", "meta-list", "meta-set"],
        "What tags are, and who writes them: installer-meta(8).",
    ),
    page(
        "installer-snapshot",
        &[("What goes back with each system:", "installer snapshot list --disk /dev/sda")],
        &["snapshot-list", "snapshot-show", "snapshot-restore", "activate", "rollback"],
        "A snapshot lies at the end of its system's slot, behind all files, and goes when that slot is written again.",
    ),
    of_snapshots("installer-snapshot-list", &[("All of them:", "installer snapshot list --disk /dev/sda")]),
    of_snapshots("installer-snapshot-show", &[("What is in it:", "installer snapshot show --disk /dev/sda")]),
    of_snapshots("installer-snapshot-restore", &[("Take the files out:", "installer snapshot restore --to /tmp/old")]),
    page(
        "installer-completions",
        &[
            (
                "For bash. Links named slipway and imager beside this file complete these names, too:",
                "installer completions bash > /usr/share/bash-completion/completions/installer",
            ),
            ("For zsh, all names:", "installer completions zsh > /usr/share/zsh/vendor-completions/_installer"),
            ("For fish:", "installer completions fish > /usr/share/fish/vendor_completions.d/installer.fish"),
        ],
        &["man"],
        "One script completes all names of the program: `installer`, `slipway` and `imager`. It completes sources \
         (directories after dir: and oci:, files after oci-archive:), disks, platforms and all values that are a \
         list.",
    ),
    page(
        "installer-man",
        &[("All pages:", "installer man /usr/share/man/man8")],
        &["completions"],
        "One page for each verb, and one for each name of the program. The same program makes the same bytes: the \
         date in the pages is that of the release, or $SOURCE_DATE_EPOCH.",
    ),
    page(
        "imager",
        &[
            ("An image by a base profile:", "imager metal --output /srv/images"),
            (
                "For a cloud, with the payload of a container image:",
                "imager aws --output /srv/images --base-installer-image registry.example/os:1.2",
            ),
            ("By a profile of your own:", "imager - --output /srv/images < profile.yaml"),
        ],
        &["image"],
        "This is `installer` under another name. The image goes into a directory, under a name that follows from \
         the profile.",
    ),
];
