//! The last part of making an image: compresses it and gives it its name.

use slipway_core::{
    media::format::Compression,
    report::{FailureKind, Observer},
};
use tempfile::NamedTempFile;

use crate::{
    error::{Failure, OrFail as _},
    media::{self, ImageError, OutputFile},
};

/// The ending of the name chooses the compression. Returns it, and the size of the file in bytes.
pub fn finish(
    image: NamedTempFile,
    output: &OutputFile,
    observer: &mut dyn Observer,
) -> Result<(Option<Compression>, u64), Failure> {
    let compression = Compression::from_path(&output.path().to_string_lossy());
    if compression.is_some() {
        let bytes = image.as_file().metadata().or_fail(FailureKind::Install)?.len();
        observer.phase(&format!("compress   {}, and read it back", output.path().display()), bytes);
    }
    let image = media::compress(image, compression, output, &mut |bytes| observer.advance(bytes)).map_err(failure)?;
    observer.phase(&format!("flush      {}", output.path().display()), 0);
    Ok((compression, output.publish(image).or_fail(FailureKind::Install)?))
}

pub fn failure(error: ImageError) -> Failure {
    let kind = match error {
        ImageError::Tool(_) => FailureKind::Dependency,
        ImageError::OutputFile(_) | ImageError::Storage { .. } | ImageError::Differs { .. } => FailureKind::Install,
    };
    Failure { kind, error: error.into() }
}
