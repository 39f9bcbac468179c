//! SBAT: which generation of which program an image is (shim, `SBAT.md`).
//!
//! A generation grows when older ones must not be used any more. Slipway calls that of its own component the epoch of a
//! boot loader. All images of one set have the same one.

use crate::prelude::*;

/// Our own component: in every boot image there is, GRUB's too.
const OWN: &str = "slipway";
/// GRUB's.
const GRUB: &str = "grub";

/// The rows of an SBAT text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sbat(Vec<Row>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Row {
    component: String,
    generation: u32,
    version: String,
}

impl Sbat {
    /// Read a text, with zeros behind it or not. None if it is not SBAT.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let text = bytes.split(|byte| *byte == 0).next()?;
        let text = core::str::from_utf8(text).ok()?;
        let row = |line: &str| {
            let mut fields = line.split(',');
            let (component, generation) = (fields.next()?.to_owned(), fields.next()?.parse().ok()?);
            // Vendor and package are between them.
            let version = fields.nth(2).unwrap_or_default().to_owned();
            Some(Row { component, generation, version })
        };
        let rows: Vec<Row> = text.lines().map(row).collect::<Option<_>>()?;
        (rows.first()?.component == "sbat").then_some(Sbat(rows))
    }

    /// The epoch of the set that the image belongs to; 0 of an image that is not ours.
    pub fn epoch(&self) -> u32 {
        self.row(OWN).map_or(0, |row| row.generation)
    }

    /// Whether it is GRUB.
    pub fn is_grub(&self) -> bool {
        self.row(GRUB).is_some()
    }

    /// Whether it is ours, and not GRUB.
    pub fn is_own(&self) -> bool {
        self.row(OWN).is_some() && !self.is_grub()
    }

    /// The version of the program.
    pub fn version(&self) -> Option<String> {
        self.row(GRUB).or_else(|| self.row(OWN)).map(|row| row.version.clone())
    }

    fn row(&self, component: &str) -> Option<&Row> {
        self.0.iter().find(|row| row.component == component)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_says_what_it_is() {
        let own = Sbat::parse(
            b"sbat,1,SBAT Version,sbat,1,https://x\nslipway,3,Slipway,slipway-loader,0.1.0,https://y\n\0\0",
        )
        .unwrap();
        assert_eq!(
            (own.epoch(), own.is_own(), own.is_grub(), own.version().as_deref()),
            (3, true, false, Some("0.1.0"))
        );
        let grub =
            Sbat::parse(b"sbat,1,x,sbat,1,x\ngrub,3,FSF,grub,2.06,u\nslipway,2,Slipway,slipway-grub,1,u\n").unwrap();
        assert_eq!(
            (grub.epoch(), grub.is_own(), grub.is_grub(), grub.version().as_deref()),
            (2, false, true, Some("2.06"))
        );
        let others = Sbat::parse(b"sbat,1,x,sbat,1,x\nsystemd,1,The systemd Developers,systemd,252,u\n").unwrap();
        assert_eq!((others.epoch(), others.is_own(), others.version()), (0, false, None));
        for none in [&b""[..], b"grub,1,a,b,c", b"sbat,x", b"sbat,1\ngrub", b"\xff"] {
            assert_eq!(Sbat::parse(none), None, "{none:?}");
        }
    }
}
