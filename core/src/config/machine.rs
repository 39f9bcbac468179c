//! The machine config: reads the installation settings from the YAML documents that machined passes on stdin.
//!
//! Keys and types are those of Talos' reference (v1alpha1 config, `UnattendedInstallConfig`, `VolumeConfig`). Settings
//! that do not concern an installation are skipped silently. The rest is read strictly: a wrong type or an unknown key
//! in `machine.install` is an error, because an overlooked key may be the one that names the disk.

use crate::prelude::*;

use super::{cel, selector::Selector};
use crate::{
    disk::layout::Part,
    yaml::{self, ConfigError, Field},
};

/// Installation settings of a machine config.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the other fields are what their names say")]
pub struct MachineConfig {
    pub disk: Option<DiskChoice>,
    /// `machine.install.extraKernelArgs`.
    pub extra_kernel_args: Vec<String>,
    pub wipe: Option<bool>,
    /// Whether to mark the protective MBR's entry active.
    pub legacy_bios_support: bool,
    /// Whether to use the payload's own kernel arguments alone.
    pub payload_cmdline: bool,
    /// Whether it asks for an installation, by `machine.install` or an `UnattendedInstallConfig`.
    pub installs: bool,
    /// Whether to reboot after an unattended installation.
    pub reboot: Option<bool>,
    /// Volumes that the OS encrypts itself: STATE, EPHEMERAL.
    pub encrypted: Vec<Part>,
    /// Keys that were understood but have no effect.
    pub warnings: Vec<String>,
}

/// Choice of the disk in a machine config.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DiskChoice {
    /// By path.
    Path(String),
    /// By its properties.
    Selector(Selector),
    /// By properties that are not understood. That is an error only where they have to choose the disk.
    Unread(ConfigError),
}

impl MachineConfig {
    /// Parse the documents; `None` if there are none.
    pub fn parse(bytes: &[u8]) -> Result<Option<Self>, ConfigError> {
        let documents = yaml::documents(yaml::text(bytes)?)?;
        if documents.is_empty() {
            return Ok(None);
        }
        let mut reader = Reader::default();
        for document in &documents {
            reader.document(&Field::root(document))?;
        }
        reader.settle().map(Some)
    }
}

impl DiskChoice {
    fn of(selector: Result<Selector, ConfigError>) -> Self {
        selector.map_or_else(DiskChoice::Unread, DiskChoice::Selector)
    }
}

fn matched<'n>(root: &Field<'n>, selector: Option<Field<'n>>) -> Result<Selector, ConfigError> {
    if let Some(selector) = &selector {
        selector.only(&["match"])?;
    }
    let expression = selector.map(|field| field.get("match")).transpose()?.flatten();
    let expression = expression.ok_or_else(|| root.wrong("provisioning.diskSelector.match is missing"))?;
    cel::parse(expression.text()?).map_err(|what| expression.wrong(what))
}

#[derive(Default)]
struct Reader<'n> {
    config: MachineConfig,
    v1alpha1: Option<Field<'n>>,
    install: Option<Field<'n>>,
    unattended: Option<Field<'n>>,
    // machine.install.grubUseUKICmdline
    uki_cmdline: bool,
}

impl<'n> Reader<'n> {
    fn document(&mut self, root: &Field<'n>) -> Result<(), ConfigError> {
        let Some(kind) = root.text_of("kind")? else { return self.v1alpha1(root) };
        let version = root.get("apiVersion")?;
        let ours = matches!(kind, "UnattendedInstallConfig" | "VolumeConfig");
        match version.as_ref().map(Field::text).transpose()? {
            _ if !ours => Ok(()),
            Some("v1alpha1") if kind == "VolumeConfig" => self.volume(root),
            Some("v1alpha1") => self.unattended(root),
            other => {
                let at = version.as_ref().unwrap_or(root);
                Err(at.wrong(format!("{kind} of version {:?} is not known, only v1alpha1", other.unwrap_or_default())))
            }
        }
    }

    fn v1alpha1(&mut self, root: &Field<'n>) -> Result<(), ConfigError> {
        root.only(&["version", "debug", "persist", "machine", "cluster", "apiVersion", "kind"])?;
        if let Some(version) = root.get("apiVersion")? {
            return Err(version.wrong("this document has an apiVersion but no kind"));
        }
        if let Some(version) = root.get("version")?
            && version.text()? != "v1alpha1"
        {
            return Err(version.wrong(format!("{:?} is not known, only v1alpha1", version.text()?)));
        }
        if let Some(first) = self.v1alpha1.replace(root.clone()) {
            return Err(root.wrong(format!("a second v1alpha1 document; the first one begins at {}", first.at())));
        }
        let Some(machine) = root.get("machine")? else { return Ok(()) };
        for (key, part) in [("state", Part::State), ("ephemeral", Part::Ephemeral)] {
            if let Some(encryption) = machine.get("systemDiskEncryption")?
                && let Some(volume) = encryption.get(key)?
            {
                self.encrypt(part, &volume)?;
            }
        }
        match machine.get("install")? {
            Some(install) => self.install(install),
            None => Ok(()),
        }
    }

    fn encrypt(&mut self, part: Part, how: &Field) -> Result<(), ConfigError> {
        // Only that it is encrypted matters here; the OS reads how.
        how.mapping()?;
        if !self.config.encrypted.contains(&part) {
            self.config.encrypted.push(part);
        }
        Ok(())
    }

    fn install(&mut self, install: Field<'n>) -> Result<(), ConfigError> {
        const KEYS: [&str; 9] = [
            "disk",
            "diskSelector",
            "extraKernelArgs",
            "image",
            "wipe",
            "legacyBIOSSupport",
            "grubUseUKICmdline",
            "extensions",
            "bootloader",
        ];
        install.only(&KEYS)?;
        let config = &mut self.config;
        // The selector has priority, as in Talos. The path is read even so, to check its type.
        config.disk = install.text_of("disk")?.map(|path| DiskChoice::Path(path.into()));
        if let Some(selector) = install.get("diskSelector")? {
            config.disk = Some(DiskChoice::of(Selector::of_keys(&selector)));
        }
        config.wipe = install.boolean_of("wipe")?;
        config.legacy_bios_support = install.boolean_of("legacyBIOSSupport")?.unwrap_or(false);
        self.uki_cmdline = install.boolean_of("grubUseUKICmdline")?.unwrap_or(false);
        if let Some(extra) = install.get("extraKernelArgs")? {
            config.extra_kernel_args = extra.texts()?;
            if self.uki_cmdline && !config.extra_kernel_args.is_empty() {
                return Err(
                    extra.wrong("extraKernelArgs and grubUseUKICmdline exclude each other: drop one of the two")
                );
            }
        }
        if let Some(extensions) = install.get("extensions")? {
            let text = extensions.named("ignored: extensions are part of the payload");
            config.warnings.push(format!("{}: {text}", extensions.at()));
        }
        self.install = Some(install);
        Ok(())
    }

    fn volume(&mut self, root: &Field<'n>) -> Result<(), ConfigError> {
        let part = match root.text_of("name")? {
            Some("STATE") => Part::State,
            Some("EPHEMERAL") => Part::Ephemeral,
            _ => return Ok(()),
        };
        if let Some(encryption) = root.get("encryption")? {
            self.encrypt(part, &encryption)?;
        }
        if let Some(provisioning) = root.get("provisioning")? {
            let text =
                format!("provisioning of {part} is ignored: its place is fixed, EPHEMERAL has the rest of the disk");
            self.config.warnings.push(format!("{}: {text}", provisioning.at()));
        }
        Ok(())
    }

    fn unattended(&mut self, root: &Field<'n>) -> Result<(), ConfigError> {
        root.only(&["apiVersion", "kind", "reboot", "installer", "provisioning"])?;
        if let Some(first) = self.unattended.replace(root.clone()) {
            return Err(root.wrong(format!("a second UnattendedInstallConfig; the first one begins at {}", first.at())));
        }
        self.config.reboot = root.boolean_of("reboot")?;
        let provisioning = root.get("provisioning")?;
        if let Some(provisioning) = &provisioning {
            provisioning.only(&["diskSelector", "wipe"])?;
            self.config.wipe = provisioning.boolean_of("wipe")?;
        }
        let selector = provisioning.map(|field| field.get("diskSelector")).transpose()?.flatten();
        self.config.disk = Some(DiskChoice::of(matched(root, selector)));
        Ok(())
    }

    /// Draw the conclusions that need all documents.
    fn settle(mut self) -> Result<MachineConfig, ConfigError> {
        if let (Some(unattended), Some(install)) = (&self.unattended, &self.install) {
            let text =
                format!("there is also an UnattendedInstallConfig (at {}): drop one of the two", unattended.at());
            return Err(install.wrong(text));
        }
        // As the machined contract has it: without machine.install, the payload's own arguments are used alone.
        self.config.installs = self.install.is_some() || self.unattended.is_some();
        self.config.payload_cmdline = self.uki_cmdline || self.install.is_none();
        Ok(self.config)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> MachineConfig {
        MachineConfig::parse(text.as_bytes()).unwrap_or_else(|e| panic!("{e}\n{text}")).unwrap()
    }

    const FULL: &str = "\
version: v1alpha1
debug: false
machine:
  type: worker
  token: abc
  sysctls: {net.core.somaxconn: 65535}
  install:
    disk: /dev/sda
    extraKernelArgs: [console=ttyS1, -quiet]
    image: ghcr.io/siderolabs/installer:latest
    wipe: no
    legacyBIOSSupport: true
    grubUseUKICmdline: false
  systemDiskEncryption:
    ephemeral: {provider: luks2, keys: [{nodeID: {}, slot: 0}]}
cluster: {clusterName: x}
---
apiVersion: v1alpha1
kind: VolumeConfig
name: STATE
encryption: {provider: luks2}
---
apiVersion: v2beta9
kind: UnknownKind
encryption: [[[]]]
provisioning: 5
";

    #[test]
    fn everything_that_concerns_an_installation_is_read() {
        let config = parse(FULL);
        let expected = MachineConfig {
            disk: Some(DiskChoice::Path("/dev/sda".into())),
            extra_kernel_args: vec!["console=ttyS1".into(), "-quiet".into()],
            wipe: Some(false),
            legacy_bios_support: true,
            payload_cmdline: false,
            installs: true,
            reboot: None,
            encrypted: vec![Part::Ephemeral, Part::State],
            warnings: vec![],
        };
        assert_eq!(config, expected);
    }

    #[test]
    fn no_document_is_no_config() {
        for none in ["", " \n", "# only a comment\n", "---\n"] {
            assert_eq!(MachineConfig::parse(none.as_bytes()), Ok(None), "{none:?}");
        }
    }

    #[test]
    fn the_payloads_arguments_stand_alone_by_the_contracts_rule() {
        let machine = |install: &str| parse(&format!("machine: {{type: worker{install}}}\n")).payload_cmdline;
        assert!(!machine(", install: {disk: /dev/sda}"));
        assert!(!machine(", install: {}"));
        assert!(machine(", install: {grubUseUKICmdline: true}"));
        assert!(machine(""), "no machine.install");
        assert!(parse("kind: HostnameConfig\napiVersion: v1alpha1\nhostname: a\n").payload_cmdline, "no v1alpha1");
        assert!(parse(UNATTENDED).payload_cmdline);
    }

    const UNATTENDED: &str = "\
apiVersion: v1alpha1
kind: UnattendedInstallConfig
reboot: true
installer: {image: a/b:c}
provisioning:
  diskSelector:
    match: disk.size > 10u * GB
  wipe: true
";

    #[test]
    fn an_unattended_install_names_its_disk() {
        let config = parse(UNATTENDED);
        let expected = cel::parse("disk.size > 10000000000u").unwrap();
        assert_eq!(config.disk, Some(DiskChoice::Selector(expected)));
        assert_eq!((config.wipe, config.legacy_bios_support), (Some(true), false));
        assert_eq!((config.installs, config.reboot), (true, Some(true)));
        assert!(!parse("machine: {type: worker}\n").installs);
    }

    #[test]
    fn a_selector_goes_before_a_path() {
        let config =
            parse("machine: {install: {disk: /dev/sda, diskSelector: {size: '>= 1TB', type: ssd, model: W*}}}\n");
        let Some(DiskChoice::Selector(selector)) = config.disk else { panic!("{config:?}") };
        assert_eq!(
            selector.to_string(),
            "disk.size >= 1000000000000u && glob(\"W*\", disk.model) && !(disk.rotational) && disk.transport != \"\" && \
             !(disk.readonly) && !(disk.cdrom)"
        );
    }

    #[test]
    fn what_is_understood_and_ignored_is_said() {
        let config = parse("machine: {install: {extensions: [{image: x}]}}\n");
        assert_eq!(
            config.warnings,
            ["line 1, column 33: machine.install.extensions: ignored: extensions are part of the payload"]
        );
        let config =
            parse("kind: VolumeConfig\napiVersion: v1alpha1\nname: EPHEMERAL\nprovisioning:\n  maxSize: 1GB\n");
        let [warning] = &config.warnings[..] else { panic!("{config:?}") };
        assert!(warning.starts_with("line 5, column 3: provisioning of EPHEMERAL is ignored"), "{warning}");
        assert!(config.encrypted.is_empty());
    }
}
