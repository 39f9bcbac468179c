//! Opens an image together with the place for its signatures.

use crate::payload::{
    SourceRef,
    image::{ImageError, LayoutSink, Local, Signable, WholeImage},
    registry::{Options, Registry},
};

/// An image that can be signed, and the place's name for people: `oci:DIR` or `docker://HOST/REPOSITORY`. `None`: the
/// source is no such image.
pub fn signable(target: &SourceRef, options: &Options) -> Result<Option<(Signable, String)>, ImageError> {
    Ok(match target {
        SourceRef::Oci(dir, wanted) => {
            let store = Local::directory(dir, wanted.clone(), target.to_string())?;
            let signable = Signable::new(WholeImage::open(Box::new(store))?, Box::new(LayoutSink::new(dir)));
            Some((signable, format!("oci:{}", dir.display())))
        }
        SourceRef::Docker(image) => {
            let registry = Registry::to_push(image, options)?;
            let place = format!("docker://{}/{}", image.host, image.repository);
            Some((Signable::new(WholeImage::open(Box::new(registry.clone()))?, Box::new(registry)), place))
        }
        SourceRef::Dir(_) | SourceRef::OciArchive(..) => None,
    })
}
