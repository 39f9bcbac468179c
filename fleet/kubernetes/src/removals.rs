//! Flags, feature gates, admission plugins and APIs that a version of Kubernetes does not know any more. A component that is
//! given one of them does not start.
//!
//! They are a table, [`BUILT_IN`], which people may replace. What is not in the table is not found: then the component does
//! not become well, and its node brings the old manifest back.

use std::{fmt, str::FromStr};

use slipway_core::payload::minor_version::MinorVersion;

use crate::{command_line::CommandLine, component::Component};

/// The table, with the source of each row.
pub const BUILT_IN: &str = include_str!("removals.tsv");

/// What was removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Flag(Component),
    /// All components have the same ones.
    FeatureGate,
    AdmissionPlugin,
    Api,
}

/// One row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Removal {
    kind: Kind,
    name: String,
    /// The first version without it.
    removed: MinorVersion,
    source: String,
}

impl Removal {
    fn is_used(&self, component: Component, line: &CommandLine) -> bool {
        let name = self.name.as_str();
        let key = |item: &str| item.split('=').next() == Some(name);
        match self.kind {
            Kind::Flag(of) => of == component && line.names().any(|flag| flag == name),
            // A gate may have the name of its component before it: kube:NAME=true.
            Kind::FeatureGate => {
                line.items("feature-gates").any(|item| key(item.rsplit_once(':').map_or(item, |(_, gate)| gate)))
            }
            Kind::AdmissionPlugin => ["enable-admission-plugins", "disable-admission-plugins"]
                .iter()
                .any(|flag| line.items(flag).any(|item| item == name)),
            // One of its resources may be named behind it.
            Kind::Api => line
                .items("runtime-config")
                .any(|item| key(item) || item.strip_prefix(name).is_some_and(|rest| rest.starts_with('/'))),
        }
    }
}

impl fmt::Display for Removal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, name, removed, source } = self;
        match kind {
            Kind::Flag(_) => write!(f, "--{name}")?,
            Kind::FeatureGate => write!(f, "{name} in --feature-gates")?,
            Kind::AdmissionPlugin => write!(f, "the admission plugin {name}")?,
            Kind::Api => write!(f, "{name} in --runtime-config")?,
        }
        write!(f, " (removed in {removed}: {source})")
    }
}

/// The table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Removals(Vec<Removal>);

impl FromStr for Removals {
    type Err = String;

    /// A row has the version, the kind, the component of a flag or `-`, the name, and the source, separated by tabs.
    fn from_str(text: &str) -> Result<Self, String> {
        let rows = text.lines().enumerate().filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
        let rows = rows.map(|(at, line)| row(line).map_err(|why| format!("line {}: {why}", at + 1)));
        rows.collect::<Result<_, _>>().map(Self)
    }
}

fn row(line: &str) -> Result<Removal, String> {
    let parts: Vec<&str> = line.split('\t').collect();
    let [removed, kind, component, name, source] = parts[..] else {
        return Err(format!("it has {} columns and not 5, separated by tabs", parts.len()));
    };
    let kind = match (kind, component) {
        ("flag", component) => Kind::Flag(component.parse()?),
        ("feature-gate", "-") => Kind::FeatureGate,
        ("admission-plugin", "-") => Kind::AdmissionPlugin,
        ("api", "-") => Kind::Api,
        _ => return Err(format!("{kind:?} of {component:?}: a flag has a component, other kinds have -")),
    };
    if name.is_empty() || name.starts_with('-') || source.is_empty() {
        return Err("it has a name without dashes before it, and a source".to_owned());
    }
    Ok(Removal { kind, name: name.to_owned(), removed: removed.parse()?, source: source.to_owned() })
}

impl Removals {
    /// The rows that keep a component with this command line from going from one version to the other. What the present
    /// version lacks, too, is no reason: it runs.
    pub fn found<'a>(
        &'a self,
        component: Component,
        line: &'a CommandLine,
        has: MinorVersion,
        target: MinorVersion,
    ) -> impl Iterator<Item = &'a Removal> {
        let is_between = move |of: &&Removal| has < of.removed && of.removed <= target;
        self.0.iter().filter(is_between).filter(move |of| of.is_used(component, line))
    }
}
