//! The kernel command line, followed all the way: assembled, quoted, through slot.cfg, GRUB's parser and its `linux`
//! command, and taken apart by the kernel's own rule, written down here a second time.

use slipway_core::{
    boot::env_block::EnvBlock,
    kernel::{
        arch::Arch,
        cmdline::{Cmdline, MAX_BYTES, assemble},
        platform::Platform,
    },
    payload::manifest::{GrubLoads, SlotCfg},
};
use uuid::Uuid;

/// Longest text that the boot rule and GRUB add, bytes: an `ADDED_BYTES` of our own.
const ADDED: &str = "BOOT_IMAGE=(hd127,gpt3)/vmlinuz panic=10 slipway.slot=A \
                     slipway.disk=00000000-0000-0000-0000-000000000000 slipway.try=1";

/// The input: a byte for platform and architecture, then texts divided by zero bytes: `--config`, the payload's own
/// arguments, and each `--extra-kernel-arg`.
pub fn cmdline(mut bytes: &[u8]) -> bool {
    let choice = usize::from(super::take(&mut bytes));
    let arch = if choice & 0x80 == 0 { Arch::Amd64 } else { Arch::Arm64 };
    let names: Vec<_> = Platform::names().collect();
    let Some(platform) = Platform::by_name(names[choice % names.len()]) else { panic!("a platform that is none") };
    let mut texts = bytes.split(|b| *b == 0).map(|t| String::from_utf8_lossy(t).into_owned());
    let (config, payload) = (texts.next().unwrap_or_default(), texts.next());
    let extra: Vec<_> = texts.collect();
    let platform = (choice & 0x40 == 0).then_some(platform);
    let cmdline = assemble(platform, &config, arch, payload.as_deref(), &extra);
    for line in [&cmdline, &Cmdline::parse(&config), &Cmdline::parse(payload.as_deref().unwrap_or_default())] {
        reaches_the_kernel(line);
    }
    for word in extra.iter().filter(|w| w.starts_with(|c: char| c.is_ascii_lowercase())) {
        removes(&cmdline, word.split(['=', ' ', '"']).next().unwrap_or_default());
    }
    cmdline.quote_for_grub().is_ok()
}

/// `-key` as the last argument leaves no word of that key.
fn removes(cmdline: &Cmdline, key: &str) {
    let mut without = cmdline.clone();
    without.apply_extra([format!("-{key}").as_str()]);
    assert!(without.words().all(|w| w.split('=').next() != Some(key)), "{key:?} is in {without}");
    let mut twice = without.clone();
    twice.apply_extra([format!("-{key}").as_str()]);
    assert_eq!(twice, without);
}

/// A line that is not refused is what the kernel sees, word by word.
fn reaches_the_kernel(cmdline: &Cmdline) {
    let Ok(args) = cmdline.quote_for_grub() else { return };
    let shown = cmdline.to_string();
    assert_eq!(&Cmdline::parse(&shown), cmdline, "what is kept in the manifest makes the same line again");
    let loads = GrubLoads::Files { kernel: "vmlinuz".into(), initrd: "initramfs.xz".into() };
    let cfg = SlotCfg { loads, args: args.clone(), disk_guid: Uuid::nil() };
    let block = EnvBlock::parse(cfg.render().as_bytes());
    assert_eq!(block.as_ref().and_then(|b| b.get("args")), Some(args.as_str()), "load_env gives the same");
    let line = grub_line(&grub_words(&args));
    assert!(line.len() + 1 + ADDED.len() < MAX_BYTES, "{} bytes and a zero do not fit", line.len());
    assert_eq!(kernel_words(line.as_bytes()), kernel_words(shown.as_bytes()), "GRUB hands over {line:?}");
    assert_eq!(kernel_words(line.as_bytes()).len(), cmdline.words().count(), "{line:?}");
}

/// GRUB's script parser on text that is nothing but words in single quotes: there it knows no other special character.
fn grub_words(args: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut rest = args;
    while !rest.is_empty() {
        let inner = rest.strip_prefix('\'').unwrap_or_else(|| panic!("not quoted: {rest:?}"));
        let (word, after) = inner.split_once('\'').unwrap_or_else(|| panic!("not closed: {rest:?}"));
        assert!(!word.contains(['\n', '\r', '\0']), "{word:?}");
        words.push(word.to_owned());
        rest = after.strip_prefix(' ').unwrap_or(after);
        assert!(after.is_empty() || (rest.len() < after.len() && !rest.is_empty()), "{args:?}");
    }
    words
}

/// `grub_create_loader_cmdline` (grub-core/lib/cmdline.c).
fn grub_line(words: &[String]) -> String {
    let word = |word: &String| {
        let escaped: String =
            word.chars().flat_map(|c| ['\\', c].into_iter().skip(usize::from(!"\\'\"".contains(c)))).collect();
        if word.contains(' ') { format!("\"{escaped}\"") } else { escaped }
    };
    words.iter().map(word).collect::<Vec<_>>().join(" ")
}

/// Name and value of a parameter.
type Param = (Vec<u8>, Option<Vec<u8>>);

/// `isspace` of the kernel (lib/ctype.c): its table is that of Latin-1.
fn is_space(byte: u8) -> bool {
    matches!(byte, b'\t'..=b'\r' | b' ' | 0xa0)
}

/// `parse_args` and `next_arg` (lib/cmdline.c).
fn kernel_words(line: &[u8]) -> Vec<Param> {
    let mut params = Vec::new();
    let mut rest = line.trim_ascii_start();
    while !rest.is_empty() {
        let quoted = rest[0] == b'"';
        let args = &rest[usize::from(quoted)..];
        let (mut in_quote, mut equals, mut end) = (quoted, 0, args.len());
        for (i, byte) in args.iter().enumerate() {
            if is_space(*byte) && !in_quote {
                end = i;
                break;
            }
            if equals == 0 && *byte == b'=' {
                equals = i;
            }
            in_quote ^= *byte == b'"';
        }
        params.push(param(&args[..end], equals, quoted));
        rest = &args[end..];
        while rest.first().is_some_and(|b| is_space(*b)) {
            rest = &rest[1..];
        }
    }
    params
}

fn param(word: &[u8], equals: usize, quoted: bool) -> Param {
    let closed = |text: &[u8], strip: bool| text.strip_suffix(b"\"").filter(|_| strip).unwrap_or(text).to_vec();
    if equals == 0 {
        return (closed(word, quoted), None);
    }
    let value = &word[equals + 1..];
    let value = match value.strip_prefix(b"\"") {
        Some(inner) => closed(inner, true),
        None => closed(value, quoted),
    };
    (word[..equals].to_vec(), Some(value))
}
