//! Platforms and their kernel arguments, the same as in Talos.

use crate::prelude::*;

use core::fmt;

use crate::kernel::arch::Arch;

/// Environment of the machine, such as bare metal or a cloud.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Platform(&'static str);

/// A platform name that is not known.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("platform {name:?} is not known: {}", Platform::names().collect::<Vec<_>>().join(", "))]
pub struct UnknownPlatform {
    name: String,
}

const PLATFORMS: [(&str, &str); 20] = [
    ("metal", "console=tty0"),
    ("container", ""),
    ("akamai", "console=ttyS0 console=tty0 console=tty1 net.ifnames=0"),
    ("alibabacloud", "console=tty1 console=ttyS0 net.ifnames=0"),
    ("aws", "console=tty1 console=ttyS0 net.ifnames=0 nvme_core.io_timeout=4294967295"),
    (
        "azure",
        "console=ttyS0,115200n8 earlyprintk=ttyS0,115200 rootdelay=300 net.ifnames=0 talos.dashboard.disabled=1 \
         sysctl.kernel.kexec_load_disabled=1",
    ),
    ("cloudstack", "console=tty1 console=ttyS0 net.ifnames=0"),
    ("digital-ocean", "console=ttyS0 console=tty0 console=tty1 net.ifnames=0"),
    ("equinixMetal", "console=ttyS1,115200n8"),
    ("exoscale", "console=tty1 console=ttyS0 net.ifnames=0"),
    ("gcp", "console=ttyS0 net.ifnames=0 talos.dashboard.disabled=1 sysctl.kernel.kexec_load_disabled=1"),
    ("hcloud", "console=tty1 console=ttyS0 net.ifnames=0"),
    ("nocloud", "console=tty1 console=ttyS0 net.ifnames=0"),
    ("opennebula", "console=tty1 console=ttyS0 net.ifnames=0"),
    ("openstack", "console=tty1 console=ttyS0 net.ifnames=0"),
    ("oracle", "console=tty1 console=ttyS0 net.ifnames=0 talos.dashboard.disabled=1"),
    ("scaleway", "console=tty1 console=ttyS0 net.ifnames=0 talos.dashboard.disabled=1"),
    ("upcloud", "net.ifnames=0"),
    ("vmware", "talos.config=guestinfo console=tty0 console=ttyS0 earlyprintk=ttyS0,115200 net.ifnames=0"),
    ("vultr", "net.ifnames=0"),
];

// These replace the arguments above on one architecture.
const PLATFORMS_BY_ARCH: [(Arch, &str, &str); 3] = [
    (Arch::Arm64, "metal", "console=ttyAMA0 console=tty0"),
    (Arch::Arm64, "equinixMetal", "console=ttyAMA0,115200"),
    (Arch::Arm64, "vmware", "talos.config=guestinfo console=tty0 console=ttyAMA0 net.ifnames=0"),
];

impl Platform {
    /// Bare metal.
    pub const METAL: Platform = Platform("metal");

    /// Names of all platforms.
    pub fn names() -> impl Iterator<Item = &'static str> {
        PLATFORMS.iter().map(|(name, _)| *name)
    }

    /// Look up a platform.
    pub fn by_name(name: &str) -> Option<Self> {
        // The old name.
        let name = if name == "packet" { "equinixMetal" } else { name };
        PLATFORMS.iter().find(|(n, _)| *n == name).map(|(n, _)| Platform(n))
    }

    /// The platform of a name. None for no name.
    pub fn settled(name: &str) -> Result<Option<Self>, UnknownPlatform> {
        if name.is_empty() {
            return Ok(None);
        }
        Platform::by_name(name).map(Some).ok_or_else(|| UnknownPlatform { name: name.to_owned() })
    }

    /// Name, as in `talos.platform`.
    pub const fn name(self) -> &'static str {
        self.0
    }

    /// Kernel arguments on an architecture.
    pub fn args(self, arch: Arch) -> &'static str {
        let own = PLATFORMS_BY_ARCH.iter().filter(|(a, ..)| *a == arch).map(|(_, name, args)| (*name, *args));
        // The first match counts.
        own.chain(PLATFORMS).find(|(name, _)| *name == self.0).map_or("", |(_, args)| args)
    }
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn platforms() {
        assert_eq!(Platform::by_name("packet").unwrap().to_string(), "equinixMetal");
        assert_eq!(Platform::by_name("nosuch"), None);
        assert_eq!(Platform::names().count(), 20);
        assert!(PLATFORMS_BY_ARCH.iter().all(|(_, name, _)| Platform::by_name(name).is_some()));
    }
}
