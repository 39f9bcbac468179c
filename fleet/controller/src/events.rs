//! Kubernetes Events. An Event's name is derived from its content, so two controllers write it once.

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{Event, EventSource, ObjectReference},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};
use slipway_core::digest::Sha256;
use slipway_node_api::text::clean_and_cut;

/// The longest message, bytes; the API server takes 1024.
const LONGEST: usize = 1000;

/// Something that happened to an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventRecord {
    /// The kind of the object: Node, Rollout.
    pub kind: &'static str,
    /// Its API.
    pub api: &'static str,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// The event, in one word that stays the same.
    pub reason: &'static str,
    /// Distinguishes it from earlier events with the same reason.
    pub which: String,
    /// The same for people.
    pub message: String,
    /// True if a person should look.
    pub is_warning: bool,
}

impl EventRecord {
    /// The record of an event of one of the fleet's own objects.
    pub fn of_fleet_object(
        kind: &'static str,
        object: &ObjectMeta,
        reason: &'static str,
        which: String,
        message: String,
        is_warning: bool,
    ) -> Self {
        let (name, uid) = (object.name.clone().unwrap_or_default(), object.uid.clone().unwrap_or_default());
        Self { kind, api: "fleet.slipway.dev/v1alpha1", name, uid, reason, which, message, is_warning }
    }

    /// The message in one line: nodes and people write some of it.
    pub fn text(&self) -> String {
        clean_and_cut(&self.message, LONGEST)
    }

    /// The same in the log of this process.
    pub fn log(&self) {
        let (Self { kind, name, reason, .. }, message) = (self, self.text());
        if self.is_warning {
            tracing::warn!(reason, "{kind} {name}: {message}");
        } else {
            tracing::info!(reason, "{kind} {name}: {message}");
        }
    }

    /// As the API server takes it.
    pub fn event(&self, now: Timestamp) -> Event {
        let Self { kind, api, name, uid, reason, which, is_warning, .. } = self;
        let digest = Sha256::of(format!("{uid} {reason} {which}").as_bytes()).to_string();
        let time = Some(Time(now));
        Event {
            metadata: ObjectMeta {
                name: Some(format!("{name}.{}", &digest[..16])),
                namespace: Some("default".to_owned()),
                ..ObjectMeta::default()
            },
            involved_object: ObjectReference {
                api_version: Some((*api).to_owned()),
                kind: Some((*kind).to_owned()),
                name: Some(name.clone()),
                // Kubernetes' own events of a Node have its name there, and `kubectl describe` looks for that.
                uid: Some(if *kind == "Node" { name.clone() } else { uid.clone() }),
                ..ObjectReference::default()
            },
            reason: Some((*reason).to_owned()),
            message: Some(self.text()),
            type_: Some(if *is_warning { "Warning" } else { "Normal" }.to_owned()),
            source: Some(EventSource { component: Some("slipway-fleet".to_owned()), host: None }),
            first_timestamp: time.clone(),
            last_timestamp: time,
            count: Some(1),
            ..Event::default()
        }
    }
}
