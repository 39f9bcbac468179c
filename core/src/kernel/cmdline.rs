//! The kernel command line, and its quoting for GRUB and iPXE.
//!
//! A command line is an ordered list of words. The order counts between keys, too: `hugepages=2` is of the `hugepagesz=`
//! before it. `--extra-kernel-arg` works as in the Talos installer: `-key` removes a key, `-key=value` removes one value,
//! `console` and `talos.platform` replace all earlier values, everything else is appended.

use crate::prelude::*;

use core::fmt;

pub use super::control_characters::{ControlCharacter, bare, check_characters};
use super::platform::Platform;
use crate::kernel::arch::Arch;

/// Most bytes of a command line on x86, with the zero at its end (`COMMAND_LINE_SIZE`, arch/x86/include/asm/setup.h).
pub const MAX_BYTES: usize = 2048;

// Talos' words for a payload without a `cmdline` file, where a platform was asked for.
const DEFAULTS: [&str; 7] = [
    "slab_nomerge",
    "pti=on",
    "consoleblank=0",
    "printk.devkmsg=on",
    "selinux=1",
    "module.sig_enforce=1",
    "proc_mem.force_override=never",
];

const REPLACED_BY_EXTRA: [&str; 2] = ["console", "talos.platform"];

/// What stands behind this word is for init (`parse_args`, kernel/params.c).
const FOR_INIT: &str = "--";

/// A word. `key=` and `key` are different ones: `console=` is no console at all, and `console` is unknown to the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Word {
    key: String,
    value: Option<String>,
}

impl Word {
    fn new(key: &str, value: &str) -> Self {
        Word { key: key.to_owned(), value: Some(value.to_owned()) }
    }
}

impl From<&str> for Word {
    fn from(word: &str) -> Self {
        let bare = || Word { key: word.to_owned(), value: None };
        word.split_once('=').map_or_else(bare, |(key, value)| Word::new(key, value))
    }
}

impl fmt::Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.value {
            Some(value) => write!(f, "{}={value}", self.key),
            None => f.write_str(&self.key),
        }
    }
}

/// A kernel command line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cmdline(Vec<Word>);

impl Cmdline {
    /// Parse a command line.
    pub fn parse(text: &str) -> Self {
        Cmdline(split_words(text).iter().map(|word| Word::from(word.as_str())).collect())
    }

    /// Append `key=value` or `key` to the words for the kernel; a key keeps the values it has.
    pub fn append(&mut self, word: &str) {
        let end = self.0.iter().position(|word| word.key == FOR_INIT).unwrap_or(self.0.len());
        self.0.insert(end, word.into());
    }

    /// Replace all words of `key`, which keeps its first position.
    fn replace(&mut self, key: &str, words: Vec<Word>) {
        let at = self.0.iter().position(|word| word.key == key).unwrap_or(self.0.len());
        self.0.retain(|word| word.key != key);
        self.0.splice(at..at, words);
    }

    /// Put `key=value` in front, unless the key has a value.
    pub fn begin_with(&mut self, key: &str, value: &str) {
        if !self.0.iter().any(|word| word.key == key) {
            self.0.insert(0, Word::new(key, value));
        }
    }

    fn remove(&mut self, word: &str) {
        let removed = Word::from(word);
        self.0.retain(|word| word.key != removed.key || (removed.value.is_some() && word.value != removed.value));
    }

    /// Apply the values of `--extra-kernel-arg` in order.
    pub fn apply_extra<'w>(&mut self, words: impl IntoIterator<Item = &'w str>) {
        let words: Vec<&str> = words.into_iter().collect();
        let (words, for_init) = words.split_at(words.iter().position(|word| *word == FOR_INIT).unwrap_or(words.len()));
        // Removed once and up front, so that several extra consoles are all kept.
        for key in REPLACED_BY_EXTRA {
            if words.iter().any(|word| Word::from(*word).key == key) {
                self.0.retain(|word| word.key != key);
            }
        }
        for word in words {
            match word.strip_prefix('-') {
                // A lone `-` is an ordinary word.
                Some(rest) if !rest.is_empty() => self.remove(rest),
                _ => self.append(word),
            }
        }
        // As they are: init may know words that begin with `-`.
        let is_there = self.0.iter().any(|word| word.key == FOR_INIT);
        self.0.extend(for_init.iter().skip(usize::from(is_there)).map(|word| Word::from(*word)));
    }

    /// The words, quoted for GRUB's `linux` command. Words that GRUB would change are refused.
    pub fn quote_for_grub(&self) -> Result<String, QuoteError> {
        // GRUB's `linux` builds the command line again. It puts a word with a space between double quotes, and a
        // backslash in front of quotes and backslashes, which the kernel takes literally. So `key="a b"` goes to GRUB
        // without its quotes and arrives as `"key=a b"`, which means the same to the kernel.
        //
        // Single quotes protect everything else from GRUB's parser. Backslashes and newlines are refused, so the
        // environment block needs no escapes.
        let mut quoted = Vec::new();
        for word in self.words() {
            let bare = unquote(&word).ok_or_else(|| QuoteError::Character(word.clone()))?;
            quoted.push(format!("'{bare}'"));
        }
        let line = self.to_string();
        if line.len() + ADDED_BYTES > MAX_BYTES {
            return Err(QuoteError::TooLong(line.len(), MAX_BYTES - ADDED_BYTES));
        }
        Ok(quoted.join(" "))
    }

    /// The command line for an iPXE script. Words that iPXE would change are refused.
    pub fn for_ipxe(&self) -> Result<String, QuoteError> {
        // A live medium takes the same command lines whether it starts from GRUB or over the network.
        self.quote_for_grub()?;
        // iPXE ignores quotes: it splits at white space and joins the words with single spaces. It expands `${...}`
        // anywhere, takes the words `||`, `&&` and `;` as its own, and a word that begins with `#` ends the line.
        // (<https://ipxe.org/scripting>; `core/exec.c`)
        let is_own = |word: &str| word.starts_with('#') || ["||", "&&", ";"].contains(&word);
        let own = |word: &str| word.contains("${") || word.contains("  ") || is_own(word);
        match self.words().find(|word| word.split(' ').any(own) || own(word)) {
            Some(word) => Err(QuoteError::Ipxe(word)),
            None => Ok(self.to_string()),
        }
    }

    /// The words, each `key=value` or `key`.
    pub fn words(&self) -> impl Iterator<Item = String> {
        self.0.iter().map(Word::to_string)
    }
}

impl fmt::Display for Cmdline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words().collect::<Vec<_>>().join(" "))
    }
}

// Room for the words of GRUB and the boot rule: `BOOT_IMAGE`, `panic=10`, `slipway.slot`, `slipway.disk` and
// `slipway.try`, 118 bytes for a trial on hd0. Beyond the kernel's limit GRUB silently drops words from the end.
const ADDED_BYTES: usize = 128;
/// Why a command line would not reach the kernel unchanged.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuoteError {
    /// GRUB would change this word.
    #[error(
        "{0:?}: white space outside double quotes, quotes inside a word, backslashes, control characters, byte order marks and \
         letters with a byte 0xa0 in UTF-8 (as in \"\u{e0}\") do not reach the kernel through GRUB unchanged"
    )]
    Character(String),
    /// The kernel takes it for other words.
    #[error(
        "{0:?}: the kernel reads other words than these where a double quote is left open, at white space outside double \
         quotes, and at letters with a byte 0xa0 in UTF-8 (as in \"\u{e0}\")"
    )]
    Otherwise(String),
    /// iPXE would change this word.
    #[error(
        "{0:?}: `${{`, two spaces in a row, the words `||`, `&&` and `;`, and words that begin with `#` do not reach the kernel \
         through iPXE unchanged"
    )]
    Ipxe(String),
    /// The kernel would not see it as it is.
    #[error(transparent)]
    Control(#[from] ControlCharacter),
    /// The command line is longer than the most bytes that fit.
    #[error("{0} bytes, at most {1} reach the kernel")]
    TooLong(usize, usize),
}

// The word without double quotes around its value, or `None` if GRUB would change it.
fn unquote(word: &str) -> Option<String> {
    let (key, value) = match word.split_once('=') {
        Some((key, value)) => (format!("{key}="), value),
        None => (String::new(), word),
    };
    let inner = value.strip_prefix('"').and_then(|v| v.strip_suffix('"')).unwrap_or(value);
    let bare = format!("{key}{inner}");
    let bad = |c: char| matches!(c, '"' | '\'' | '\\' | '\u{feff}') || c.is_control();
    // The kernel takes the byte 0xa0 for a space (lib/ctype.c), and a word without a name is no parameter.
    let nameless = bare.is_empty() || bare.starts_with('=');
    let changed = bare.contains(bad) || bare.bytes().any(|b| b == 0xa0) || nameless;
    // It must also be read back as one word.
    (!changed && split_words(word) == [word]).then_some(bare)
}

/// Words as the kernel splits them: at white space outside double quotes (`next_arg`, lib/cmdline.c).
pub fn split_words(text: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quoted = false;
    for c in text.chars() {
        quoted ^= c == '"';
        match words.last_mut() {
            Some(word) if quoted || !c.is_ascii_whitespace() => word.push(c),
            _ => words.push(String::new()),
        }
    }
    words.retain(|w| !w.is_empty());
    words
}

/// Keys and values as the kernel sees them: without quotes around a value or a whole word (`next_arg`, lib/cmdline.c).
pub fn arguments(text: &str) -> Vec<(String, Option<String>)> {
    let bare = |text: &str| {
        let inner = text.strip_prefix('"').map_or(text, |rest| rest.strip_suffix('"').unwrap_or(rest));
        inner.to_owned()
    };
    let words = split_words(text).into_iter().map(|word| bare(&word));
    words
        .map(|word| word.split_once('=').map_or((word.clone(), None), |(k, v)| (k.to_owned(), Some(bare(v)))))
        .collect()
}

/// The command line of a slot: `platform` with its arguments, `config`, the payload's `cmdline`, and `extra` arguments. A payload
/// without a `cmdline` gets Talos' defaults where a platform was asked for, and else none.
pub fn assemble(
    platform: Option<Platform>,
    config: &str,
    arch: Arch,
    payload: Option<&str>,
    extra: &[String],
) -> Cmdline {
    let mut cmdline = Cmdline::default();
    cmdline.begin(platform, config, arch);
    cmdline.payload(platform, payload);
    cmdline.extra(extra);
    cmdline
}

/// The command line of a live medium: that of a slot, with the medium's `own` word before the payload's, and with both
/// screen and serial port as consoles.
pub fn assemble_live(
    platform: Option<Platform>,
    config: &str,
    arch: Arch,
    own: Option<&str>,
    payload: Option<&str>,
    extra: &[String],
) -> Cmdline {
    let mut cmdline = Cmdline::default();
    cmdline.begin(platform, config, arch);
    own.into_iter().for_each(|word| cmdline.append(word));
    cmdline.payload(platform, payload);
    cmdline.both_consoles(arch);
    cmdline.extra(extra);
    cmdline
}

impl Cmdline {
    fn begin(&mut self, platform: Option<Platform>, config: &str, arch: Arch) {
        self.0.extend(platform.map(|platform| Word::new("talos.platform", platform.name())));
        self.0.extend((!config.is_empty()).then(|| Word::new("talos.config", config)));
        // A platform may replace `talos.config`, as vmware does.
        let args = Cmdline::parse(platform.map_or("", |platform| platform.args(arch)));
        for Word { key, .. } in &args.0 {
            self.replace(key, args.0.iter().filter(|word| word.key == *key).cloned().collect());
        }
    }

    fn payload(&mut self, platform: Option<Platform>, own: Option<&str>) {
        let defaults = if platform.is_some() { DEFAULTS.join(" ") } else { String::new() };
        let words = own.map_or(defaults, str::to_owned);
        self.0.extend(Cmdline::parse(&words).0);
    }

    fn extra(&mut self, extra: &[String]) {
        // One flag may hold several words, as in Talos.
        let extra: Vec<String> = extra.iter().flat_map(|arg| split_words(arg)).collect();
        self.apply_extra(extra.iter().map(String::as_str));
    }

    // Adds the screen and the first serial port if missing. They go to the front, because the last console becomes
    // /dev/console (Documentation/admin-guide/serial-console.rst).
    fn both_consoles(&mut self, arch: Arch) {
        for device in ["tty0", arch.serial_console()] {
            let name = |value: &str| value.split(',').next().map(str::to_owned);
            let is_it = |word: &Word| word.value.as_deref().is_some_and(|value| name(value) == name(device));
            let word = Word::new("console", device);
            match self.0.iter().position(|word| word.key == "console") {
                Some(_) if self.0.iter().any(|word| word.key == "console" && is_it(word)) => {}
                Some(first) => self.0.insert(first, word),
                None => self.append(&word.to_string()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_extra(extra: &[&str]) -> String {
        let mut c = Cmdline::parse("console=tty0 console=ttyS0 quiet a=1 a=2");
        c.apply_extra(extra.iter().copied());
        c.to_string()
    }

    #[test]
    fn words_stay_as_they_are() {
        let pages = "quiet hugepagesz=1G hugepages=16 hugepagesz=2M hugepages=2048 console= resume= -- single";
        assert_eq!(Cmdline::parse(pages).to_string(), pages);
        let slot = assemble(None, "", Arch::Amd64, Some(pages), &["a=1".to_owned(), "-console=".to_owned()]);
        let expected = pages.replace("console= resume= --", "resume= a=1 --");
        assert_eq!(slot.to_string(), expected, "what is added is for the kernel, and not for init");
        assert_eq!(Cmdline::parse("a=1 quiet  a=2").to_string(), "a=1 quiet a=2");
        assert_eq!(Cmdline::parse("x=\"a b\" y").words().collect::<Vec<_>>(), ["x=\"a b\"", "y"]);
    }

    #[test]
    fn extra_arguments_override_and_negate() {
        assert_eq!(with_extra(&["b"]), "console=tty0 console=ttyS0 quiet a=1 a=2 b");
        assert_eq!(with_extra(&["a=3"]), "console=tty0 console=ttyS0 quiet a=1 a=2 a=3");
        assert_eq!(with_extra(&["console=ttyS1"]), "quiet a=1 a=2 console=ttyS1");
        assert_eq!(with_extra(&["console=ttyS1", "console=tty2"]), "quiet a=1 a=2 console=ttyS1 console=tty2");
        assert_eq!(with_extra(&["-a"]), "console=tty0 console=ttyS0 quiet");
        assert_eq!(with_extra(&["-a=1"]), "console=tty0 console=ttyS0 quiet a=2");
        assert_eq!(with_extra(&["-quiet", "-nosuch", "-a=9"]), "console=tty0 console=ttyS0 a=1 a=2");
        assert_eq!(
            with_extra(&["b", "--", "-x", "console=c"]),
            "console=tty0 console=ttyS0 quiet a=1 a=2 b -- -x console=c"
        );
        let mut for_init = Cmdline::parse("quiet -- x");
        for_init.apply_extra(["a", "--", "y"]);
        assert_eq!(for_init.to_string(), "quiet a -- x y");
        assert_eq!(with_extra(&["-"]), "console=tty0 console=ttyS0 quiet a=1 a=2 -");
    }

    #[test]
    fn a_word_that_nobody_has_said() {
        let with_panic = |text| {
            let mut cmdline = Cmdline::parse(text);
            cmdline.begin_with("panic", "10");
            cmdline.to_string()
        };
        assert_eq!(with_panic("quiet oops=panic -- x"), "panic=10 quiet oops=panic -- x");
        assert_eq!(with_panic("quiet panic=0"), "quiet panic=0");
        assert_eq!(with_panic(""), "panic=10");
    }

    #[test]
    fn assembled_in_the_contracts_order() {
        let line = |platform: &str, config: &str, payload: Option<&str>, extra: &[&str]| {
            let extra: Vec<_> = extra.iter().map(|s| (*s).to_owned()).collect();
            assemble(Platform::settled(platform).unwrap(), config, Arch::Amd64, payload, &extra).to_string()
        };
        assert_eq!(
            line("metal", "none", None, &[]),
            "talos.platform=metal talos.config=none console=tty0 slab_nomerge pti=on consoleblank=0 \
             printk.devkmsg=on selinux=1 module.sig_enforce=1 proc_mem.force_override=never"
        );
        assert_eq!(line("", "", None, &[]), "", "Talos' words were not asked for");
        assert_eq!(line("", "url", Some("quiet"), &["a=1"]), "talos.config=url quiet a=1");
        assert_eq!(
            line("metal", "", Some("quiet console=ttyS0"), &["talos.platform=x", "-quiet"]),
            "console=tty0 console=ttyS0 talos.platform=x"
        );
        assert_eq!(
            line("upcloud", "", Some(""), &["quiet splash", "x=\"a b\""]),
            "talos.platform=upcloud net.ifnames=0 quiet splash x=\"a b\""
        );
        assert_eq!(
            line("vmware", "none", Some("q"), &[]),
            "talos.platform=vmware talos.config=guestinfo console=tty0 console=ttyS0 earlyprintk=ttyS0,115200 \
             net.ifnames=0 q"
        );
    }

    #[test]
    fn platforms_on_arm64() {
        let line = |platform: &str, arch, config: &str| {
            assemble(Platform::settled(platform).unwrap(), config, arch, Some(""), &[]).to_string()
        };
        let arm = |platform| line(platform, Arch::Arm64, "");
        assert_eq!(arm("metal"), "talos.platform=metal console=ttyAMA0 console=tty0");
        assert_eq!(arm(""), "");
        assert_eq!(arm("packet"), "talos.platform=equinixMetal console=ttyAMA0,115200");
        assert_eq!(
            line("vmware", Arch::Arm64, "none"),
            "talos.platform=vmware talos.config=guestinfo console=tty0 console=ttyAMA0 net.ifnames=0"
        );
        // The other platforms have the same arguments on both.
        let other = |name: &&str| !["metal", "equinixMetal", "vmware"].contains(name);
        for name in Platform::names().filter(other) {
            assert_eq!(arm(name), line(name, Arch::Amd64, ""), "{name}");
        }
    }

    #[test]
    fn a_live_medium_has_both_consoles() {
        let line = |platform: &str, own: Option<&str>, payload: Option<&str>, arch| {
            assemble_live(Platform::settled(platform).unwrap(), "", arch, own, payload, &[]).to_string()
        };
        let halt = Some("talos.halt_if_installed=1");
        assert_eq!(
            line("metal", halt, Some("console=ttyS0 quiet"), Arch::Amd64),
            "talos.platform=metal console=tty0 talos.halt_if_installed=1 console=ttyS0 quiet"
        );
        assert_eq!(
            line("metal", None, Some(""), Arch::Amd64),
            "talos.platform=metal console=ttyS0,115200 console=tty0"
        );
        assert_eq!(
            line("equinixMetal", None, Some(""), Arch::Amd64),
            "talos.platform=equinixMetal console=ttyS0,115200 console=tty0 console=ttyS1,115200n8"
        );
        assert_eq!(line("metal", None, Some(""), Arch::Arm64), "talos.platform=metal console=ttyAMA0 console=tty0");
        assert_eq!(
            line("upcloud", None, Some("q"), Arch::Arm64),
            "talos.platform=upcloud net.ifnames=0 q console=ttyAMA0,115200 console=tty0"
        );
        let extra = ["console=ttyS1".to_owned()];
        let replaced = assemble_live(Some(Platform::METAL), "", Arch::Amd64, None, Some(""), &extra);
        assert_eq!(replaced.to_string(), "talos.platform=metal console=ttyS1", "what is asked for stands alone");
    }

    #[test]
    fn words_for_ipxe() {
        let line = |text: &str| Cmdline::parse(text).for_ipxe();
        assert_eq!(line("a=1 quiet x=$y b=\"c d\"").unwrap(), "a=1 quiet x=$y b=\"c d\"");
        for bad in ["a=${net0/ip}", "||", "a &&", "; b", "a=b\"c\"", "a=\"b  c\"", "#b", "a #", "a=\"b #c\""] {
            assert!(matches!(line(bad), Err(QuoteError::Ipxe(_) | QuoteError::Character(_))), "{bad}");
        }
    }

    #[test]
    fn words_for_grub() {
        let quote = |text: &str| Cmdline::parse(text).quote_for_grub();
        assert_eq!(quote("a=1 quiet x=$y;{}").unwrap(), "'a=1' 'quiet' 'x=$y;{}'");
        assert_eq!(quote("dyndbg=\"file x +p\"").unwrap(), "'dyndbg=file x +p'");
        for bad in ["a=b\"c\"", "a=b'c", "a=\\n", "a=\"b", "=", "\"\"", "=\"a b\"", "a=\u{e0}"] {
            assert!(matches!(quote(bad), Err(QuoteError::Character(_))), "{bad}");
        }
        let spaced = assemble(None, "a b", Arch::Amd64, None, &[]).quote_for_grub();
        assert_eq!(spaced, Err(QuoteError::Character("talos.config=a b".to_owned())));
        assert!(matches!(quote(&"x=1234567 ".repeat(300)), Err(QuoteError::TooLong(..))));
    }

    #[test]
    fn arguments_lose_their_quotes() {
        let found = arguments("quiet a=1 b=\"x y\" \"c=> 1 TB\" d= e=f=g\n");
        let some = |value: &str| Some(value.to_owned());
        let expected = [
            ("quiet", None),
            ("a", some("1")),
            ("b", some("x y")),
            ("c", some("> 1 TB")),
            ("d", some("")),
            ("e", some("f=g")),
        ];
        assert_eq!(found, expected.map(|(key, value)| (key.to_owned(), value)));
    }
}
