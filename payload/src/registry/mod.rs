//! Images in registries (OCI distribution specification 1.1, "Pull"; "Push" is in `upload`).
//!
//! The way of a request:
//!
//! ```text
//! Registry ── RetrySchedule: which endpoint next, how often, which pauses
//!     └─► Endpoint: redirects, 401 ──► Auth: auth file, Basic, tokens
//!             └─► ureq ──► rustls with our roots ──► Metered: cuts slow connections ──► TCP
//! ```
//!
//! A blob that was cut is resumed (`blob`). Digests and sizes are verified by the reader of the image, except for a
//! digest in the reference itself.

#[cfg(feature = "clap")]
mod args;
mod auth;
mod auth_file;
mod blob;
mod challenge;
mod each_family;
mod endpoint;
mod foreign;
mod meter;
mod mirror;
mod options;
mod proxy;
mod proxy_connector;
mod referrers;
mod request_error;
mod retry;
mod tags;
mod tls;
mod upload;
mod url;

#[cfg(feature = "clap")]
pub use args::RegistryArgs;
pub use meter::MinimumSpeed;
pub use mirror::{Mirror, MirrorError};
pub use options::{Options, Patience};

use std::{
    io::Read,
    ops::Range,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use oci_spec::image::Descriptor;
use ureq::{Body, http::Response};

use self::{
    auth::Auth,
    blob::BlobReader,
    endpoint::{Answer, Endpoint, Endpoints, GetRequest},
    proxy::Proxies,
    request_error::{RequestError, header},
    url::{Origin, Url},
};
use super::image::{Document, FromRange, ImageError, ImageStore, Listing, MAX_DOCUMENT_BYTES, RangeRequest};
use slipway_core::{
    digest::Sha256,
    payload::image_ref::{ImageRef, parse_digest, registry_name},
};

// The media types we understand, and `*/*` for registries that serve them under another type.
const ACCEPT: &str = "application/vnd.oci.image.index.v1+json, application/vnd.oci.image.manifest.v1+json, \
                      application/vnd.docker.distribution.manifest.list.v2+json, \
                      application/vnd.docker.distribution.manifest.v2+json, */*;q=0.1";
// Its name in references, and the host that serves it.
const DOCKER_HUB: (&str, &str) = ("docker.io", "registry-1.docker.io");

/// A registry may take so long to store a blob that it has got, and says nothing meanwhile.
const STORING: Duration = Duration::from_secs(300);

#[derive(Clone)]
pub struct Registry {
    image: ImageRef,
    endpoints: Arc<Endpoints>,
}

impl Registry {
    /// Reads auth files and certificates but sends nothing yet.
    pub fn new(image: &ImageRef, options: &Options) -> Result<Self, ImageError> {
        Self::with(image, options, "pull")
    }

    /// To put something there. Mirrors have no part in that.
    pub fn to_push(image: &ImageRef, options: &Options) -> Result<Self, ImageError> {
        let pace = MinimumSpeed { window: STORING, ..options.patience.pace };
        let patience = Patience { pace, ..options.patience };
        Self::with(image, &Options { mirrors: vec![], patience, ..options.clone() }, "pull,push")
    }

    fn with(image: &ImageRef, options: &Options, actions: &str) -> Result<Self, ImageError> {
        let host = if image.host == DOCKER_HUB.0 { DOCKER_HUB.1 } else { &image.host };
        let own = Url { origin: Origin::new(!options.plain_http, host), path: "/v2/".to_owned() };
        let of_host = options.mirrors.iter().filter(|mirror| registry_name(&mirror.host) == registry_name(&image.host));
        let bases = of_host.map(|mirror| (mirror.base.clone(), mirror.base.origin.authority.clone()));
        let (mut list, proxies) = (Vec::new(), Proxies::of_environment());
        for (base, name) in bases.chain([(own, image.host.clone())]) {
            // A mirror may have the repositories in a place of its own.
            let place = base.path.split_once("/v2/").map_or("", |(_, place)| place);
            let repository = format!("{place}{}", image.repository);
            let lookup = auth_file::lookup(options.auth_file.as_deref(), &name, &repository)?;
            let open = !base.origin.tls && !options.plain_http;
            let lookup = if open { lookup.withheld() } else { lookup };
            let auth = Auth::new(lookup, base.origin.clone(), &repository, actions);
            let base = Url { path: format!("{}{}/", base.path, image.repository), ..base };
            let tls = tls::config(&name, options)?;
            list.push(Endpoint::new(base, auth, &tls, proxies.clone(), options));
        }
        let names = list.iter().map(Endpoint::name).collect();
        let Options { patience, deadline, .. } = *options;
        Ok(Registry {
            image: image.clone(),
            endpoints: Arc::new(Endpoints {
                list,
                names,
                patience,
                deadline,
                fetched: AtomicU64::new(0),
                answered: AtomicUsize::new(usize::MAX),
                parts_failed: OnceLock::new(),
            }),
        })
    }

    /// Another image of the same repository, over the same connections, with the same credentials and tokens.
    pub fn tagged_as(&self, tag: &str) -> Self {
        self.other(Some(tag.to_owned()), None)
    }

    /// The image of this digest in the same repository.
    pub fn of_digest(&self, digest: Sha256) -> Self {
        self.other(None, Some(digest))
    }

    fn other(&self, tag: Option<String>, digest: Option<Sha256>) -> Self {
        Registry { image: ImageRef { tag, digest, ..self.image.clone() }, endpoints: Arc::clone(&self.endpoints) }
    }

    /// The image that it names.
    pub fn image(&self) -> &ImageRef {
        &self.image
    }

    /// For messages: `manifest 1.0 in docker://r.io/x`.
    fn what(&self, kind: &str, wanted: &str) -> String {
        format!("{kind} {wanted} in docker://{}/{}", self.image.host, self.image.repository)
    }

    /// The digest that the reference names: of the index, where there is one. Only headers are asked for, unless the
    /// registry does not say it there.
    pub fn digest(&self) -> Result<Sha256, ImageError> {
        let wanted = self.image.wanted();
        let path = format!("manifests/{wanted}");
        let request = GetRequest { path: &path, accept: ACCEPT, start: 0, end: None, version: None, head: true };
        let asked = self.first(|endpoint| endpoint.get(&request));
        match asked.map(|answer| header(&answer.response, "docker-content-digest").and_then(parse_digest)) {
            Ok(Some(digest)) => Ok(digest),
            // Some registries answer nothing but GET. Other failures would come again: a password may be refused only so often.
            Err(failure) if !failure.may_be_of_head() => Err(failure.into_error(&self.what("manifest", &wanted))),
            Ok(None) | Err(_) => Ok(Sha256::of(&self.manifest(&wanted)?.bytes)),
        }
    }

    /// A manifest by tag or digest. A digest is verified here, so that a mirror with wrong content is skipped.
    fn manifest(&self, wanted: &str) -> Result<Document, ImageError> {
        let path = format!("manifests/{wanted}");
        let request = GetRequest { path: &path, accept: ACCEPT, start: 0, end: None, version: None, head: false };
        let got = self.first(|endpoint| document(endpoint.get(&request)?, parse_digest(wanted)));
        let document = got.map_err(|failure| failure.into_error(&self.what("manifest", wanted)))?;
        self.endpoints.fetched.fetch_add(document.bytes.len() as u64, Ordering::Relaxed);
        Ok(document)
    }

    /// The answer of the first endpoint that answers as it should.
    fn first<T>(&self, mut ask: impl FnMut(&Endpoint) -> Result<T, RequestError>) -> Result<T, RequestError> {
        let mut schedule = self.endpoints.schedule();
        loop {
            let at = schedule.endpoint();
            match ask(&self.endpoints.list[at]) {
                Ok(answer) => {
                    self.endpoints.list[at].has_answered.store(true, Ordering::Relaxed);
                    return Ok(answer);
                }
                // Most images have no signature, and a mirror that is down would be waited for at each look-up.
                Err(failure) if failure.is_no() && self.endpoints.is_all_by(at) => return Err(failure),
                Err(failure) => schedule.failed(failure, &self.endpoints.names)?,
            }
        }
    }
}

/// The content of an answer. Verifies the requested digest, or else the one in the registry's header.
fn document(answer: Answer, wanted: Option<Sha256>) -> Result<Document, RequestError> {
    let (mut response, origin) = (answer.response, answer.origin);
    let media_type = header(&response, "content-type").and_then(|text| text.split(';').next());
    let media_type = media_type.map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
    let said = header(&response, "docker-content-digest").and_then(parse_digest);
    let encoded = foreign::encoded(header(&response, "content-encoding").unwrap_or_default(), &origin);
    let bytes = body(&mut response, &origin)?;
    let (digest, found) = (wanted.or(said), Sha256::of(&bytes));
    // Content with the right digest is the registry's, in any form.
    if digest != Some(found)
        && let Some(foreign) = foreign::no_json(&bytes, &origin)
    {
        return Err(encoded.unwrap_or(foreign));
    }
    match (digest, found) {
        (Some(digest), found) if digest != found => {
            let by = if wanted.is_some() { "that was asked for" } else { "the registry says it has" };
            Err(RequestError::wrong(format!(
                "the content {origin} sends has the digest sha256:{found}, not the one {by}"
            )))
        }
        _ => Ok(Document { media_type, bytes }),
    }
}

/// The whole body, at most [`MAX_DOCUMENT_BYTES`].
fn body(response: &mut Response<Body>, origin: &Origin) -> Result<Vec<u8>, RequestError> {
    let bytes = request_error::body(response, MAX_DOCUMENT_BYTES + 1, origin)?;
    if bytes.len() as u64 > MAX_DOCUMENT_BYTES {
        return Err(RequestError::wrong(format!("{origin} sends more than the limit of {MAX_DOCUMENT_BYTES} bytes")));
    }
    Ok(bytes)
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

    fn blob_from(&self, descriptor: &Descriptor, range: Range<u64>) -> RangeRequest {
        let digest = descriptor.digest().as_ref();
        let (what, path) = (self.what("blob", digest), format!("blobs/{digest}"));
        let (endpoints, size) = (Arc::clone(&self.endpoints), descriptor.size());
        Box::new(move || {
            if let Some(why) = endpoints.parts_failed.get() {
                return Err(ImageError::Fetch { what, why: why.clone() });
            }
            let reader = BlobReader::open_range(endpoints, what, path, size, range)?;
            let goes_on = reader.goes_on();
            Ok(FromRange { reader: Box::new(reader), goes_on })
        })
    }

    fn has_ranges(&self) -> bool {
        true
    }

    fn parts_failed(&self) -> Option<&str> {
        self.endpoints.parts_failed.get().map(String::as_str)
    }

    fn fetched(&self) -> u64 {
        self.endpoints.fetched.load(Ordering::Relaxed)
    }

    fn mirror(&self) -> Option<&str> {
        // The last one is the registry itself.
        let (_, mirrors) = self.endpoints.names.split_last()?;
        mirrors.get(self.endpoints.answered.load(Ordering::Relaxed)).map(String::as_str)
    }

    fn give_up_mirror(&self) -> bool {
        self.endpoints.give_up_mirror()
    }

    fn tagged(&self, tag: &str) -> Result<Listing<Document>, ImageError> {
        match self.manifest(tag) {
            Ok(document) => Ok(vec![document].into()),
            Err(ImageError::NotFound { .. }) => Ok(Listing::default()),
            Err(error) => Err(error),
        }
    }

    fn referrers(&self, image: Sha256) -> Result<Listing<Descriptor>, ImageError> {
        self.referrers_of(image)
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
        for name in ["docker.io/debian", "Docker.io/library/debian", "index.docker.io/debian"] {
            assert_eq!(endpoints(name, &tls).last().unwrap(), hub, "{name}");
            assert_eq!(endpoints(name, &tls).len(), 3, "{name}");
        }
        assert_eq!(endpoints("R.io:5000/a", &tls), ["https://two/v2/a/", "https://r.io:5000/v2/a/"]);
        assert_eq!(endpoints("r.io/a", &tls), ["https://r.io/v2/a/"]);
        assert_eq!(endpoints("localhost/a", &Options::default()), ["https://localhost/v2/a/"]);
        assert_eq!(endpoints("localhost:5000/a", &plain), ["http://localhost:5000/v2/a/"]);
    }
}
