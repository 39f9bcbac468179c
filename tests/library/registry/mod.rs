//! The registry client, against a server on loopback that misbehaves in every way we know of. What needs certificates or
//! Debian's docker-registry: `tests/sources/registry/`.

mod answers;
mod auth;
mod blobs;
mod mirrors;
mod tags;
