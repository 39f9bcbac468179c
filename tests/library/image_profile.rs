//! What a profile of `imager` means: which arguments of `installer image` it becomes.

use clap::Parser as _;
use proptest::prelude::*;
use slipway::{
    cli::{Cli, Imager, Verb, environment::Environment},
    commands::{image_request, imager_request},
};
use slipway_core::{
    boot::EfiLoader,
    efi::enroll_mode::EnrollMode,
    kernel::{arch::Arch, platform::Platform},
    media::{
        format::{Compression, ImageKind},
        profile::{DiskOptions, Draft, EnrolledKeys, Fault, PayloadInput, Product, Profile, SecureBoot},
    },
    units::{GIB, SectorSize},
};
use slipway_test_support::fixtures::FULL_PROFILE;

/// A profile says the same as these arguments of `installer image`.
#[track_caller]
fn means(imager: &[&str], profile: &str, image: &[&str]) {
    let imager = Imager::try_parse_from([&["imager", "-"], imager].concat()).unwrap();
    let (profile, _) = Profile::parse(profile.as_bytes()).unwrap_or_else(|e| panic!("{e}\n{profile}"));
    let Product::Image(kind) = profile.product else { panic!("no image") };
    let cli = Cli::try_parse_from([&["installer", "image"], image].concat()).unwrap();
    let Verb::Image(expected) = cli.verb else { panic!("no image") };
    let expected = image_request(&expected, Environment::default()).unwrap();
    assert_eq!(imager_request(&imager, &profile, kind).unwrap(), expected);
}

#[test]
fn every_key_becomes_an_argument() {
    let expected = [
        "--kind=vhd",
        "--out=/made/azure-arm64.vhd.xz",
        "--force",
        "--disk-size=5GiB",
        "--source=dir:/files",
        "--sector-size=512",
        "--extra-kernel-arg=console=ttyS1",
        "--extra-kernel-arg=-quiet",
        "--meta=10=one\ntwo",
        "--meta=12=a=b",
        "--platform=azure",
        "--arch=arm64",
        "--efi-loader=grub",
    ];
    means(&["--output=/made", "--force"], FULL_PROFILE, &expected);
}

#[test]
fn a_base_profile_says_the_rest() {
    let expected = [
        "--kind=raw",
        "--out=/out/metal-amd64.raw.zst",
        "--disk-size=4GiB",
        "--source=dir:/usr/install/amd64",
        "--sector-size=512",
        "--efi-loader=slipway",
        "--platform=metal",
        "--arch=amd64",
    ];
    means(&[], "baseProfileName: metal\narch: amd64\n", &expected);
    // Keys go before it, and what asks for nothing is nothing.
    let keys = "\
baseProfileName: metal-4k
arch: arm64
platform: nocloud
secureboot: null
overlay: {name: '', image: {}}
input: {sdStub: {path: ''}, imageCache: {imageRef: ''}, systemExtensions: [], kernel: {path: ''}, baseInstaller: {}}
output: {imageOptions: {diskFormat: qcow2, diskFormatOptions: ''}, isoOptions: {}, outFormat: raw}
";
    let expected = [
        "--kind=qcow2",
        "--out=/out/nocloud-arm64.qcow2",
        "--disk-size=4GiB",
        "--source=dir:/usr/install/arm64",
        "--sector-size=4096",
        "--efi-loader=slipway",
        "--platform=nocloud",
        "--arch=arm64",
    ];
    means(&[], keys, &expected);
}

/// No disk is asked for; whatever a base profile says of one.
#[test]
fn an_iso_is_a_kind_of_output() {
    let alone = "arch: arm64\nplatform: nocloud\noutput: {kind: iso, isoOptions: {bootloader: grub}, outFormat: .xz}\n";
    let based = "\
baseProfileName: iso
arch: arm64
platform: nocloud
customization: {metaContents: []}
output: {imageOptions: {diskSize: null, bootloader: ''}, outFormat: .xz}
";
    let other = "arch: arm64\nbaseProfileName: metal-4k\nplatform: nocloud\noutput: {outFormat: .xz, kind: iso}\n";
    for profile in [alone, based, other] {
        let expected = [
            "--kind=iso",
            "--out=/out/nocloud-arm64.iso.xz",
            "--source=dir:/usr/install/arm64",
            "--platform=nocloud",
            "--arch=arm64",
        ];
        means(&[], profile, &expected);
    }
    let expected = [
        "--kind=iso",
        "--out=/out/metal-amd64.iso",
        "--source=oci:/layout",
        "--extra-kernel-arg=quiet",
        "--platform=metal",
        "--arch=amd64",
    ];
    let profile = "\
baseProfileName: iso
arch: amd64
customization: {extraKernelArgs: [quiet]}
input: {baseInstaller: {ociPath: /layout}}
";
    means(&[], profile, &expected);
    // How it is compressed is up to the base.
    let (profile, _) = Profile::parse(b"baseProfileName: metal\narch: amd64\noutput: {kind: iso}\n").unwrap();
    assert_eq!(profile.file_name(), "metal-amd64.iso.zst");
}

#[test]
fn a_container_image_is_a_source() {
    let cases: [(&str, &[&str], &[&str]); 6] = [
        ("imageRef: r.example/os:1.2", &[], &["--source=docker://r.example/os:1.2"]),
        (
            "imageRef: r.example/os:1.2, forceInsecure: true",
            &["--authfile=/auth"],
            &["--source=docker://r.example/os:1.2", "--tls-verify=false", "--authfile=/auth"],
        ),
        (
            "imageRef: r.example/os:1.2",
            &["--tls-verify=false"],
            &["--source=docker://r.example/os:1.2", "--tls-verify=false"],
        ),
        ("imageRef: r.example/os", &["--plain-http"], &["--source=docker://r.example/os", "--plain-http"]),
        ("ociPath: /layout", &[], &["--source=oci:/layout"]),
        ("tarballPath: /os.tar", &[], &["--source=oci-archive:/os.tar"]),
    ];
    for (asset, imager, image) in cases {
        let profile = format!("baseProfileName: aws\narch: amd64\ninput: {{baseInstaller: {{{asset}}}}}\n");
        let all = ["--kind=raw", "--out=/out/aws-amd64.raw.zst", "--disk-size=8GiB", "--sector-size=512"];
        let more = ["--efi-loader=slipway", "--platform=aws", "--arch=amd64"];
        means(imager, &profile, &[&all[..], &more, image].concat());
    }
}

#[test]
fn base_profiles() {
    let made = |name: &str| {
        let draft = Draft::base(name).unwrap_or_else(|e| panic!("{name}: {e}"));
        Draft { arch: Some(Arch::Amd64), ..draft }.settle().map(|p| (p.file_name(), p.disk))
    };
    let s512 = SectorSize::S512;
    for (name, file, gib, sector) in [
        ("metal", "metal-amd64.raw.zst", 4, s512),
        ("metal-4k", "metal-amd64.raw.zst", 4, SectorSize::S4096),
        ("akamai", "akamai-amd64.raw.gz", 4, s512),
        ("alibabacloud", "alibabacloud-amd64.raw.zst", 8, s512),
        ("aws", "aws-amd64.raw.zst", 8, s512),
        ("azure", "azure-amd64.vhd.zst", 8, s512),
        ("cloudstack", "cloudstack-amd64.raw.zst", 8, s512),
        ("digital-ocean", "digital-ocean-amd64.raw.gz", 8, s512),
        ("exoscale", "exoscale-amd64.qcow2.zst", 10, s512),
        ("hcloud", "hcloud-amd64.raw.zst", 4, s512),
        ("nocloud", "nocloud-amd64.raw.zst", 4, s512),
        ("opennebula", "opennebula-amd64.raw.zst", 4, s512),
        ("openstack", "openstack-amd64.raw.zst", 4, s512),
        ("oracle", "oracle-amd64.qcow2.zst", 8, s512),
        ("scaleway", "scaleway-amd64.raw.zst", 4, s512),
        ("upcloud", "upcloud-amd64.raw.zst", 8, s512),
        ("vmware", "vmware-amd64.ova", 8, s512),
        ("vultr", "vultr-amd64.raw.zst", 8, s512),
    ] {
        assert_eq!(
            made(name),
            Ok((file.to_owned(), Some(DiskOptions { bytes: gib * GIB, sector, efi_loader: EfiLoader::Slipway }))),
            "{name}"
        );
    }
    assert_eq!(made("iso"), Ok(("metal-amd64.iso".to_owned(), None)));
    for name in ["gcp", "installer"] {
        assert!(matches!(made(name), Err(Fault::Unsupported(_))), "{name}");
    }
    assert_eq!(made("metal-uki"), Ok(("metal-amd64-uki.efi".to_owned(), None)));
    assert_eq!(made("secureboot-metal-uki"), Ok(("metal-amd64-secureboot-uki.efi".to_owned(), None)));
    assert_eq!(made("secureboot-iso").unwrap().0, "metal-amd64-secureboot.iso");
    for name in ["secureboot-installer", "secureboot-gcp"] {
        assert!(matches!(made(name), Err(Fault::Unsupported(_))), "{name}");
    }
    assert_eq!(made("secureboot-metal").unwrap().0, "metal-amd64-secureboot.raw.zst");
    assert_eq!(made("secureboot-azure").unwrap().0, "azure-amd64-secureboot.vhd.zst");
    for name in ["secureboot-nonsense", "secureboot-secureboot-metal", "secureboot-"] {
        assert!(matches!(Draft::base(name), Err(Fault::Wrong(_))), "{name}");
    }
    assert_eq!(Draft::base_names().count(), 22);
}

/// The keys lie where Talos' imager has them, unless the profile says otherwise.
#[test]
fn secure_boot_is_a_key_and_a_certificate() {
    let disk = [
        "--kind=raw",
        "--disk-size=4GiB",
        "--sector-size=512",
        "--efi-loader=slipway",
        "--source=dir:/usr/install/amd64",
        "--arch=amd64",
    ];
    let expected = [
        "--out=/out/metal-amd64-secureboot.raw.zst",
        "--platform=metal",
        "--key=/secureboot/uki-signing-key.pem",
        "--certificate=/secureboot/uki-signing-cert.pem",
        "--pcr-key=/secureboot/pcr-signing-key.pem",
    ];
    means(&[], "baseProfileName: metal\narch: amd64\nsecureboot: true\n", &[&disk[..], &expected].concat());
    means(&[], "baseProfileName: secureboot-metal\narch: amd64\n", &[&disk[..], &expected].concat());
    let profile = "\
baseProfileName: secureboot-metal
arch: amd64
input:
  sdStub: {path: /stub}
  secureboot:
    secureBootSigner: {keyPath: /a.key, certPath: /a.pem, azureVaultURL: ''}
    pcrSigner: {keyPath: /p.key}
    includeWellKnownCerts: false
output: {imageOptions: {sdBootEnrollKeys: manual}}
";
    let expected = [
        "--out=/out/metal-amd64-secureboot.raw.zst",
        "--platform=metal",
        "--key=/a.key",
        "--certificate=/a.pem",
        "--pcr-key=/p.key",
        "--stub=/stub",
    ];
    means(&[], profile, &[&disk[..], &expected].concat());
    let plain = "baseProfileName: secureboot-metal\narch: amd64\nsecureboot: false\n";
    assert_eq!(Profile::parse(plain.as_bytes()).unwrap().0.secure_boot, None);
    for (keys, what) in [
        ("input: {secureboot: {secureBootSigner: {keyPath: x}}}", "nothing is signed without `secureboot: true`"),
        ("input: {sdStub: {path: x}}", "only a unified kernel image begins with a stub: write `secureboot: true`, or"),
        ("secureboot: true\ninput: {secureboot: {platformKeyPath: x}}", "give all of platformKeyPath, "),
        ("secureboot: true\ninput: {secureboot: {signer: x}}", "\"signer\" is not a known key"),
        ("secureboot: true\noutput: {imageOptions: {bootloader: grub}}", "GRUB starts nothing with Secure Boot"),
        ("secureboot: true\noutput: {imageOptions: {sdBootEnrollKeys: soon}}", "\"soon\" is no time to enroll"),
    ] {
        let error = Profile::parse(format!("baseProfileName: metal\narch: amd64\n{keys}\n").as_bytes()).unwrap_err();
        assert!(matches!(&error.fault, Fault::Wrong(text) if text.contains(what)), "{error}");
    }
}

/// A signed ISO brings keys, in files or made of the certificate. Flags say the same as the keys of a profile.
#[test]
fn a_signed_iso_brings_keys() {
    let expected = [
        "--kind=iso",
        "--out=/out/metal-amd64-secureboot.iso",
        "--source=dir:/usr/install/amd64",
        "--platform=metal",
        "--arch=amd64",
        "--key=/secureboot/uki-signing-key.pem",
        "--certificate=/secureboot/uki-signing-cert.pem",
        "--pcr-key=/secureboot/pcr-signing-key.pem",
        "--enroll-from=/keys",
    ];
    let keys = "platformKeyPath: /keys/PK.auth, keyExchangeKeyPath: /keys/KEK.auth, signatureKeyPath: /keys/db.auth";
    let iso = "baseProfileName: secureboot-iso\narch: amd64\n";
    let with = |more: &str| format!("{iso}input: {{secureboot: {{{keys}}}}}\n{more}");
    means(&[], &with(""), &[&expected[..], &["--enroll-keys=if-safe"]].concat());
    for (mode, ..) in EnrollMode::ALL.map(|(mode, name, _)| (name, mode)) {
        let profile = with(&format!("output: {{isoOptions: {{sdBootEnrollKeys: '{mode}', bootloader: dual-boot}}}}"));
        means(&[], &profile, &[&expected[..], &[&format!("--enroll-keys={mode}")]].concat());
    }
    let read = |text: String| Profile::parse(text.as_bytes()).map(|(profile, _)| profile);
    let other = "baseProfileName: metal\narch: amd64\nsecureboot: true\noutput: {kind: iso, outFormat: raw}\n";
    assert_eq!(read(iso.to_owned()), read(other.to_owned()));
    let mut draft = Draft { arch: Some(Arch::Amd64), ..Draft::base("secureboot-iso").unwrap() };
    draft.set_enroll("force").unwrap();
    draft.set_well_known().unwrap();
    let profile = "input: {secureboot: {includeWellKnownCerts: true}}\noutput: {isoOptions: {sdBootEnrollKeys: force}}";
    let profile = read(format!("{iso}{profile}")).unwrap();
    assert_eq!(draft.settle().as_ref(), Ok(&profile));
    assert_eq!(profile.secure_boot.unwrap().enrolled, EnrolledKeys::Own { well_known: true });
    for (more, what) in [
        (format!("input: {{secureboot: {{{keys}, includeWellKnownCerts: true}}}}"), "what is enrolled is in the files"),
        ("input: {secureboot: {signatureKeyPath: x}}".to_owned(), "give all of platformKeyPath, "),
        ("output: {isoOptions: {bootloader: grub}}".to_owned(), "GRUB starts nothing with Secure Boot"),
        ("output: {isoOptions: {sdBootEnrollKeys: soon}}".to_owned(), "\"soon\" is no time to enroll"),
    ] {
        let error = read(format!("{iso}{more}")).unwrap_err();
        assert!(matches!(&error.fault, Fault::Wrong(text) if text.contains(what)), "{error}");
    }
}

#[test]
fn a_uki_has_no_disk_and_is_not_compressed() {
    let based = "baseProfileName: metal\narch: amd64\n";
    for (keys, what) in [
        ("kind: uki", "output.outFormat: firmware starts no compressed unified kernel image: write raw"),
        ("kind: uki, outFormat: raw, imageOptions: {diskSize: 1}", "which has no disk in it: drop this"),
        ("kind: uki, outFormat: raw, isoOptions: {bootloader: grub}", "the output is not an ISO"),
    ] {
        let error = Profile::parse(format!("{based}output: {{{keys}}}\n").as_bytes()).unwrap_err();
        assert!(matches!(&error.fault, Fault::Wrong(text) if text.contains(what)), "{error}");
    }
    let read = |text: String| Profile::parse(text.as_bytes()).unwrap().0;
    let signed = read(format!("{based}secureboot: true\noutput: {{kind: uki, outFormat: raw}}\n"));
    assert_eq!(signed, read("baseProfileName: secureboot-metal-uki\narch: amd64\n".to_owned()));
    assert_eq!(read(signed.to_string()), signed);
    // It begins with a stub, whichever key signs it.
    for base in ["metal-uki", "secureboot-metal-uki"] {
        let other = read(format!("baseProfileName: {base}\narch: amd64\ninput: {{sdStub: {{path: /stub}}}}\n"));
        assert_eq!(other.stub.as_deref(), Some("/stub"), "{base}");
    }
}

/// What asks for nothing that counts is said.
#[test]
fn what_is_ignored() {
    let text = "version: v1.9.0\nbaseProfileName: metal\narch: amd64\nname: mine\n";
    let (_, ignored) = Profile::parse(text.as_bytes()).unwrap();
    let [name, version] = &ignored[..] else { panic!("{ignored:?}") };
    assert!(name.starts_with("line 4, column 7: name: ignored: "), "{name}");
    assert!(version.starts_with("line 1, column 10: version: ignored: "), "{version}");
}

#[test]
fn the_printed_profile() {
    let profile = Profile {
        arch: Arch::Amd64,
        platform: Platform::METAL,
        extra_kernel_args: vec!["console=ttyS1,115200".into(), "-quiet".into(), "on".into(), "a=\"b c\"".into()],
        meta: vec![(10, "one\ntwo\u{7}".into()), (12, String::new())],
        origin: PayloadInput::Registry { image: "r.example/os:1.2".parse().unwrap(), insecure: true },
        product: Product::Image(ImageKind::Raw),
        disk: Some(DiskOptions { bytes: 3 * GIB, sector: SectorSize::S4096, efi_loader: EfiLoader::Slipway }),
        compression: Some(Compression::Zst),
        stub: None,
        secure_boot: None,
        enroll: None,
    };
    let expected = r#"arch: amd64
platform: metal
secureboot: false
customization:
  extraKernelArgs:
    - console=ttyS1,115200
    - "-quiet"
    - "on"
    - "a=\"b c\""
  metaContents:
    - key: 10
      value: "one\ntwo\U00000007"
    - key: 12
      value: ""
input:
  baseInstaller:
    imageRef: "r.example/os:1.2"
    forceInsecure: true
output:
  kind: image
  imageOptions:
    diskSize: 3221225472
    diskFormat: raw
    diskSectorSize: 4096
    bootloader: dual-boot
  outFormat: .zst
"#;
    assert_eq!(profile.to_string(), expected);
}

#[test]
fn the_printed_profile_of_an_iso() {
    let profile = Profile {
        arch: Arch::Arm64,
        platform: Platform::METAL,
        extra_kernel_args: vec![],
        meta: vec![],
        origin: PayloadInput::Directory("/files".into()),
        product: Product::Image(ImageKind::Iso),
        disk: None,
        compression: None,
        stub: None,
        secure_boot: None,
        enroll: None,
    };
    let expected = "\
arch: arm64
platform: metal
secureboot: false
input:
  kernel:
    path: /files/vmlinuz
  initramfs:
    path: /files/initramfs.xz
output:
  kind: iso
  isoOptions:
    bootloader: grub
  outFormat: raw
";
    assert_eq!(profile.to_string(), expected);
}

fn any_profile() -> impl Strategy<Value = Profile> {
    let path = || "[^/]{1,12}".prop_map(|name| format!("/{name}"));
    let origin = prop_oneof![
        path().prop_map(PayloadInput::Directory),
        Just(PayloadInput::Directory("/".into())),
        Just(PayloadInput::Directory(".".into())),
        any::<String>().prop_filter("a path", |s| !s.is_empty()).prop_map(PayloadInput::Layout),
        path().prop_map(PayloadInput::Archive),
        any::<bool>().prop_map(|insecure| {
            let name = format!("r.example:5000/os@sha256:{}", "ab".repeat(32));
            PayloadInput::Registry { image: name.parse().unwrap(), insecure }
        }),
    ];
    let images = [ImageKind::Raw, ImageKind::Qcow2, ImageKind::Vhd, ImageKind::Ova, ImageKind::Iso];
    let product = prop::sample::select([&images.map(Product::Image)[..], &[Product::Uki]].concat());
    let compression =
        prop::sample::select(vec![None, Some(Compression::Xz), Some(Compression::Gz), Some(Compression::Zst)]);
    let platform = prop::sample::select(Platform::names().collect::<Vec<_>>());
    let texts = prop::collection::vec(any::<String>(), 0..4);
    let meta = prop::collection::vec((1..=255_u8, any::<String>()), 0..4);
    (origin, product, compression, platform, texts, meta, any::<u64>(), any::<bool>()).prop_map(
        |(origin, product, compression, platform, extra_kernel_args, meta, bytes, large)| {
            let (is_iso, is_uki) = (product == Product::Image(ImageKind::Iso), product == Product::Uki);
            let has_disk = !is_iso && !is_uki;
            // GRUB does not start with it.
            let signed = bytes % 4 == 0;
            Profile {
                arch: if large { Arch::Arm64 } else { Arch::Amd64 },
                platform: Platform::by_name(platform).unwrap(),
                extra_kernel_args,
                meta: if has_disk { meta } else { vec![] },
                origin,
                product,
                disk: has_disk.then_some(DiskOptions {
                    bytes,
                    sector: if large { SectorSize::S4096 } else { SectorSize::S512 },
                    efi_loader: if bytes % 2 == 0 { EfiLoader::Slipway } else { EfiLoader::Grub },
                }),
                stub: (large && (signed || is_uki)).then(|| "/stub: x".to_owned()),
                secure_boot: signed.then(|| SecureBoot {
                    key: format!("/{bytes}"),
                    enrolled: match bytes % 3 {
                        0 if is_iso => EnrolledKeys::Files(["/a", "b c", "on"].map(str::to_owned)),
                        other => EnrolledKeys::Own { well_known: other == 1 && is_iso },
                    },
                    ..SecureBoot::default()
                }),
                enroll: (signed && is_iso)
                    .then(|| EnrollMode::ALL[usize::from(large) + usize::from(bytes % 3 == 0) * 2].0),
                compression: compression.filter(|_| !is_uki),
            }
        },
    )
}

proptest! {
    /// Whatever a profile holds, it is printed so that it is read again.
    #[test]
    fn a_printed_profile_is_the_same_profile(profile in any_profile()) {
        let printed = profile.to_string();
        prop_assert_eq!(Profile::parse(printed.as_bytes()), Ok((profile, vec![])), "{}", printed);
    }

    /// A right profile with one character changed: an error has a place in the text.
    #[test]
    fn one_changed_character_never_panics(at in 0..FULL_PROFILE.len(), c in "[-:\\[\\]{}*&<>'\"# \n\ta0|!]") {
        let mut text = FULL_PROFILE.to_owned();
        text.replace_range(at..=at, &c);
        if let Err(e) = Profile::parse(text.as_bytes()) {
            prop_assert!((1..=text.lines().count() + 1).contains(&e.at.line), "{}", e);
        }
    }
}
