//! The digest of an image, as people write it: `sha256:` and 64 hex digits.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use slipway_core::{digest::Sha256, payload::image_ref::parse_digest};

/// The digest of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ImageDigest(pub Sha256);

impl TryFrom<String> for ImageDigest {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        parse_digest(&text).map(Self).ok_or_else(|| format!("{text:?} is not sha256: and 64 hex digits"))
    }
}

impl From<ImageDigest> for String {
    fn from(ImageDigest(digest): ImageDigest) -> Self {
        format!("sha256:{digest}")
    }
}

impl JsonSchema for ImageDigest {
    fn schema_name() -> Cow<'static, str> {
        "ImageDigest".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": "^sha256:[0-9a-f]{64}$" })
    }
}
