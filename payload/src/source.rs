//! The open source of a payload: a directory, an image layout, or an image in a registry.

use oci_spec::image::Descriptor;

use super::{
    ChecksumPolicy, DirSource, SignedList, SourceRef,
    image::{ImageError, ImageSource, ImageStore, Inspection, Local},
    registry::{Options, Registry},
};
use crate::{
    delta::Old,
    file_reader::{PayloadFiles, Take},
    trust::Evidence,
};
use slipway_core::{
    delta::{index::Index, reuse::Moved},
    kernel::arch::Arch,
    payload::{
        facts::PayloadFacts,
        unused::{is_other_rootfs, unused},
    },
};

pub enum Source {
    Dir(DirSource),
    Image(Box<ImageSource>),
}

pub fn image_store(source: &SourceRef, options: &Options) -> Result<Box<dyn ImageStore>, ImageError> {
    Ok(match source {
        SourceRef::Dir(_) => return Err(ImageError::invalid(source.to_string(), "not a container image")),
        SourceRef::Oci(dir, image) => Box::new(Local::directory(dir, image.clone(), source.to_string())?.only_read()),
        SourceRef::OciArchive(file, image) => {
            Box::new(Local::archive(file, image.clone(), source.to_string())?.only_read())
        }
        SourceRef::Docker(image) => Box::new(Registry::new(image, options)?),
    })
}

impl Source {
    /// Open a source. For an image this reads the manifest, so a wrong reference fails here.
    pub fn open(source: &SourceRef, arch: Arch, options: &Options) -> Result<Self, ImageError> {
        match source {
            SourceRef::Dir(dir) => Ok(Source::Dir(DirSource::new(dir))),
            _ => ImageSource::open(image_store(source, options)?, source.clone(), arch)
                .map(|image| Source::Image(Box::new(image))),
        }
    }

    /// An estimate, for progress, of the bytes that an inspection will read.
    pub fn bytes(&self, inspection: Inspection) -> u64 {
        match (self, inspection) {
            (_, Inspection::Declared) => 0,
            (Source::Dir(dir), Inspection::Everything) => dir.bytes(),
            (Source::Image(image), Inspection::Everything) => image.bytes(),
        }
    }

    /// A note on files beside the payload's that nothing uses, after an inspection.
    pub fn unused(&self) -> Option<String> {
        unused(&self.names())
    }

    /// A file that may be meant for its root file system, after an inspection of a payload without one.
    pub fn other_rootfs(&self) -> Option<String> {
        self.names().into_iter().find(|name| is_other_rootfs(name))
    }

    fn names(&self) -> Vec<String> {
        match self {
            Source::Dir(dir) => dir.names(),
            Source::Image(image) => image.names(),
        }
    }

    /// The indexes of chunks that the layers of an image have; why one cannot be used.
    pub fn chunks(&self) -> Vec<Result<(Descriptor, Index), ImageError>> {
        match self {
            Source::Dir(_) => vec![],
            Source::Image(image) => image.chunks(),
        }
    }

    /// Evidence that it was signed.
    pub fn evidence(&mut self) -> anyhow::Result<Evidence> {
        match self {
            Source::Dir(dir) => Ok(dir.evidence()?),
            Source::Image(image) => Ok(image.evidence()),
        }
    }

    /// The list that is signed, and its signatures, of a directory that has them. After an inspection.
    pub fn signed(&self) -> Option<SignedList<'_>> {
        match self {
            Source::Dir(dir) => dir.signed(),
            Source::Image(_) => None,
        }
    }

    /// All of it, where a disk may have parts of it already.
    pub fn facts_over(
        &mut self,
        policy: ChecksumPolicy,
        old: &Old<'_>,
        progress: &mut dyn FnMut(u64),
    ) -> anyhow::Result<PayloadFacts> {
        match self {
            Source::Dir(dir) => Ok(dir.facts(policy, Inspection::Everything, progress)?),
            Source::Image(image) => image.facts_over(policy, old, progress),
        }
    }

    pub fn facts(
        &mut self,
        policy: ChecksumPolicy,
        inspection: Inspection,
        progress: &mut dyn FnMut(u64),
    ) -> anyhow::Result<PayloadFacts> {
        match self {
            Source::Dir(dir) => Ok(dir.facts(policy, inspection, progress)?),
            Source::Image(image) => image.facts(policy, inspection, progress),
        }
    }
}

impl PayloadFiles for Source {
    fn each(&self, names: &[&str], take: &mut Take) -> anyhow::Result<()> {
        match self {
            Source::Dir(dir) => dir.each(names, take),
            Source::Image(image) => image.each(names, take),
        }
    }

    fn fetched(&self) -> u64 {
        match self {
            Source::Dir(_) => 0,
            Source::Image(image) => image.fetched(),
        }
    }

    fn would_move(&self, old: &Old<'_>) -> Option<Moved> {
        match self {
            Source::Dir(_) => None,
            Source::Image(image) => image.would_move(old),
        }
    }

    fn each_over(&self, names: &[&str], old: &Old<'_>, take: &mut Take) -> anyhow::Result<()> {
        match self {
            Source::Dir(dir) => dir.each(names, take),
            Source::Image(image) => image.each_over(names, old, take),
        }
    }
}
