//! The command line in a unified kernel image: whether the kernel reads these words out of it.

use crate::prelude::*;

use super::cmdline::{Cmdline, MAX_BYTES, QuoteError, check_characters, split_words};

/// Refuses words that the kernel would take for others, or would not see: its EFI stub drops what is too long from the
/// end, and a digest that is to be verified may stand there (`efi_convert_cmdline`, drivers/firmware/efi/libstub).
pub fn check(cmdline: &Cmdline) -> Result<(), QuoteError> {
    let line = cmdline.to_string();
    check_characters(&line)?;
    // An open quote takes the words behind it along. The kernel takes the byte 0xa0 for a space (lib/ctype.c).
    let is_open = |word: &str| !word.matches('"').count().is_multiple_of(2);
    let is_other = |word: &str| split_words(word) != [word] || is_open(word) || word.bytes().any(|byte| byte == 0xa0);
    match cmdline.words().find(|word| is_other(word)) {
        Some(word) => Err(QuoteError::Otherwise(word)),
        None if line.len() >= MAX_BYTES => Err(QuoteError::TooLong(line.len(), MAX_BYTES - 1)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::{arch::Arch, cmdline::assemble};

    #[test]
    fn words_that_arrive() {
        let line = |text: &str| check(&Cmdline::parse(text));
        for good in ["", "a=1 quiet x=$y;{} b='c' d=\\n", "dyndbg=\"file x +p\" \"a b\"=c", "a=\u{e4}"] {
            assert_eq!(line(good), Ok(()), "{good}");
        }
        for (text, word) in [("quiet a=\"b c", "a=\"b c"), ("a=\u{e0} b", "a=\u{e0}")] {
            assert_eq!(line(text), Err(QuoteError::Otherwise(word.to_owned())));
        }
        assert!(matches!(line("a=\0"), Err(QuoteError::Control(_))));
        let of_bytes = |bytes: usize| format!("a={}", "1".repeat(bytes - 2));
        assert_eq!(line(&of_bytes(2047)), Ok(()));
        assert_eq!(line(&of_bytes(2048)), Err(QuoteError::TooLong(2048, 2047)));
    }

    #[test]
    fn an_argument_that_takes_others_along() {
        let made = |config, extra: &[&str]| {
            let extra: Vec<_> = extra.iter().map(|arg| (*arg).to_owned()).collect();
            check(&assemble(None, config, Arch::Amd64, None, &extra))
        };
        assert_eq!(made("", &["a=\"b", "rootsum=1"]), Err(QuoteError::Otherwise("a=\"b".to_owned())));
        assert_eq!(made("a b", &[]), Err(QuoteError::Otherwise("talos.config=a b".to_owned())));
    }
}
