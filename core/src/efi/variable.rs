//! The variables of Secure Boot: lists of certificates and digests, and the form in which firmware takes a change of them
//! (UEFI 2.10, sections 8.2.2 and 32.4.1). Files in this form are called `.auth`.

use crate::prelude::*;

use uuid::{Builder, Uuid, uuid};

use super::{certificate::Certificate, signed_data::Unsigned};
use crate::digest::Sha256;

const GLOBAL: Uuid = uuid!("8be4df61-93ca-11d2-aa0d-00e098032b8c");
const SECURITY_DATABASE: Uuid = uuid!("d719b2cb-3d3a-4596-a3bc-dad00e67656f");
const X509: Uuid = uuid!("a5c059a1-94e4-4aa7-87b5-ab155c2bf072");
const DIGEST: Uuid = uuid!("c1c41626-504c-4092-aca9-41f936934328");
const PKCS7: Uuid = uuid!("4aafd29d-68df-49ee-8aa9-347d375665a7");

// Non-volatile, for boot services and at run time, changed only with a signature that has a time.
const ATTRIBUTES: u32 = 0x27;
const APPEND: u32 = 0x40;

const GUID_BYTES: usize = 16;
const LIST_BYTES: usize = GUID_BYTES + 3 * 4;
const TIME_BYTES: usize = 16;
// WIN_CERTIFICATE_UEFI_GUID.
const CERTIFICATE_HEADER: usize = 8;
const REVISION: u16 = 0x200;
const TYPE_GUID: u16 = 0xef1;

/// One of the variables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variable {
    /// The platform key: its owner may change KEK. Without one, a machine is in setup mode.
    Pk,
    /// Key exchange keys: their owners may change db and dbx.
    Kek,
    /// What may start.
    Db,
    /// What may not, although db lets it.
    Dbx,
}

impl Variable {
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
}

/// A list with one certificate. `owner` tells who has put it in.
pub fn certificate_list(certificate: &[u8], owner: Uuid) -> Vec<u8> {
    list(X509, owner, &[certificate])
}

/// A list of programs, by their Authenticode digests.
pub fn digest_list(digests: &[Sha256], owner: Uuid) -> Vec<u8> {
    list(DIGEST, owner, &digests.iter().map(|digest| &digest.0[..]).collect::<Vec<_>>())
}

// EFI_SIGNATURE_LIST. All entries are of one size.
fn list(kind: Uuid, owner: Uuid, entries: &[&[u8]]) -> Vec<u8> {
    let entry = GUID_BYTES + entries.first().map_or(0, |entry| entry.len());
    let mut bytes = kind.to_bytes_le().to_vec();
    for number in [LIST_BYTES + entries.len() * entry, 0, entry] {
        bytes.extend((number as u32).to_le_bytes());
    }
    for content in entries {
        bytes.extend(owner.to_bytes_le());
        bytes.extend_from_slice(content);
    }
    bytes
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
    /// something older than what it holds.
    pub fn new(variable: Variable, append: bool, content: Vec<u8>, seconds: u32, by: &Certificate) -> Self {
        let time = efi_time(seconds);
        let attributes = if append { ATTRIBUTES | APPEND } else { ATTRIBUTES };
        let mut message: Vec<u8> = variable.name().encode_utf16().flat_map(u16::to_le_bytes).collect();
        message.extend(variable.vendor().to_bytes_le());
        message.extend(attributes.to_le_bytes());
        message.extend(time);
        message.extend(&content);
        Change { time, content, unsigned: Unsigned::of_bytes(&message, by) }
    }

    /// What the key of the certificate signs: by PKCS #1 v1.5, with SHA-256.
    pub fn message(&self) -> &[u8] {
        self.unsigned.message()
    }

    /// EFI_VARIABLE_AUTHENTICATION_2 with this signature, and the lists behind it: what firmware takes, and what an `.auth`
    /// file holds.
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

    #[test]
    fn lists_have_the_sizes_of_the_specification() {
        let owner = uuid!("01020304-0506-0708-090a-0b0c0d0e0f10");
        let digests = digest_list(&[Sha256::of(b"a"), Sha256::of(b"b")], owner);
        assert_eq!(digests.len(), 28 + 2 * 48);
        assert_eq!(digests[16..28], [124, 0, 0, 0, 0, 0, 0, 0, 48, 0, 0, 0]);
        assert_eq!(digests[28..36], [4, 3, 2, 1, 6, 5, 8, 7]);
        assert_eq!(digests[44..76], Sha256::of(b"a").0);
        assert_eq!(certificate_list(&[7; 100], owner)[16..28], [144, 0, 0, 0, 0, 0, 0, 0, 116, 0, 0, 0]);
    }
}
