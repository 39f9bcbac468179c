//! The environment variables through which machined passes values that no argument has.

use std::io::Read as _;

use base64::{
    Engine as _, alphabet,
    engine::{GeneralPurpose, GeneralPurposeConfig},
};

use slipway_core::disk::meta::parse_key;

const META: &str = "INSTALLER_META_BASE64";
// The payload's own kernel arguments are used alone. The name comes from the unified kernel image (UKI) they are in.
const UKI_CMDLINE: &str = "INSTALLER_GRUB_USE_UKI_CMDLINE";

// Guards against a gzip bomb. It is four times what META can hold.
const MAX_META_BYTES: u64 = 1 << 20;

/// As Go's `base64.StdEncoding`, which reads it in Talos' installer: it does not look at the bits behind the last byte.
const BASE64: GeneralPurpose =
    GeneralPurpose::new(&alphabet::STANDARD, GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true));

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum EnvironmentError {
    #[error("{META}: not base64: {0}")]
    Base64(String),
    #[error("{META}: not gzip data: {0}")]
    Gzip(String),
    #[error("{META}: more than {MAX_META_BYTES} bytes when unpacked")]
    TooLarge,
    #[error("{META}: {0:?}: write KEY=VALUE, and separate several by semicolons")]
    Pair(String),
    #[error("{META}: {0}")]
    Key(String),
    #[error("{UKI_CMDLINE}: {0:?} is neither true nor false")]
    NotBoolean(String),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Environment {
    pub meta: Vec<(u8, Vec<u8>)>,
    /// Use the payload's own kernel arguments alone.
    pub payload_only: bool,
}

impl Environment {
    /// `value` looks up a variable.
    pub fn read(value: impl Fn(&str) -> Option<Vec<u8>>) -> Result<Self, EnvironmentError> {
        let payload_only = value(UKI_CMDLINE).map(|v| boolean(&String::from_utf8_lossy(&v))).transpose()?;
        Ok(Environment {
            meta: value(META).map(|v| meta(&v)).transpose()?.unwrap_or_default(),
            payload_only: payload_only.unwrap_or(false),
        })
    }
}

// Base64 of `0x0a=value;0x0b=value`, possibly gzipped. There is no escaping, so a value cannot contain a semicolon.
fn meta(value: &[u8]) -> Result<Vec<(u8, Vec<u8>)>, EnvironmentError> {
    // Line ends do not count, wherever they are: base64(1) makes lines of 76 characters.
    let value: Vec<u8> = value.iter().copied().filter(|byte| !matches!(byte, b'\r' | b'\n')).collect();
    let decoded = BASE64.decode(value).map_err(|e| EnvironmentError::Base64(e.to_string()))?;
    let text = if decoded.starts_with(&[0x1f, 0x8b]) && decoded.len() >= 10 { gunzip(&decoded)? } else { decoded };
    if text.is_empty() {
        return Ok(vec![]);
    }
    text.split(|byte| *byte == b';').map(pair).collect()
}

fn gunzip(bytes: &[u8]) -> Result<Vec<u8>, EnvironmentError> {
    let mut text = Vec::new();
    let mut reader = flate2::read::MultiGzDecoder::new(bytes).take(MAX_META_BYTES + 1);
    reader.read_to_end(&mut text).map_err(|e| EnvironmentError::Gzip(e.to_string()))?;
    if text.len() as u64 > MAX_META_BYTES { Err(EnvironmentError::TooLarge) } else { Ok(text) }
}

fn pair(pair: &[u8]) -> Result<(u8, Vec<u8>), EnvironmentError> {
    let lossy = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let at = pair.iter().position(|byte| *byte == b'=').ok_or_else(|| EnvironmentError::Pair(lossy(pair)))?;
    let key = parse_key(&lossy(&pair[..at])).map_err(EnvironmentError::Key)?;
    Ok((key, pair[at + 1..].to_vec()))
}

// The values that Go's strconv.ParseBool accepts: machined is written in Go.
fn boolean(value: &str) -> Result<bool, EnvironmentError> {
    match value {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        other => Err(EnvironmentError::NotBoolean(other.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn base64(bytes: &[u8]) -> Vec<u8> {
        BASE64.encode(bytes).into_bytes()
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn meta_values() {
        assert_eq!(meta(b""), Ok(vec![]));
        let two = vec![(10, b"a=b".to_vec()), (11, b"\xff\n".to_vec())];
        assert_eq!(meta(&base64(b"0xa=a=b;0x0b=\xff\n")), Ok(two.clone()));
        assert_eq!(meta(&base64(&gzip(b"0xa=a=b;0x0b=\xff\n"))), Ok(two));
        assert_eq!(meta(&base64(b"0xa=")), Ok(vec![(10, vec![])]));
        assert_eq!(meta(&base64(&gzip(b""))), Ok(vec![]));
    }

    #[test]
    fn base64_is_read_as_go_does() {
        let tags = vec![(10, b"interfaces: [{name: eth0, dhcp: true}]".to_vec())];
        let whole = base64(b"0x0a=interfaces: [{name: eth0, dhcp: true}]");
        for line_end in [&b"\n"[..], b"\r\n"] {
            for width in [1, 4, 7, 76] {
                let lines: Vec<u8> = whole.chunks(width).flat_map(|line| [line, line_end].concat()).collect();
                assert_eq!(meta(&lines), Ok(tags.clone()), "{width}");
            }
        }
        assert_eq!(meta(b"\n"), Ok(vec![]));
        // "0xa=" ends in the middle of a character, whose other bits are set.
        assert_eq!(meta(b"MHhhPR=="), meta(b"MHhhPQ=="));
        for bad in [&b"MHhhPQ"[..], b"MHhhPQ== ", b"MHhh\tPQ==", b"MHhhPQ-_"] {
            assert!(matches!(meta(bad), Err(EnvironmentError::Base64(_))), "{bad:?}");
        }
    }

    #[test]
    fn meta_values_that_are_none() {
        let cut = &gzip(b"0xa=b")[..12];
        for (value, text) in [
            (b"!".to_vec(), "not base64"),
            (b"MHhh".to_vec(), "\"0xa\": write KEY=VALUE"),
            (base64(b"0xa=b;"), "\"\": write KEY=VALUE"),
            (base64(b"0x100=b"), "META key \"0x100\""),
            (base64(b"0x0=b"), "META key \"0x0\""),
            (base64(cut), "not gzip data"),
            (base64(&gzip(&vec![b'a'; 1 << 21])), "more than 1048576 bytes"),
        ] {
            let error = meta(&value).unwrap_err().to_string();
            assert!(error.starts_with("INSTALLER_META_BASE64: ") && error.contains(text), "{error}");
        }
    }

    #[test]
    fn truth_values_are_those_of_go() {
        assert!(["1", "t", "T", "true", "TRUE", "True"].iter().all(|v| boolean(v) == Ok(true)));
        assert!(["0", "f", "F", "false", "FALSE", "False"].iter().all(|v| boolean(v) == Ok(false)));
        for bad in ["", "yes", "tRUE", " true", "2"] {
            let text = format!("INSTALLER_GRUB_USE_UKI_CMDLINE: {bad:?} is neither true nor false");
            assert_eq!(boolean(bad).unwrap_err().to_string(), text);
        }
    }
}
