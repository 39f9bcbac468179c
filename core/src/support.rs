//! The facts that explain a failure, as one archive: texts without secrets, and a list of the parts that could not be collected.
//! `installer support` and `slipwayctl support` make it.

use crate::prelude::*;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::redact::redact;

/// The directory that everything is in.
pub const TOP: &str = "slipway-support";
/// The largest part in bytes: what is asked may say too much, and archives are sent by mail.
pub const LARGEST: usize = 16 << 20;
/// Names of files in a tar archive, with [`TOP`], have so many bytes at most.
const LONGEST_NAME: usize = 99;
const BLOCK: usize = 512;

/// The parts that could not be collected.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Missing {
    /// The part, as its file would be called.
    pub what: String,
    /// Why it is not there, or not whole.
    pub why: String,
}

/// A file of the archive, as `manifest.json` lists it.
#[derive(Debug, Serialize)]
struct Listed<'a> {
    file: &'a str,
    bytes: usize,
}

/// `manifest.json`.
#[derive(Debug, Serialize)]
struct Manifest<'a> {
    schema: u32,
    program: &'a str,
    at: &'a str,
    files: Vec<Listed<'a>>,
    missing: &'a [Missing],
}

/// The parts of the archive.
#[derive(Debug, Default)]
pub struct Archive {
    parts: Vec<(String, String)>,
    missing: Vec<Missing>,
}

impl Archive {
    /// One more part: its text, or why there is none. In either is no secret then.
    pub fn add(&mut self, name: &str, text: Result<String, String>) {
        let name = file_name(name);
        match text {
            Ok(mut text) => {
                if text.len() > LARGEST {
                    text.truncate(text.floor_char_boundary(LARGEST));
                    let why = format!("it has more than {LARGEST} bytes: the rest is cut off");
                    self.missing.push(Missing { what: name.clone(), why });
                }
                self.parts.push((name, redact(&text)));
            }
            Err(why) => self.missing.push(Missing { what: name, why: redact(&why) }),
        }
    }

    /// The parts that could not be collected.
    pub fn missing(&self) -> &[Missing] {
        &self.missing
    }

    /// The number of parts.
    pub fn count(&self) -> usize {
        self.parts.len()
    }

    /// The archive in tar's format, with `manifest.json` as its first file. `program` has name and version of who makes it,
    /// `at` the time for people, and `seconds` the same since 1970.
    pub fn tar(&self, program: &str, at: &str, seconds: u64) -> Vec<u8> {
        let files = self.parts.iter().map(|(file, text)| Listed { file, bytes: text.len() }).collect();
        let manifest = Manifest { schema: 1, program, at, files, missing: &self.missing };
        // Texts and numbers always have a JSON form.
        let manifest = serde_json::to_string_pretty(&manifest).unwrap_or_default() + "\n";
        let mut tar = Vec::new();
        entry(&mut tar, "manifest.json", manifest.as_bytes(), seconds);
        for (name, text) in &self.parts {
            entry(&mut tar, name, text.as_bytes(), seconds);
        }
        tar.resize(tar.len() + 2 * BLOCK, 0);
        tar
    }
}

/// A name that tar takes, and that leads nowhere else.
fn file_name(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_') { c } else { '_' };
    let parts = name.split('/').map(|part| match part {
        "" | "." | ".." => "_".to_owned(),
        part => part.chars().map(plain).collect(),
    });
    let mut name = parts.collect::<Vec<String>>().join("/");
    name.truncate(LONGEST_NAME - TOP.len() - 1);
    name
}

/// One file, in POSIX' format (ustar).
fn entry(tar: &mut Vec<u8>, name: &str, content: &[u8], seconds: u64) {
    let mut header = [0; BLOCK];
    let mut put =
        |at: usize, text: &str| header.iter_mut().skip(at).zip(text.bytes()).for_each(|(to, byte)| *to = byte);
    put(0, &format!("{TOP}/{name}"));
    put(100, "0000600");
    put(108, "0000000");
    put(116, "0000000");
    put(124, &format!("{:011o}", content.len()));
    put(136, &format!("{seconds:011o}"));
    put(156, "0");
    put(257, "ustar");
    put(263, "00");
    // The sum counts its own field as spaces.
    put(148, "        ");
    let sum: u32 = header.iter().copied().map(u32::from).sum();
    let sum = format!("{sum:06o}\0");
    header.iter_mut().skip(148).zip(sum.bytes()).for_each(|(to, byte)| *to = byte);
    tar.extend_from_slice(&header);
    tar.extend_from_slice(content);
    tar.resize(tar.len().next_multiple_of(BLOCK), 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_nowhere_else_and_are_short() {
        assert_eq!(file_name("nodes/n-1/status.json"), "nodes/n-1/status.json");
        assert_eq!(file_name("/../a b/./ü"), "_/_/a_b/_/_");
        let long = file_name(&"n".repeat(300));
        assert_eq!(TOP.len() + 1 + long.len(), LONGEST_NAME);
    }

    #[test]
    fn a_part_that_is_too_large_is_cut_and_named() {
        let mut archive = Archive::default();
        archive.add("x", Ok("ü".repeat(LARGEST)));
        archive.add("y", Err("password=x".to_string()));
        assert_eq!((archive.count(), archive.missing().len()), (1, 2));
        assert_eq!(archive.missing()[1].why, "password=[removed]");
        assert_eq!(archive.parts[0].1.len(), LARGEST);
    }
}
