//! Texts: digests, manifests, the boot state, names of images, the kernel's command line as the running system sees it.

use slipway_core::{
    boot::{
        env::{BootEnv, Marker},
        env_block::EnvBlock,
        history::{Entry, History, RECORD_BYTES, RECORDS},
        running::Running,
        slot::Slot,
    },
    digest::{Sha256, Sums},
    disk::chain::{Chain, Link},
    payload::{
        image_ref::{ImageRef, is_tag},
        manifest::Manifest,
    },
};
use uuid::Uuid;

/// `SHA256SUMS`, and the list of the boot chain, which has the same form with other names.
pub fn sums(bytes: &[u8]) -> bool {
    let chain = Chain::parse(bytes);
    if let Ok(chain) = &chain {
        assert!(!chain.0.is_empty());
        for (link, _) in &chain.0 {
            match link {
                Link::File(path) => assert!(!path.contains(|c: char| c.is_control() || c == ':'), "{path:?}"),
                Link::BootCode { len } => assert!((1..=440).contains(len)),
                Link::CoreImage { len } => assert!(*len > 0),
            }
        }
        assert_eq!(Chain::parse(chain.render().as_bytes()).as_ref(), Ok(chain));
    }
    let Ok(sums) = Sums::parse(bytes) else { return false };
    for name in sums.0.keys() {
        assert!(super::is_plain(name), "{name:?}");
    }
    assert_eq!(Sums::parse(sums.render().as_bytes()), Ok(sums));
    true
}

/// `manifest.json`.
pub fn manifest(bytes: &[u8]) -> bool {
    let Ok(manifest) = Manifest::parse(bytes) else { return false };
    assert_eq!(manifest.format, Manifest::FORMAT);
    assert_eq!(Manifest::parse(manifest.render().as_bytes()), Ok(manifest.clone()));
    let mut again = manifest.clone();
    again.files.reverse();
    let names = |m: &Manifest| m.files.iter().map(|f| f.name.clone()).collect::<std::collections::BTreeSet<_>>().len();
    if names(&manifest) == manifest.files.len() {
        assert_eq!(manifest.payload_digest(), again.payload_digest(), "the order of files is no content");
    }
    true
}

/// GRUB's environment block, boot.env, a slot's marker.
pub fn bootenv(bytes: &[u8]) -> bool {
    let block = EnvBlock::parse(bytes);
    if let Some(block) = &block {
        assert_eq!(EnvBlock::parse(block.render().as_bytes()).as_ref(), Some(block));
        if let Some(sector) = block.render_sector() {
            assert_eq!(sector.len(), 512);
            assert_eq!(EnvBlock::parse(sector.as_bytes()).as_ref(), Some(block));
        }
    }
    let env = BootEnv::parse(bytes);
    assert!(env.is_none() || block.is_some());
    if let Some(env) = env {
        changes(&env);
    }
    if let Some(marker) = Marker::parse(bytes) {
        let text = marker.render();
        assert_eq!(text.len(), 512);
        assert_eq!(Marker::parse(text.as_bytes()), Some(marker));
    }
    block.is_some()
}

/// Every state that can be read can be written, and so can every state that a verb makes of it: in one sector, with room
/// for what GRUB saves, and read as what it was.
fn changes(env: &BootEnv) {
    let now = u64::MAX;
    let payload = Some(Sha256([7; 32]));
    let mut all = vec![env.clone(), env.wiped(), env.disarmed()];
    for slot in Slot::BOTH {
        all.extend([
            env.deactivated(slot, now),
            env.staged(slot, now),
            env.armed(slot, now),
            env.confirmed(slot, &[Sha256([7; 32])], now),
            env.given_up(slot, payload, now),
            env.rolled_back(slot, payload),
        ]);
    }
    for next in &all {
        let text = next.render();
        assert_eq!(text.len(), 512, "{next:?}");
        assert!(text.ends_with("##"), "GRUB needs room to save: {next:?}");
        assert_eq!(BootEnv::parse(text.as_bytes()).as_ref(), Some(next));
        let copies = [Some(env.clone()), Some(next.clone())];
        assert!(next.seq >= env.seq && BootEnv::pick(&copies).is_some_and(|e| e == env || e == next));
    }
}

/// Names of images. What is accepted goes into addresses of a registry.
pub fn image_ref(bytes: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(bytes) else { return false };
    let Ok(image) = text.parse::<ImageRef>() else { return false };
    assert_eq!(image.to_string().parse(), Ok(image.clone()));
    let (name, port) = match image.host.rsplit_once(':') {
        // The last colon of an address in brackets is inside.
        Some((_, rest)) if rest.ends_with(']') => (image.host.as_str(), None),
        Some((name, port)) => (name, Some(port)),
        None => (image.host.as_str(), None),
    };
    let address = name.strip_prefix('[').and_then(|n| n.strip_suffix(']'));
    match address {
        Some(address) => assert!(address.parse::<std::net::Ipv6Addr>().is_ok(), "{image}"),
        None => {
            let dns = |c: char| c.is_ascii_alphanumeric() || c == '-';
            assert!(name.split('.').all(|label| !label.is_empty() && label.chars().all(dns)), "{image}");
        }
    }
    if let Some(port) = port {
        assert!(!port.is_empty() && port.bytes().all(|b| b.is_ascii_digit()), "{image}");
        assert!(port.parse::<u16>().is_ok() && !port.starts_with('0'), "{image}");
    }
    let word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "._-".contains(c);
    assert!(image.repository.split('/').all(|part| super::is_plain(part) && part.chars().all(word)), "{image}");
    assert!(image.tag.as_deref().is_none_or(is_tag) && (image.tag.is_some() || image.digest.is_some()));
    assert_eq!(image.wanted().starts_with("sha256:"), image.digest.is_some());
    true
}

/// The command line of the running kernel: whatever stands in front, what the boot rule adds at the end counts.
pub fn running(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    let disk = Uuid::from_u128(0x5119_7a11);
    if let Running::This { slot, trial } = Running::from_cmdline(&text, disk) {
        let word = format!("slipway.slot={slot}");
        assert!(text.contains(&word) && text.contains(&format!("slipway.try={}", u8::from(trial))), "{text:?}");
        assert!(!matches!(Running::from_cmdline(&text, Uuid::from_u128(1)), Running::This { .. }));
    }
    for slot in Slot::BOTH {
        for trial in [false, true] {
            let line = format!("{text} slipway.slot={slot} slipway.disk={disk} slipway.try={}\n", u8::from(trial));
            assert_eq!(Running::from_cmdline(&line, disk), Running::This { slot, trial });
        }
    }
    Running::from_cmdline(&text, disk) != Running::Unknown
}

/// The history: records, one for each line of the input. A line without a sum gets the right one.
pub fn history(bytes: &[u8]) -> bool {
    let mut file = vec![b' '; RECORDS as usize * RECORD_BYTES];
    for (record, line) in file.chunks_mut(RECORD_BYTES).zip(bytes.split(|byte| *byte == b'\n')) {
        let sum = Sha256::of(line).to_string();
        let sum = if line.starts_with(b"{") { format!("{} ", &sum[..SUM_DIGITS]) } else { String::new() };
        record.iter_mut().zip(sum.as_bytes().iter().chain(line)).for_each(|(to, from)| *to = *from);
    }
    let history = History::decode(1 << 20, &file).expect("a file of this size");
    for entry in history.entries() {
        let record = entry.render();
        let again = Entry::parse(record.as_bytes()).expect("a record that was written is read");
        assert_eq!(again.render(), record, "{entry:?}");
        let (at, there) = history.place(entry.n);
        assert!((1 << 20..(1 << 20) + file.len() as u64).contains(&at) && there.is_some(), "{entry:?}");
        let _ = history.took_effect(entry, None);
    }
    assert!(history.lost(None) <= RECORDS && history.next(None).is_none_or(|n| n > 0));
    !history.entries().is_empty()
}

/// Digits of the sum before a record.
const SUM_DIGITS: usize = 16;
