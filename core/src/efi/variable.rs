//! The variables of Secure Boot, and the form in which firmware takes a change of them (UEFI 2.10, section 8.2.2). Files
//! in this form are called `.auth`: they are made here, and read in [`super::auth`].

use crate::prelude::*;

use uuid::{Builder, Uuid, uuid};

use super::{certificate::Certificate, signed_data::Unsigned};
use crate::{bytes::get_le32, digest::Sha256};

const GLOBAL: Uuid = uuid!("8be4df61-93ca-11d2-aa0d-00e098032b8c");
const SECURITY_DATABASE: Uuid = uuid!("d719b2cb-3d3a-4596-a3bc-dad00e67656f");
const PKCS7: Uuid = uuid!("4aafd29d-68df-49ee-8aa9-347d375665a7");

/// Attributes of these variables: non-volatile, for boot services and at run time, changed only with a signature that
/// has a time.
pub const ATTRIBUTES: u32 = 0x27;
const APPEND: u32 = 0x40;

const GUID_BYTES: usize = 16;
const TIME_BYTES: usize = 16;
// WIN_CERTIFICATE_UEFI_GUID.
const CERTIFICATE_HEADER: usize = 8;
const REVISION: u16 = 0x200;
const TYPE_GUID: u16 = 0xef1;

/// One of the variables.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize, schemars::JsonSchema,
)]
pub enum Variable {
    /// The platform key: its owner may change KEK. Without one, a machine is in setup mode.
    #[serde(rename = "PK")]
    Pk,
    /// Key exchange keys: their owners may change db and dbx.
    #[serde(rename = "KEK")]
    Kek,
    /// The programs that may start.
    #[serde(rename = "db")]
    Db,
    /// The programs that may not start, although db allows them.
    #[serde(rename = "dbx")]
    Dbx,
}

impl Variable {
    /// All variables.
    pub const ALL: [Variable; 4] = [Variable::Pk, Variable::Kek, Variable::Db, Variable::Dbx];

    /// Its name, as firmware and the files have it.
    pub const fn name(self) -> &'static str {
        match self {
            Variable::Pk => "PK",
            Variable::Kek => "KEK",
            Variable::Db => "db",
            Variable::Dbx => "dbx",
        }
    }

    /// The vendor's GUID, which belongs to the name.
    pub const fn vendor(self) -> Uuid {
        match self {
            Variable::Pk | Variable::Kek => GLOBAL,
            Variable::Db | Variable::Dbx => SECURITY_DATABASE,
        }
    }

    /// The signed bytes of a change of it: to set it to this content, or to append that.
    pub fn message(self, append: bool, time: &[u8], content: &[u8]) -> Vec<u8> {
        let attributes = if append { ATTRIBUTES | APPEND } else { ATTRIBUTES };
        let mut message: Vec<u8> = self.name().encode_utf16().flat_map(u16::to_le_bytes).collect();
        message.extend(self.vendor().to_bytes_le());
        message.extend(attributes.to_le_bytes());
        message.extend_from_slice(time);
        message.extend_from_slice(content);
        message
    }
}

/// The owner that Talos puts in: made of the certificate's file (PEM), so that it is the same for the same file.
pub fn owner_of(pem: &[u8]) -> Uuid {
    let digest = Sha256::of(&[Uuid::NAMESPACE_X500.as_bytes(), pem].concat());
    let mut bytes = [0; GUID_BYTES];
    bytes.copy_from_slice(&digest.0[..GUID_BYTES]);
    Builder::from_random_bytes(bytes).into_uuid()
}

/// A change of a variable.
#[derive(Clone, Debug)]
pub struct Change {
    time: [u8; TIME_BYTES],
    content: Vec<u8>,
    unsigned: Unsigned,
}

impl Change {
    /// Set a variable to these lists, or append them. `seconds` since 1970, UTC: firmware refuses to set a variable to
    /// older content than it has.
    pub fn new(variable: Variable, append: bool, content: Vec<u8>, seconds: u32, by: &Certificate) -> Self {
        let time = efi_time(seconds);
        let message = variable.message(append, &time, &content);
        Change { time, content, unsigned: Unsigned::of_bytes(&message, by) }
    }

    /// Bytes that the key of the certificate signs: by PKCS #1 v1.5, with SHA-256.
    pub fn message(&self) -> &[u8] {
        self.unsigned.message()
    }

    /// EFI_VARIABLE_AUTHENTICATION_2 with this signature, and the lists behind it: the form for firmware, and for an
    /// `.auth` file.
    pub fn signed(&self, signature: &[u8]) -> Vec<u8> {
        let signed = self.unsigned.signed(signature);
        let mut bytes = self.time.to_vec();
        bytes.extend(((CERTIFICATE_HEADER + GUID_BYTES + signed.len()) as u32).to_le_bytes());
        bytes.extend(REVISION.to_le_bytes());
        bytes.extend(TYPE_GUID.to_le_bytes());
        bytes.extend(PKCS7.to_bytes_le());
        bytes.extend(signed);
        bytes.extend(&self.content);
        bytes
    }
}

/// The parts of an EFI_VARIABLE_AUTHENTICATION_2 and the content behind it.
pub(super) struct Parts<'b> {
    pub time: &'b [u8],
    /// SignedData.
    pub signed: &'b [u8],
    /// New content of the variable.
    pub content: &'b [u8],
}

/// None if it is something else.
pub(super) fn split(bytes: &[u8]) -> Option<Parts<'_>> {
    let (time, rest) = bytes.split_at_checked(TIME_BYTES)?;
    let length = usize::try_from(get_le32(rest, 0)?).ok()?;
    let (certificate, content) = rest.split_at_checked(length)?;
    let (header, signed) = certificate.split_at_checked(CERTIFICATE_HEADER + GUID_BYTES)?;
    let kind = [&REVISION.to_le_bytes()[..], &TYPE_GUID.to_le_bytes(), &PKCS7.to_bytes_le()].concat();
    (header[4..] == kind).then_some(Parts { time, signed, content })
}

// EFI_TIME: fractions of a second, time zone and daylight saving have to be zero here.
fn efi_time(seconds: u32) -> [u8; TIME_BYTES] {
    const DAY: u32 = 86400;
    let (year, month, day) = date(seconds / DAY);
    let of_day = seconds % DAY;
    let mut time = [0; TIME_BYTES];
    time[..2].copy_from_slice(&year.to_le_bytes());
    time[2..7].copy_from_slice(&[month, day, (of_day / 3600) as u8, (of_day / 60 % 60) as u8, (of_day % 60) as u8]);
    time
}

/// Year, month and day, so many days after 1970-01-01.
fn date(mut days: u32) -> (u16, u8, u8) {
    let leaps = |year: u16| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let mut year = 1970;
    while days >= 365 + u32::from(leaps(year)) {
        days -= 365 + u32::from(leaps(year));
        year += 1;
    }
    let february = 28 + u32::from(leaps(year));
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    (year, month, days as u8 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_have_their_dates() {
        for (seconds, expected) in [
            (0, (1970, 1, 1, 0, 0, 0)),
            (951_782_399, (2000, 2, 28, 23, 59, 59)),
            (951_782_400, (2000, 2, 29, 0, 0, 0)),
            (1_767_225_600, (2026, 1, 1, 0, 0, 0)),
            (u32::MAX, (2106, 2, 7, 6, 28, 15)),
        ] {
            let time = efi_time(seconds);
            let year = u16::from_le_bytes([time[0], time[1]]);
            assert_eq!((year, time[2], time[3], time[4], time[5], time[6]), expected);
            assert_eq!(time[7..], [0; 9]);
        }
    }
}
