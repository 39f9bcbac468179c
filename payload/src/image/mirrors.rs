//! Mirrors: one whose bytes are wrong is named, and given up.

use std::{error::Error, io};

use oci_spec::image::Descriptor;

use super::{ImageError, ImageStore, error::AS_THE_MIRROR, store::read_document, verifying_reader::VerifyingReader};
use crate::{file_reader::PayloadChanged, payload_error::PayloadError};
use slipway_core::payload::format_checks::Unbootable;

/// The name of a blob that was just opened: who runs a mirror has to know that its bytes are wrong.
pub fn sent(name: String, store: &dyn ImageStore) -> String {
    match store.mirror() {
        Some(mirror) => format!("{name}{}{mirror}{}", AS_THE_MIRROR.0, AS_THE_MIRROR.1),
        None => name,
    }
}

/// Try again without a mirror whose bytes are wrong: the registry behind it may have the right ones.
pub fn past_mirrors<T, E>(
    store: &dyn ImageStore,
    is_wrong: impl Fn(&E) -> bool,
    mut attempt: impl FnMut() -> Result<T, E>,
) -> Result<T, E> {
    let mut failure = match attempt() {
        Err(failure) if is_wrong(&failure) => failure,
        other => return other,
    };
    while store.give_up_mirror() {
        match attempt() {
            Err(again) if is_wrong(&again) => failure = again,
            // Nobody else has it. The mirror stays the cause.
            Err(_) => break,
            Ok(done) => return Ok(done),
        }
    }
    Err(failure)
}

/// Where the content of a layer is wrong, its bytes may be, and then whoever sent them is at fault: `drain` reads the rest, and
/// compares their digest. Bytes that come in part from a disk are judged by whoever reads them from there.
pub fn or_of_its_bytes(error: anyhow::Error, drain: impl FnOnce() -> io::Result<()>) -> anyhow::Error {
    if !error.chain().any(is_of_content) {
        return error;
    }
    match drain().map_err(io::Error::downcast) {
        Err(Ok(wrong)) if ImageError::is_wrong(&wrong) => wrong.into(),
        _ => error,
    }
}

/// Whether all of a layer is read to tell whose fault wrong content is. From a registry that may take long, and only a mirror
/// has another one behind it.
pub fn can_be_judged(store: &dyn ImageStore) -> bool {
    store.mirror().is_some() || !store.has_ranges()
}

/// Whether the content of a payload is wrong: whoever reads the same bytes again finds the same.
pub fn is_of_content(error: &(dyn Error + 'static)) -> bool {
    error.is::<PayloadChanged>()
        || error.is::<PayloadError>()
        || error.is::<Unbootable>()
        || error.downcast_ref().is_some_and(ImageError::is_wrong)
}

/// All of a blob that is a document, compared with its digest.
pub fn read_blob(store: &dyn ImageStore, blob: &Descriptor, what: &str) -> Result<Vec<u8>, ImageError> {
    past_mirrors(store, ImageError::is_wrong, || {
        let bytes = store.blob(blob)?;
        let what = sent(what.to_owned(), store);
        read_document(VerifyingReader::of_blob(bytes, what.clone(), blob)?, &what)
    })
}
