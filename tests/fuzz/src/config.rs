//! Configuration in YAML: the machine config, with the expression that names the disk, and profiles of `imager`.

use slipway_core::{
    config::{DiskChoice, DiskTraits, MachineConfig, Selector},
    media::profile::Profile,
};

/// YAML documents.
pub fn config(bytes: &[u8]) -> bool {
    let parsed = MachineConfig::parse(bytes);
    if let Err(e) = &parsed {
        let lines = bytes.split(|b| matches!(b, b'\n' | b'\r')).count();
        assert!((1..=lines + 1).contains(&e.at.line) && e.at.column >= 1, "{e}, in {lines} lines");
    }
    // A comment in front says nothing; a byte order mark stands in front of everything.
    if !bytes.starts_with("\u{feff}".as_bytes()) {
        let commented = MachineConfig::parse(&[b"# a comment\n", bytes].concat());
        assert_eq!(without_places(&parsed), without_places(&commented));
    }
    let Ok(Some(config)) = parsed else { return false };
    assert!(config.encrypted.len() <= 2 && (config.encrypted.len() < 2 || config.encrypted[0] != config.encrypted[1]));
    match config.disk {
        Some(DiskChoice::Selector(selector)) => means_what_it_shows(&selector),
        Some(DiskChoice::Path(path)) => assert!(!path.is_empty()),
        Some(DiskChoice::Unread(_)) | None => {}
    }
    true
}

/// The parsed config, without the lines it was read from.
fn without_places(parsed: &Result<Option<MachineConfig>, slipway_core::config::ConfigError>) -> Option<MachineConfig> {
    let config = parsed.as_ref().ok()?.clone()?;
    let disk = config.disk.filter(|disk| !matches!(disk, DiskChoice::Unread(_)));
    Some(MachineConfig { warnings: vec![], disk, ..config })
}

/// What a selector shows to people is an expression again, and one that means the same disks.
fn means_what_it_shows(selector: &Selector) {
    let shown = selector.to_string();
    let verdicts = |selector: &Selector| disks().map(|disk| selector.mismatch(&disk).is_none());
    let own = verdicts(selector);
    let not = Selector::Not(Box::new(selector.clone()));
    assert_eq!(verdicts(&not), own.map(|meant| !meant), "{shown}");
    // People see other escapes than the expression knows.
    let other_escape = shown.replace("\\\\", "").split('\\').skip(1).any(|after| !after.starts_with(['"', '\'']));
    if other_escape || shown.chars().any(|c| !matches!(c, ' '..='~')) {
        return;
    }
    let quoted = shown.replace('\'', "''");
    let text = format!(
        "apiVersion: v1alpha1\nkind: UnattendedInstallConfig\nprovisioning: {{diskSelector: {{match: '{quoted}'}}}}\n"
    );
    match MachineConfig::parse(text.as_bytes()) {
        Ok(Some(MachineConfig { disk: Some(DiskChoice::Selector(again)), .. })) => {
            assert_eq!(verdicts(&again), own, "{shown}, read as {again}");
        }
        // More parentheses are shown than were written.
        Ok(Some(MachineConfig { disk: Some(DiskChoice::Unread(e)), .. })) if e.what.contains("nested deeper") => {}
        other => panic!("{shown}: {other:?}"),
    }
}

fn disks() -> [DiskTraits; 4] {
    let disk = |size: u64, transport: &str, model: &str, rotational: bool| DiskTraits {
        dev_path: format!("/dev/{transport}0"),
        size,
        transport: transport.to_owned(),
        model: model.to_owned(),
        serial: "S1".to_owned(),
        rotational,
        sector_size: 512,
        ..DiskTraits::default()
    };
    [
        DiskTraits::default(),
        disk(1 << 40, "nvme", "WDC 1", false),
        disk(4_000_000_000, "sata", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab", true),
        DiskTraits { symlinks: vec!["/dev/disk/by-id/x".to_owned()], ..disk(u64::MAX, "usb", "*", false) },
    ]
}

/// A profile of `imager`.
pub fn profile(bytes: &[u8]) -> bool {
    let parsed = Profile::parse(bytes);
    if let Err(e) = &parsed {
        let lines = bytes.split(|b| matches!(b, b'\n' | b'\r')).count();
        assert!((1..=lines + 1).contains(&e.at.line) && e.at.column >= 1, "{e}, in {lines} lines");
    }
    // A comment in front says nothing; a byte order mark stands in front of everything.
    if !bytes.starts_with("\u{feff}".as_bytes()) {
        let commented = Profile::parse(&[b"# a comment\n", bytes].concat());
        assert_eq!(
            commented.ok().map(|(profile, _)| profile),
            parsed.as_ref().ok().map(|(profile, _)| profile.clone())
        );
    }
    let Ok((profile, _)) = parsed else { return false };
    // What is shown is the same profile.
    let shown = profile.to_string();
    assert_eq!(Profile::parse(shown.as_bytes()), Ok((profile.clone(), vec![])), "{shown}");
    assert!(super::is_plain(&profile.file_name()), "{}", profile.file_name());
    true
}
