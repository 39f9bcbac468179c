//! Certificates that most machines have from their makers: Microsoft's. `assets/microsoft/README.md` says where they are
//! from.

use slipway_core::efi::signature_list::certificate_list;
use uuid::{Uuid, uuid};

/// Owner that the entries name, as on other machines.
const MICROSOFT: Uuid = uuid!("77fa9abd-0359-4d32-bd60-28f4e78f784b");

const KEK: [&[u8]; 2] = [
    include_bytes!("../../assets/microsoft/ms-kek-2011.der"),
    include_bytes!("../../assets/microsoft/ms-kek-2023.der"),
];

const DB: [&[u8]; 5] = [
    include_bytes!("../../assets/microsoft/ms-uefi-2011.der"),
    include_bytes!("../../assets/microsoft/ms-uefi-2023.der"),
    include_bytes!("../../assets/microsoft/ms-uefi-rom-2023.der"),
    include_bytes!("../../assets/microsoft/windows-2011.der"),
    include_bytes!("../../assets/microsoft/windows-2023.der"),
];

/// For KEK.
pub fn kek() -> Vec<u8> {
    lists(&KEK)
}

/// For db.
pub fn db() -> Vec<u8> {
    lists(&DB)
}

fn lists(certificates: &[&[u8]]) -> Vec<u8> {
    certificates.iter().flat_map(|certificate| certificate_list(certificate, MICROSOFT)).collect()
}
