//! A static pod's manifest with another image.
//!
//! Only the image changes: flags, volumes and comments that a person wrote stay, byte for byte. The manifest is not made
//! anew from a template, because what an admin has changed by hand would be lost with the next upgrade.

use serde_json::Value;

use crate::component::Component;

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
    /// What would be written is no image.
    #[error("{0:?} is no reference of an image: registry.example/kube-apiserver:v1.31.2")]
    NoReference(String),
}

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

/// A flag of the component's container: the value of `--name=value`, the last one, as the program takes it.
pub fn flag(pod: &Value, component: Component, name: &str) -> Option<String> {
    let container = pod["spec"]["containers"].as_array()?.iter().find(|of| of["name"] == component.name())?;
    let words = ["command", "args"].into_iter().flat_map(|part| container[part].as_array().into_iter().flatten());
    let prefix = format!("--{name}=");
    words.filter_map(|word| word.as_str()?.strip_prefix(&prefix)).next_back().map(str::to_owned)
}

/// The manifest with this image, and with nothing else changed.
pub fn with_image(text: &str, component: Component, new: &str) -> Result<String, Unclear> {
    if !is_reference(new) {
        return Err(Unclear::NoReference(new.to_owned()));
    }
    let old = image(text, component)?;
    let mut wanted = pod(text, component)?;
    if let Some(image) = slot(&mut wanted, component) {
        *image = Value::from(new);
    }
    // The place is found by trying: the text that is read as what is wanted is the right one.
    let places = text.match_indices(&old).map(|(at, _)| at);
    let candidates = places.map(|at| format!("{}{new}{}", &text[..at], &text[at + old.len()..]));
    let mut fitting = candidates.filter(|text| pod(text, component).is_ok_and(|pod| pod == wanted));
    fitting.next().ok_or(Unclear::Unusual { component, image: old })
}

/// Whether a text can be an image's reference, which needs no quotes in a manifest.
pub(crate) fn is_reference(text: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._:/@-".contains(c);
    text.starts_with(|c: char| c.is_ascii_alphanumeric()) && text.chars().all(is_plain)
}

fn slot(pod: &mut Value, component: Component) -> Option<&mut Value> {
    let containers = pod.get_mut("spec")?.get_mut("containers")?.as_array_mut()?;
    let container = containers.iter_mut().find(|of| of["name"] == component.name())?;
    container.get_mut("image").filter(|image| image.is_string())
}
