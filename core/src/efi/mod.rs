//! UEFI formats and trust: programs in PE format, their signatures, unified kernel images, and the variables with
//! the certificates of Secure Boot.
//!
//! Nothing here signs. The owner of the key signs the bytes that a function here returns.

pub mod auth;
pub mod boot_image;
pub mod certificate;
pub mod claim;
pub mod database;
pub mod der;
pub mod pcr;
pub mod pe;
pub mod sbat;
pub mod signature;
pub mod signature_list;
pub mod signed_data;
pub mod uki;
pub mod variable;

pub use slipway_boot::{enroll_mode, option_rom};
