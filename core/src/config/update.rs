//! `/etc/slipway/update.toml`: how a machine upgrades itself. Read strictly: an unknown key, a wrong type or a bad value is
//! an error with its place, because an overlooked key may be the one that keeps the machine from rebooting at noon.

use crate::prelude::*;

use core::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use super::{
    ConfigError,
    value::{Field, unknown_key},
};
use crate::{
    payload::image_ref::ImageRef,
    rate_limit::ByteRate,
    redact::redact,
    toml,
    yaml::{Entry, Value, text},
};

pub use super::value::Placed;

/// Path of the file.
pub const PATH: &str = "/etc/slipway/update.toml";

/// Content of the file, with the defaults of missing keys.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are named after their keys, which assets/update.toml explains")]
pub struct UpdateConfig {
    pub source: Option<ImageRef>,
    pub allow_any_version: bool,
    pub plain_http: bool,
    pub tls_verify: bool,
    pub registry_ca: Vec<String>,
    pub authfile: Option<String>,
    pub mirrors: Vec<Placed<String>>,
    pub limit_rate: Option<ByteRate>,
    pub reboot: RebootPolicy,
    pub reboot_window: Vec<Placed<String>>,
    pub reboot_window_length: WindowLength,
    pub inhibitors: Inhibitors,
    pub logged_in_users: Users,
}

impl Default for UpdateConfig {
    fn default() -> Self {
        UpdateConfig {
            source: None,
            allow_any_version: false,
            plain_http: false,
            tls_verify: true,
            registry_ca: vec![],
            authfile: None,
            mirrors: vec![],
            limit_rate: None,
            reboot: RebootPolicy::Never,
            reboot_window: vec![],
            reboot_window_length: WindowLength::HOUR,
            inhibitors: Inhibitors::All,
            logged_in_users: Users::Wait,
        }
    }
}

/// When the machine reboots by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RebootPolicy {
    /// Another program does.
    Never,
    /// While a window is open.
    Window,
    /// Right after an upgrade.
    Now,
}

/// Treatment of users who are logged in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Users {
    /// The reboot waits until they are gone.
    Wait,
    /// They are logged out.
    Ignore,
}

impl RebootPolicy {
    /// All policies, with their meanings.
    pub const ALL: [(RebootPolicy, &'static str, &'static str); 3] = [
        (RebootPolicy::Never, "never", "another program reboots"),
        (RebootPolicy::Window, "window", "while a window is open"),
        (RebootPolicy::Now, "now", "right after an upgrade"),
    ];
}

impl Users {
    /// All choices, with their meanings.
    pub const ALL: [(Users, &'static str, &'static str); 2] = [
        (Users::Wait, "wait", "the reboot waits until they are gone"),
        (Users::Ignore, "ignore", "the reboot logs them out"),
    ];
}

/// Programs that may hold a reboot back (systemd-inhibit(1), mode `block`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Inhibitors {
    /// Every program.
    All,
    /// None.
    None,
    /// Programs with these names.
    Only(Vec<String>),
}

impl Inhibitors {
    /// Whether the one with this name counts.
    pub fn respects(&self, who: &str) -> bool {
        match self {
            Inhibitors::All => true,
            Inhibitors::None => false,
            Inhibitors::Only(names) => names.iter().any(|name| name == who),
        }
    }
}

/// Length of a window: `90min`, `2h`; from a minute to a week.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowLength {
    minutes: u32,
}

impl WindowLength {
    /// The default.
    pub const HOUR: Self = WindowLength { minutes: 60 };

    /// In seconds.
    pub const fn seconds(self) -> u64 {
        self.minutes as u64 * 60
    }
}

impl FromStr for WindowLength {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let units = [("min", 1), ("h", 60)];
        let number = |unit: &str, factor| text.strip_suffix(unit)?.parse::<u32>().ok()?.checked_mul(factor);
        let minutes = units.into_iter().find_map(|(unit, factor)| number(unit, factor));
        match minutes.filter(|minutes| (1..=7 * 24 * 60).contains(minutes)) {
            Some(minutes) => Ok(WindowLength { minutes }),
            None => Err(format!("{text:?} is not the length of a window: write 90min or 2h, at most a week")),
        }
    }
}

impl fmt::Display for WindowLength {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.minutes / 60, self.minutes % 60) {
            (hours, 0) => write!(f, "{hours}h"),
            _ => write!(f, "{}min", self.minutes),
        }
    }
}

/// The name of an image as `docker://HOST/REPOSITORY:TAG`.
pub fn source(text: &str) -> Result<ImageRef, String> {
    let name = text.strip_prefix("docker://");
    let name = name.ok_or_else(|| {
        format!("{:?} is not an image in a registry: write docker://HOST/REPOSITORY:TAG", redact(text))
    })?;
    name.parse().map_err(|e| format!("{:?}: {e}", redact(text)))
}

/// A mistake in the file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct UpdateConfigError(pub ConfigError);

impl UpdateConfig {
    /// The keys.
    pub const KEYS: [&str; 13] = [
        "source",
        "allow_any_version",
        "plain_http",
        "tls_verify",
        "registry_ca",
        "authfile",
        "mirrors",
        "limit_rate",
        "reboot",
        "reboot_window",
        "reboot_window_length",
        "inhibitors",
        "logged_in_users",
    ];

    /// Read the file.
    pub fn parse(bytes: &[u8]) -> Result<Self, UpdateConfigError> {
        Self::read(bytes).map_err(UpdateConfigError)
    }

    fn read(bytes: &[u8]) -> Result<Self, ConfigError> {
        let mut config = UpdateConfig::default();
        for entry in toml::entries(text(bytes)?)? {
            config.set(&entry)?;
        }
        Ok(config)
    }

    fn set(&mut self, Entry { at, key, node }: &Entry) -> Result<(), ConfigError> {
        let value = Field { key, node };
        match key.as_str() {
            "source" => self.source = Some(value.parsed(source)?),
            "allow_any_version" => self.allow_any_version = value.boolean()?,
            "plain_http" => self.plain_http = value.boolean()?,
            "tls_verify" => self.tls_verify = value.boolean()?,
            "registry_ca" => self.registry_ca = value.texts()?.into_iter().map(|text| text.value).collect(),
            "authfile" => self.authfile = Some(value.text()?.to_owned()),
            "mirrors" => self.mirrors = value.texts()?,
            "limit_rate" => self.limit_rate = Some(value.parsed(str::parse)?),
            "reboot" => self.reboot = value.one_of(&RebootPolicy::ALL)?,
            "reboot_window" => self.reboot_window = value.texts()?,
            "reboot_window_length" => self.reboot_window_length = value.parsed(str::parse)?,
            "inhibitors" => {
                self.inhibitors = match (&node.value, value.boolean()) {
                    (Value::List(_), _) => {
                        Inhibitors::Only(value.texts()?.into_iter().map(|text| text.value).collect())
                    }
                    (_, Ok(true)) => Inhibitors::All,
                    (_, Ok(false)) => Inhibitors::None,
                    (_, Err(_)) => return Err(value.wrong("write true, false or a list of names")),
                };
            }
            "logged_in_users" => self.logged_in_users = value.one_of(&Users::ALL)?,
            _ => {
                return Err(unknown_key(*at, key, &Self::KEYS));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::yaml::Pos;

    fn error(text: &str) -> String {
        UpdateConfig::parse(text.as_bytes()).unwrap_err().to_string()
    }

    #[test]
    fn every_key_is_read() {
        let text = r#"
source = "docker://r.example/os:stable"
allow_any_version = true
plain_http = true
tls_verify = false
registry_ca = ["/etc/ca.pem"]
authfile = "/etc/slipway/auth.json"
mirrors = ["r.example=https://m.example"]
limit_rate = "20MiB/s"
reboot = "window"
reboot_window = ["Sat,Sun 02:00 Europe/Berlin"]
reboot_window_length = "2h"
inhibitors = ["backup"]
logged_in_users = "ignore"
"#;
        let config = UpdateConfig::parse(text.as_bytes()).unwrap();
        assert_eq!(config.source.unwrap().to_string(), "r.example/os:stable");
        assert!(config.allow_any_version && config.plain_http && !config.tls_verify);
        assert_eq!((config.registry_ca.len(), config.authfile.as_deref()), (1, Some("/etc/slipway/auth.json")));
        assert_eq!(config.mirrors[0].at, Some(Pos { line: 8, column: 12 }));
        assert_eq!((config.limit_rate, config.reboot), ("20MiB".parse().ok(), RebootPolicy::Window));
        assert_eq!(config.reboot_window[0].value, "Sat,Sun 02:00 Europe/Berlin");
        assert_eq!((config.reboot_window_length.seconds(), config.logged_in_users), (7200, Users::Ignore));
        assert_eq!(config.inhibitors, Inhibitors::Only(vec!["backup".to_owned()]));
        let used = |key: &str| text.contains(&format!("\n{key} = "));
        assert!(UpdateConfig::KEYS.iter().all(|key| used(key)));
        assert_eq!(UpdateConfig::parse(b"").unwrap(), UpdateConfig::default());
    }

    #[test]
    fn mistakes_are_named_with_their_place() {
        for (text, says) in [
            ("sorce = \"x\"", "line 1, column 1: \"sorce\" is not a known key: use source, allow_any_version,"),
            ("source = 7", "line 1, column 10: source: this must be a text in quotes"),
            ("source = \"oci:x\"", "write docker://HOST/REPOSITORY:TAG"),
            (
                "source = \"docker://me:secret@r.io/x\"",
                "\"docker://[removed]@r.io/x\": a user and a password are no part",
            ),
            ("source = \"docker://r.io/X\"", "cannot be part of a repository"),
            ("tls_verify = \"true\"", "line 1, column 14: tls_verify: write true or false, without quotes"),
            ("\nreboot = \"noon\"", "line 2, column 10: reboot: \"noon\" is none of its values: write \"never\" or"),
            ("reboot_window = \"02:00\"", "this must be a list of texts"),
            ("reboot_window = [\"02:00\", 3]", "line 1, column 27: reboot_window: this must be a text"),
            ("reboot_window_length = \"2 days\"", "write 90min or 2h, at most a week"),
            ("reboot_window_length = \"0h\"", "write 90min or 2h"),
            ("inhibitors = \"yes\"", "write true, false or a list of names"),
            ("limit_rate = \"1KiB\"", "too slow"),
            ("[reboot]\n", "there are no tables"),
            ("reboot = now", "line 1, column 10: not TOML: "),
        ] {
            assert!(error(text).contains(says), "{text}: {}", error(text));
        }
        assert!(UpdateConfig::parse(b"\xff").is_err());
    }

    #[test]
    fn lengths_of_windows() {
        for (text, shown) in [("60min", "1h"), ("2h", "2h"), ("90min", "90min"), ("168h", "168h")] {
            assert_eq!(text.parse::<WindowLength>().unwrap().to_string(), shown);
        }
        for text in ["", "h", "169h", "-1h", "4294967295h", "1d", "1h30min"] {
            assert!(text.parse::<WindowLength>().is_err(), "{text}");
        }
    }
}
