//! Boot configuration of a slot: `slot.cfg`, an environment block that the installer writes and a boot loader reads.

use crate::prelude::*;

use crate::{env_block::EnvBlock, slot::Slot};

/// As a path in the slot.
pub const SLOT_CFG: &str = "slot.cfg";
/// Digests of the files that a boot loader loads, as a path in the slot.
pub const BOOT_SHA256: &str = "boot.sha256";
/// A unified kernel image, as a path in the slot. Where there is one, it boots instead of kernel and initramfs.
pub const UKI: &str = "uki.efi";

/// `slot.cfg`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotCfg {
    /// File name of the kernel in the slot.
    pub kernel: String,
    /// File name of the initramfs in the slot.
    pub initrd: String,
    /// The kernel arguments, each quoted with `'` as a word of GRUB's script language.
    pub args: String,
    /// GUID of the disk, in text form.
    pub guid: String,
}

impl SlotCfg {
    /// Parse the file. `None` if a key is missing or invalid.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let block = EnvBlock::parse(bytes)?;
        // A slot has no directories.
        let file = |key| Some(block.get(key)?.strip_prefix('/').filter(|name| is_plain(name))?.to_owned());
        let guid = block.get("guid")?;
        let is_guid = guid.len() == 36 && guid.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-');
        let args = block.get("args")?.to_owned();
        is_guid.then_some(SlotCfg { kernel: file("kernel")?, initrd: file("initrd")?, args, guid: guid.to_owned() })
    }

    /// The kernel command line, as GRUB makes it of the same file, without the `BOOT_IMAGE` that it puts in front. `None` if
    /// the arguments are not quoted as the installer quotes them.
    pub fn command_line(&self, slot: Slot, trial: bool) -> Option<String> {
        // A trial that panics must reboot by itself. In front of the slot's own arguments, because the last `panic=` counts.
        let mut words: Vec<String> = trial.then(|| "panic=10".to_owned()).into_iter().collect();
        let mut rest = self.args.as_str();
        while !rest.is_empty() {
            let (word, after) = rest.strip_prefix('\'')?.split_once('\'')?;
            // To the kernel, quotes around a word mean the same as quotes around its value.
            words.push(if word.contains(' ') { format!("\"{word}\"") } else { word.to_owned() });
            rest = match after.strip_prefix(' ') {
                Some(next) if !next.is_empty() => next,
                None if after.is_empty() => after,
                _ => return None,
            };
        }
        words.extend([
            format!("slipway.slot={slot}"),
            format!("slipway.disk={}", self.guid),
            format!("slipway.try={}", u8::from(trial)),
        ]);
        Some(words.join(" "))
    }
}

fn is_plain(name: &str) -> bool {
    !name.is_empty() && !name.contains(['/', '\\', ':']) && !name.starts_with('.')
}

#[cfg(test)]
mod tests {
    use super::*;

    const GUID: &str = "03870bed-8f5d-4452-ae4c-9a5d59f0350d";

    fn with(args: &str) -> SlotCfg {
        let pairs = [("kernel", "/vmlinuz"), ("initrd", "/initramfs.xz"), ("args", args), ("guid", GUID)];
        SlotCfg::parse(EnvBlock::new(pairs).render().as_bytes()).unwrap()
    }

    #[test]
    fn command_lines() {
        let ends = format!("slipway.slot=B slipway.disk={GUID} slipway.try=");
        let line = |args, trial| with(args).command_line(Slot::B, trial);
        assert_eq!(line("'a=1' 'quiet'", false), Some(format!("a=1 quiet {ends}0")));
        assert_eq!(line("'panic=0' 'x=$y;{}'", true), Some(format!("panic=10 panic=0 x=$y;{{}} {ends}1")));
        assert_eq!(line("'dyndbg=file x +p'", false), Some(format!("\"dyndbg=file x +p\" {ends}0")));
        assert_eq!(line("", false), Some(format!("{ends}0")));
        for odd in ["a=1", "'a", "'a''b'", "'a'  'b'", "'a' ", "'a' b", " 'a'", "'"] {
            assert_eq!(line(odd, false), None, "{odd:?}");
        }
    }

    #[test]
    fn what_no_slot_has_is_refused() {
        let text = EnvBlock::new([("kernel", "/vmlinuz"), ("initrd", "/i"), ("args", ""), ("guid", GUID)]).render();
        assert!(SlotCfg::parse(text.as_bytes()).is_some());
        for (from, to) in [
            ("/vmlinuz", "vmlinuz"),
            ("/vmlinuz", "/"),
            ("/vmlinuz", "/../vmlinuz"),
            ("/vmlinuz", "/a\\\\b"),
            ("initrd=", "initr="),
            ("args=", "arg="),
            (GUID, "03870bed"),
            (GUID, "03870bed-8f5d-4452-ae4c-9a5d59f0 init=x"),
        ] {
            assert_eq!(SlotCfg::parse(text.replace(from, to).as_bytes()), None, "{from} {to}");
        }
    }
}
