//! An object of a kind that only controllers write, and that somebody may have written all the same: one that cannot be
//! understood has the reason, and does not hide the others.

use std::borrow::Cow;

use kube::{Resource, api::ObjectMeta};
use serde::{Deserialize, Deserializer, de::DeserializeOwned, de::Error as _};
use serde_json::Value;

use crate::events::EventRecord;

/// An object, or why it is not understood.
#[derive(Clone, Debug)]
pub enum Readable<K> {
    /// It is understood.
    Yes(K),
    /// It is not.
    No(Box<Unreadable>),
}

/// An object that is not understood.
#[derive(Clone, Debug)]
pub struct Unreadable {
    /// Its metadata.
    pub metadata: ObjectMeta,
    /// Its spec, whatever that is.
    pub spec: Value,
    /// Why.
    pub why: String,
}

impl Unreadable {
    /// Which, and why.
    pub fn sentence(&self) -> String {
        format!("{} cannot be understood: {}", self.metadata.name.as_deref().unwrap_or_default(), self.why)
    }

    /// The pool that a Rollout names, if it names one.
    pub fn pool(&self) -> Option<&str> {
        self.spec["plan"]["pool"].as_str()
    }

    /// The event of an object of this kind, with what becomes of it.
    pub fn event(&self, kind: &'static str, then: &str) -> EventRecord {
        let message = format!("it cannot be understood: {}: {then}", self.why);
        EventRecord::of_fleet_object(kind, &self.metadata, "NotUnderstood", self.why.clone(), message, true)
    }
}

impl<K> Readable<K> {
    /// The object, if it is understood.
    pub fn understood(&self) -> Option<&K> {
        match self {
            Self::Yes(object) => Some(object),
            Self::No(_) => None,
        }
    }

    /// What is known of one that is not.
    pub fn unreadable(&self) -> Option<&Unreadable> {
        match self {
            Self::Yes(_) => None,
            Self::No(other) => Some(other),
        }
    }

    /// Those that are understood, and those that are not.
    pub fn split(all: Vec<Self>) -> (Vec<K>, Vec<Unreadable>) {
        let (mut understood, mut others) = (Vec::new(), Vec::new());
        for one in all {
            match one {
                Self::Yes(object) => understood.push(object),
                Self::No(other) => others.push(*other),
            }
        }
        (understood, others)
    }
}

impl<'de, K: DeserializeOwned> Deserialize<'de> for Readable<K> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(from)?;
        let why = match K::deserialize(&value) {
            Ok(object) => return Ok(Self::Yes(object)),
            Err(why) => why.to_string(),
        };
        let part = |name: &str| value.get(name).cloned().unwrap_or_default();
        let metadata = serde_json::from_value(part("metadata")).map_err(D::Error::custom)?;
        Ok(Self::No(Box::new(Unreadable { metadata, spec: part("spec"), why })))
    }
}

impl<K: Resource<DynamicType = ()>> Resource for Readable<K> {
    type DynamicType = ();
    type Scope = K::Scope;

    fn kind((): &()) -> Cow<'_, str> {
        K::kind(&())
    }

    fn group((): &()) -> Cow<'_, str> {
        K::group(&())
    }

    fn version((): &()) -> Cow<'_, str> {
        K::version(&())
    }

    fn plural((): &()) -> Cow<'_, str> {
        K::plural(&())
    }

    fn meta(&self) -> &ObjectMeta {
        match self {
            Self::Yes(object) => object.meta(),
            Self::No(other) => &other.metadata,
        }
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        match self {
            Self::Yes(object) => object.meta_mut(),
            Self::No(other) => &mut other.metadata,
        }
    }
}
