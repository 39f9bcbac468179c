//! A static pod's manifest with another image, and with or without `--emulated-version`.
//!
//! Only that changes: flags, volumes and comments that a person wrote stay, byte for byte. The manifest is not made
//! anew from a template, because what an admin has changed by hand would be lost with the next upgrade.

use std::mem;

use serde_json::Value;
use slipway_core::payload::minor_version::MinorVersion;

use crate::{command_line::CommandLine, component::Component, version::Version};

/// Why a manifest is left as it is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unclear {
    /// It cannot be read.
    #[error("the manifest of {component} is no YAML of one pod: {why}")]
    NoPod { component: Component, why: String },
    /// It has other containers.
    #[error("the manifest of {component} has no container of that name with an image")]
    NoImage { component: Component },
    /// The image cannot be found in the text.
    #[error("the manifest of {component} has its image in an unusual way: write `image: {image}` in a line of its own")]
    Unusual { component: Component, image: String },
    /// The image's tag is no version.
    #[error("the tag of {image} is no version: give {component} an image with one")]
    NoVersion { component: Component, image: String },
    /// The command cannot be found in the text.
    #[error(
        "the manifest of {component} has its command in an unusual way: write `command:` as a list of lines, and `- {component}` \
         as the first"
    )]
    NoCommand { component: Component },
    /// A person has written the flag.
    #[error("the manifest of {component} has --{EMULATED} already: take it out, or upgrade without emulation")]
    Emulates { component: Component },
    /// What would be written is no image.
    #[error("{0:?} is no reference of an image: registry.example/kube-apiserver:v1.31.2")]
    NoReference(String),
}

/// The flag of a server that behaves like one of an older minor version.
pub const EMULATED: &str = "emulated-version";

/// The pod that a manifest describes.
pub fn pod(text: &str, component: Component) -> Result<Value, Unclear> {
    serde_saphyr::from_str(text).map_err(|e| Unclear::NoPod { component, why: e.to_string() })
}

/// The image of the component's container.
pub fn image(text: &str, component: Component) -> Result<String, Unclear> {
    let mut pod = pod(text, component)?;
    let image = slot(&mut pod, component).and_then(|image| image.as_str().map(str::to_owned));
    image.ok_or(Unclear::NoImage { component })
}

/// The minor version that its image says.
pub fn minor(text: &str, component: Component) -> Result<MinorVersion, Unclear> {
    let image = image(text, component)?;
    let version = Version::of_image(&image);
    Ok(version.ok_or(Unclear::NoVersion { component, image })?.minor())
}

/// The value of a flag of the component's container, however it is written.
pub fn flag(pod: &Value, component: Component, name: &str) -> Option<String> {
    CommandLine::new(words(pod, component)?).value(name).map(str::to_owned)
}

/// The words by which the component's container is started.
fn words(pod: &Value, component: Component) -> Option<impl Iterator<Item = &str>> {
    let container = pod["spec"]["containers"].as_array()?.iter().find(|of| of["name"] == component.name())?;
    let words = ["command", "args"].into_iter().flat_map(move |part| container[part].as_array().into_iter().flatten());
    Some(words.filter_map(Value::as_str))
}

/// The manifest with this image, and with nothing else changed.
pub fn with_image(text: &str, component: Component, new: &str) -> Result<String, Unclear> {
    if !is_reference(new) {
        return Err(Unclear::NoReference(new.to_owned()));
    }
    let mut wanted = pod(text, component)?;
    let old = slot(&mut wanted, component).map(|image| mem::replace(image, Value::from(new)));
    let Some(Value::String(old)) = old else { return Err(Unclear::NoImage { component }) };
    let places = text.match_indices(&old).map(|(at, _)| at);
    let candidates = places.map(|at| format!("{}{new}{}", &text[..at], &text[at + old.len()..]));
    is_so(candidates, component, &wanted).ok_or(Unclear::Unusual { component, image: old })
}

/// The minor version that its command says that it emulates.
pub fn emulated(text: &str, component: Component) -> Option<MinorVersion> {
    flag(&pod(text, component).ok()?, component, EMULATED)?.parse().ok()
}

/// The manifest with a line more, after the name of its program: that it emulates this version.
pub fn emulating(text: &str, component: Component, version: MinorVersion) -> Result<String, Unclear> {
    let mut wanted = pod(text, component)?;
    if words(&wanted, component).is_some_and(|words| CommandLine::new(words).names().any(|name| name == EMULATED)) {
        return Err(Unclear::Emulates { component });
    }
    let word = format!("--{EMULATED}={version}");
    let command = command(&mut wanted, component).filter(|of| of.first().is_some_and(|of| *of == component.name()));
    command.ok_or(Unclear::NoCommand { component })?.insert(1, Value::from(word.as_str()));
    let candidates = lines(text).filter_map(|(_, end, line)| {
        let before = line.split_once(component.name())?.0;
        let indent = before.trim_end_matches(['"', '\'']).trim_end().strip_suffix('-')?;
        // The list may begin in the line of another one.
        let indent: String = indent.chars().map(|c| if c == '-' { ' ' } else { c }).collect();
        let ending = if line.ends_with("\r\n") { "\r\n" } else { "\n" };
        Some(format!("{}{indent}- {word}{ending}{}", &text[..end], &text[end..]))
    });
    is_so(candidates, component, &wanted).ok_or(Unclear::NoCommand { component })
}

/// The manifest without that line.
pub fn not_emulating(text: &str, component: Component) -> Result<String, Unclear> {
    let mut wanted = pod(text, component)?;
    let prefix = format!("--{EMULATED}=");
    let is_flag = |of: &Value| of.as_str().is_some_and(|word| word.starts_with(&prefix));
    command(&mut wanted, component).ok_or(Unclear::NoCommand { component })?.retain(|of| !is_flag(of));
    let with = lines(text).filter(|(.., line)| line.contains(&prefix));
    let candidates = with.map(|(begin, end, _)| format!("{}{}", &text[..begin], &text[end..]));
    is_so(candidates, component, &wanted).ok_or(Unclear::NoCommand { component })
}

/// The place is found by trying: the text that is read as what is wanted is the right one.
fn is_so(mut candidates: impl Iterator<Item = String>, component: Component, wanted: &Value) -> Option<String> {
    candidates.find(|text| pod(text, component).is_ok_and(|pod| pod == *wanted))
}

/// Each line with its end, and where it begins and ends.
fn lines(text: &str) -> impl Iterator<Item = (usize, usize, &str)> {
    let mut begin = 0;
    text.split_inclusive('\n').map(move |line| {
        let at = begin;
        begin += line.len();
        (at, begin, line)
    })
}

/// Whether a text can be an image's reference, which needs no quotes in a manifest.
pub(crate) fn is_reference(text: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._:/@-".contains(c);
    text.starts_with(|c: char| c.is_ascii_alphanumeric()) && text.chars().all(is_plain)
}

fn command(pod: &mut Value, component: Component) -> Option<&mut Vec<Value>> {
    container(pod, component)?.get_mut("command")?.as_array_mut()
}

fn container(pod: &mut Value, component: Component) -> Option<&mut Value> {
    let containers = pod.get_mut("spec")?.get_mut("containers")?.as_array_mut()?;
    containers.iter_mut().find(|of| of["name"] == component.name())
}

fn slot(pod: &mut Value, component: Component) -> Option<&mut Value> {
    container(pod, component)?.get_mut("image").filter(|image| image.is_string())
}
