//! The command line of `imager`, the program's other name.

use std::path::PathBuf;

use clap::{ArgAction, Args, Parser};

use super::ProgressMode;
use super::{PlatformArg, RegistryArgs, TrustArgs, values};
use slipway_core::kernel::arch::Arch;

/// What a profile is, and how the image is named. An empty line is between the two.
pub const IMAGER_HELP: &str = "\
A profile is YAML:
  baseProfileName: metal      # or set all of platform, output.kind, diskSize, diskFormat, outFormat
  arch: amd64
  secureboot: true            # with keys in /secureboot, or named in input.secureboot
  customization:
    extraKernelArgs: [console=ttyS1]
    metaContents: [{key: 0x0a, value: text}]
  input:
    baseInstaller: {imageRef: registry.example/os:1.2}   # or ociPath, tarballPath; or kernel.path and initramfs.path
  output:
    kind: image               # or iso or uki, without imageOptions
    imageOptions: {diskSize: 8589934592, diskFormat: qcow2, diskSectorSize: 512}
    outFormat: .zst           # raw, .xz, .gz, .zst

The file is named PLATFORM-ARCH.FORMAT, for example metal-amd64.raw.zst, metal-amd64-secureboot.raw.zst, metal-amd64.iso, metal-amd64-secureboot.iso or metal-amd64-secureboot-uki.efi. `installer image` can make the same image, \
byte for byte, and can do more. Exit codes: those of `installer`; 3 if a profile or a flag asks for something that Talos' imager can do and \
this one cannot.";

/// Makes disk images and ISOs from profiles, as Talos' imager does.
#[derive(Debug, Parser)]
#[command(name = "imager", version, max_term_width = 100, after_help = IMAGER_HELP)]
pub struct Imager {
    /// Name of a base profile (iso, metal, metal-4k, aws, azure, ...), or `-` for a profile on stdin.
    #[arg(value_name = "PROFILE|-")]
    pub profile: String,
    /// Directory for the image; made if it does not exist.
    #[arg(long, value_name = "DIR", default_value = "/out")]
    pub output: PathBuf,
    /// Replace a file that already exists.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, action = ArgAction::Set)]
    pub force: bool,
    /// Format of the progress on stderr.
    #[arg(long, value_enum, default_value_t = ProgressMode::Auto)]
    pub progress: ProgressMode,
    #[command(flatten)]
    pub own: ImagerOwn,
    #[command(flatten)]
    pub trust: TrustArgs,
    #[command(flatten)]
    pub registry: RegistryArgs,
    #[command(flatten)]
    pub unsupported: ImagerUnsupported,
}

/// Flags that override a base profile. A profile on stdin sets these values itself.
#[derive(Debug, Args)]
#[command(next_help_heading = "With a base profile")]
pub struct ImagerOwn {
    /// Architecture of the machine [default: that of this machine].
    #[arg(long, value_parser = values::arch())]
    pub arch: Option<Arch>,
    /// Platform the machine runs on [default: that of the base profile].
    #[arg(long, value_name = "NAME", value_parser = values::Platforms)]
    pub platform: Option<PlatformArg>,
    /// Kernel argument. KEY or KEY=VALUE adds one (console and talos.platform replace it); -KEY or -KEY=VALUE removes
    /// one. @slot@, @slot-partuuid@ and others stand for the slot's own values. Repeatable.
    #[arg(long, value_name = "ARG", allow_hyphen_values = true)]
    pub extra_kernel_arg: Vec<String>,
    /// META tag KEY=VALUE. KEY is 1 to 255 in decimal, hex (0x…) or octal (0…). Repeatable.
    #[arg(long, value_name = "KEY=VALUE")]
    pub meta: Vec<String>,
    /// Kind of output: image, iso or uki [default: that of the base profile].
    #[arg(long, value_name = "KIND")]
    pub output_kind: Option<String>,
    /// Container image with the payload [default: the files in /usr/install/ARCH].
    #[arg(long, value_name = "HOST/REPOSITORY[:TAG][@DIGEST]")]
    pub base_installer_image: Option<String>,
    /// Do not check the registry's certificate, like --tls-verify=false.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, action = ArgAction::Set)]
    pub insecure: bool,
    /// For secureboot-iso: when the medium puts its keys into firmware in setup mode: if-safe, manual, force or off
    /// [default: if-safe].
    #[arg(long, value_name = "MODE")]
    pub secureboot_enroll_keys: Option<String>,
    /// For secureboot-iso: enrol Microsoft's certificates, too.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, action = ArgAction::Set)]
    pub secureboot_include_well_known_certs: bool,
}

/// Flags of Talos' imager for what this one cannot do. They are refused unless their value is empty or `false`, which
/// callers write out for "not wanted".
#[derive(Debug, Args)]
pub struct ImagerUnsupported {
    #[arg(long, hide = true)]
    pub image_cache: Vec<String>,
    #[arg(long, hide = true)]
    pub system_extension_image: Vec<String>,
    #[arg(long, hide = true, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub tar_to_stdout: Vec<String>,
    #[arg(long, hide = true)]
    pub overlay_name: Vec<String>,
    #[arg(long, hide = true)]
    pub overlay_image: Vec<String>,
    #[arg(long, hide = true)]
    pub overlay_option: Vec<String>,
    #[arg(long, hide = true)]
    pub embedded_config_path: Vec<String>,
    #[arg(long, hide = true)]
    pub secureboot_signer_address: Vec<String>,
    #[arg(long, hide = true)]
    pub pcr_signer_address: Vec<String>,
}

impl ImagerOwn {
    /// The first of these flags that is given.
    pub fn given(&self) -> Option<&'static str> {
        let flags = [
            ("--arch", self.arch.is_some()),
            ("--platform", self.platform.is_some()),
            ("--extra-kernel-arg", !self.extra_kernel_arg.is_empty()),
            ("--meta", !self.meta.is_empty()),
            ("--output-kind", self.output_kind.is_some()),
            ("--base-installer-image", self.base_installer_image.is_some()),
            ("--insecure", self.insecure),
            ("--secureboot-enroll-keys", self.secureboot_enroll_keys.as_deref().is_some_and(|mode| !mode.is_empty())),
            ("--secureboot-include-well-known-certs", self.secureboot_include_well_known_certs),
        ];
        flags.into_iter().find(|(_, given)| *given).map(|(flag, _)| flag)
    }
}

impl ImagerUnsupported {
    /// The first of these flags that asks for something.
    pub fn given(&self) -> Option<&'static str> {
        let flags = [
            ("--image-cache", &self.image_cache),
            ("--system-extension-image", &self.system_extension_image),
            ("--tar-to-stdout", &self.tar_to_stdout),
            ("--overlay-name", &self.overlay_name),
            ("--overlay-image", &self.overlay_image),
            ("--overlay-option", &self.overlay_option),
            ("--embedded-config-path", &self.embedded_config_path),
            ("--secureboot-signer-address", &self.secureboot_signer_address),
            ("--pcr-signer-address", &self.pcr_signer_address),
        ];
        let asks = |values: &[String]| values.iter().any(|value| !matches!(value.as_str(), "" | "false"));
        flags.into_iter().find(|(_, values)| asks(values)).map(|(flag, _)| flag)
    }
}
