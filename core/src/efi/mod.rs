//! What UEFI starts and what it believes: programs in PE format, their signatures, unified kernel images, and the
//! variables with the certificates of Secure Boot.
//!
//! Nothing here signs. A signature is made of what a function here returns, by whoever holds the key.

pub mod certificate;
pub mod der;
pub mod pcr;
pub mod pe;
pub mod signed_data;
pub mod uki;
pub mod variable;
