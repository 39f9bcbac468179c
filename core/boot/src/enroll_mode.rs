//! When keys are enrolled: the choices of `secure-boot-enroll` in systemd-boot's `loader.conf`, which Talos' profiles have,
//! too.

use core::fmt;

/// When keys are written into a firmware that is in setup mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "data", derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema))]
#[cfg_attr(feature = "data", serde(rename_all = "kebab-case"))]
pub enum EnrollMode {
    /// Without a person to ask: in a virtual machine alone.
    IfSafe,
    /// A person asks for it.
    Manual,
    /// Whatever speaks against it.
    Force,
    /// Never.
    Off,
}

impl EnrollMode {
    /// Every mode, its name, and its effect.
    pub const ALL: [(EnrollMode, &'static str, &'static str); 4] = [
        (EnrollMode::Manual, "manual", "a person asks: on any machine, if it starts afterwards as far as can be told"),
        (
            EnrollMode::IfSafe,
            "if-safe",
            "without a person: as manual, but in a virtual machine alone, else nothing is done",
        ),
        (EnrollMode::Force, "force", "on any machine, whatever does not start afterwards"),
        (EnrollMode::Off, "off", "nothing is done"),
    ];

    /// The mode of this name.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|(_, known, _)| *known == name).map(|(mode, ..)| mode)
    }

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            EnrollMode::IfSafe => "if-safe",
            EnrollMode::Manual => "manual",
            EnrollMode::Force => "force",
            EnrollMode::Off => "off",
        }
    }
}

impl fmt::Display for EnrollMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
