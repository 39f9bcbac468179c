//! The registry client with certificates, with Debian's docker-registry, and in environments of its own. Everything else
//! about it: `tests/library/registry/`.

mod certificates;
mod debian;
mod environment;
mod proxies;
mod tls;
