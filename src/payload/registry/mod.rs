//! LAYER 2: images in registries (OCI distribution specification 1.1, "Pull").
//!
//! What is asked for goes through these parts:
//!
//! ```text
//! Registry ── RetrySchedule: which endpoint, how often, which pauses
//!     └─► Endpoint: redirects, 401 ──► Auth: auth file, Basic, tokens
//!             └─► ureq ──► rustls with our Trust ──► Meter: cuts what is too slow ──► TCP
//! ```
//!
//! A blob is resumed where it was cut (`blob`). Nothing that comes is trusted: digests and sizes are for the reader
//! of the image to compare, except for the digest in the reference itself.

mod auth;
mod auth_file;
mod blob;
mod challenge;
mod endpoint;
mod failure;
mod meter;
mod mirror;
mod retry;
mod tls_roots;
mod url;

pub use meter::MinimumSpeed;
pub use mirror::{Mirror, MirrorError};

use std::{io::Read, path::PathBuf, sync::Arc, time::Duration};

use oci_spec::image::Descriptor;

use self::{
    auth::Auth,
    blob::BlobReader,
    endpoint::{Answer, Endpoint, Request},
    failure::{RequestError, header},
    retry::RetrySchedule,
    url::{Origin, Url},
};
use super::image::{Document, ImageError, ImageStore, MAX_DOCUMENT_BYTES};
use slipway_core::{
    digest::Sha256,
    payload::image_ref::{ImageRef, parse_digest},
};

/// Documents that are understood, and `*/*` for registries that label them as something else.
const ACCEPT: &str = "application/vnd.oci.image.index.v1+json, application/vnd.oci.image.manifest.v1+json, \
                      application/vnd.docker.distribution.manifest.list.v2+json, \
                      application/vnd.docker.distribution.manifest.v2+json, */*;q=0.1";
/// The name of Docker Hub in references, and the host it is served by.
const DOCKER_HUB: (&str, &str) = ("docker.io", "registry-1.docker.io");

/// How a registry is reached.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// http in place of https (`--plain-http`). Redirects may then lead away from TLS, too.
    pub plain_http: bool,
    /// Certificates are not checked (`--tls-verify=false`).
    pub insecure_tls: bool,
    /// Further authorities, in PEM form (`--registry-ca`).
    pub ca_files: Vec<PathBuf>,
    /// The auth file (`--authfile`); none for the usual ones of containers-auth.json(5).
    pub auth_file: Option<PathBuf>,
    /// Asked first, in this order (`--mirror HOST=URL`).
    pub mirrors: Vec<Mirror>,
    /// When to try again, and when to give up.
    pub patience: Patience,
}

/// When to try again, and when to give up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// Rounds that bring nothing before it is given up. Five, with pauses of 1, 2, 4 and 8 s, outlast a registry that
    /// is restarted.
    pub attempts: u32,
    /// The pause after the first failed round; it doubles.
    pub first_pause: Duration,
    /// The longest pause, unless the registry asks for a longer one (Retry-After, up to 60 s).
    pub longest_pause: Duration,
    /// For DNS, and for TCP and TLS together.
    pub connect: Duration,
    /// What is too slow. 1 KiB/s: a modem is faster; 30 s: a lost link shows itself earlier by TCP, if at all.
    pub pace: MinimumSpeed,
    /// Bytes between two cuts for which the attempts are counted anew. One byte would let a broken server go on
    /// for ever.
    pub progress_bytes: u64,
}

impl Default for Patience {
    fn default() -> Self {
        Patience {
            attempts: 5,
            first_pause: Duration::from_secs(1),
            longest_pause: Duration::from_secs(16),
            connect: Duration::from_secs(10),
            pace: MinimumSpeed { window: Duration::from_secs(30), least_bytes: 30 << 10 },
            progress_bytes: 64 << 10,
        }
    }
}

/// An image in a registry.
pub struct Registry {
    image: ImageRef,
    endpoints: Arc<Endpoints>,
}

/// The mirrors, then the registry itself.
struct Endpoints {
    list: Vec<Endpoint>,
    /// Theirs, for messages.
    names: Vec<String>,
    patience: Patience,
}

impl Endpoints {
    fn rounds(&self) -> RetrySchedule {
        RetrySchedule::new(self.list.len(), self.patience)
    }
}

impl Registry {
    /// Nothing is sent yet. Errors: an auth file or a certificate that cannot be used.
    pub fn new(image: &ImageRef, options: &Options) -> Result<Self, ImageError> {
        let host = if image.host == DOCKER_HUB.0 { DOCKER_HUB.1 } else { &image.host };
        let own = Url { origin: Origin::new(!options.plain_http, host), path: "/v2/".to_owned() };
        let of_host = options.mirrors.iter().filter(|mirror| mirror.host == image.host.to_ascii_lowercase());
        let bases = of_host.map(|mirror| (mirror.base.clone(), mirror.base.origin.authority.clone()));
        let mut list = Vec::new();
        for (base, name) in bases.chain([(own, image.host.clone())]) {
            let lookup = auth_file::lookup(options.auth_file.as_deref(), &name, &image.repository)?;
            let auth = Auth::new(lookup, base.origin.clone(), &image.repository);
            let base = Url { path: format!("{}{}/", base.path, image.repository), ..base };
            let tls = tls_roots::tls_config(&name, options)?;
            list.push(Endpoint::new(base, auth, tls, &options.patience, options.plain_http));
        }
        let names = list.iter().map(Endpoint::name).collect();
        Ok(Registry {
            image: image.clone(),
            endpoints: Arc::new(Endpoints { list, names, patience: options.patience }),
        })
    }

    /// For messages: `manifest 1.0 in docker://r.io/x`.
    fn what(&self, kind: &str, wanted: &str) -> String {
        format!("{kind} {wanted} in docker://{}/{}", self.image.host, self.image.repository)
    }

    /// A manifest by tag or digest; a digest is compared, so that a mirror with other content is passed by.
    fn manifest(&self, wanted: &str) -> Result<Document, ImageError> {
        let mut rounds = self.endpoints.rounds();
        let path = format!("manifests/{wanted}");
        loop {
            let request = Request { path: &path, accept: ACCEPT, start: 0, version: None };
            let answer = self.endpoints.list[rounds.endpoint()].get(&request);
            match answer.and_then(|answer| document(answer, parse_digest(wanted))) {
                Ok(document) => return Ok(document),
                Err(failure) => rounds
                    .failed(failure, &self.endpoints.names)
                    .map_err(|failure| failure.into_error(&self.what("manifest", wanted)))?,
            }
        }
    }
}

/// The content of an answer, compared with the digest that was asked for, or that the registry says it has.
fn document(answer: Answer, wanted: Option<Sha256>) -> Result<Document, RequestError> {
    let (mut response, origin) = (answer.response, answer.origin);
    let media_type = header(&response, "content-type").and_then(|text| text.split(';').next());
    let media_type = media_type.map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
    let said = header(&response, "docker-content-digest").and_then(parse_digest);
    let mut bytes = Vec::new();
    let body = response.body_mut().as_reader();
    body.take(MAX_DOCUMENT_BYTES + 1).read_to_end(&mut bytes).map_err(|e| failure::cut(&e, &origin))?;
    if bytes.len() as u64 > MAX_DOCUMENT_BYTES {
        return Err(RequestError::wrong(format!("{origin} sends more than {MAX_DOCUMENT_BYTES} bytes, the limit")));
    }
    match (wanted.or(said), Sha256::of(&bytes)) {
        (Some(digest), found) if digest != found => {
            let by = if wanted.is_some() { "that was asked for" } else { "the registry says it has" };
            Err(RequestError::wrong(format!(
                "the content {origin} sends has the digest sha256:{found}, not the one {by}"
            )))
        }
        _ => Ok(Document { media_type, bytes }),
    }
}

impl ImageStore for Registry {
    fn root(&self) -> Result<Document, ImageError> {
        self.manifest(&self.image.wanted())
    }

    fn document(&self, descriptor: &Descriptor) -> Result<Vec<u8>, ImageError> {
        Ok(self.manifest(descriptor.digest().as_ref())?.bytes)
    }

    fn blob(&self, descriptor: &Descriptor) -> Result<Box<dyn Read + Send>, ImageError> {
        let digest = descriptor.digest().as_ref();
        let (what, path) = (self.what("blob", digest), format!("blobs/{digest}"));
        let reader = BlobReader::open(Arc::clone(&self.endpoints), what, path, descriptor.size())?;
        Ok(Box::new(reader))
    }

    fn name(&self) -> String {
        format!("docker://{}", self.image)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoints(image: &str, options: &Options) -> Vec<String> {
        let registry = Registry::new(&image.parse().unwrap(), options).unwrap();
        registry.endpoints.list.iter().map(|endpoint| format!("{endpoint:?}")).collect()
    }

    #[test]
    fn who_is_asked() {
        let mirrors = ["docker.io=https://one/v2/hub", "r.io:5000=https://two", "docker.io=http://three"];
        let mirrors = mirrors.map(|mirror| mirror.parse().unwrap()).to_vec();
        let (tls, plain) =
            (Options { mirrors, ..Options::default() }, Options { plain_http: true, ..Options::default() });
        let hub = "https://registry-1.docker.io/v2/library/debian/";
        assert_eq!(
            endpoints("debian", &tls),
            ["https://one/v2/hub/library/debian/", "http://three/v2/library/debian/", hub]
        );
        assert_eq!(endpoints("R.io:5000/a", &tls), ["https://two/v2/a/", "https://r.io:5000/v2/a/"]);
        assert_eq!(endpoints("r.io/a", &tls), ["https://r.io/v2/a/"]);
        assert_eq!(endpoints("localhost/a", &Options::default()), ["https://localhost/v2/a/"]);
        assert_eq!(endpoints("localhost:5000/a", &plain), ["http://localhost:5000/v2/a/"]);
    }
}
