//! The node's service. It carries out what `slipway-node` decides: one step at a time, each in the journal before it is
//! done.
//!
//! * [`config`]: the file `/etc/slipway/slipwayd.toml`
//! * [`store`]: the journal on the disk, in two copies
//! * [`durable`]: a file is replaced as a whole
//! * [`static_pods`]: the static pods of Kubernetes' control plane
//! * [`etcd_snapshots`]: the snapshot of etcd that is kept until an upgrade of Kubernetes is completed
//! * [`image_pulls`]: the images that are pulled before static pods change
//! * [`control_plane`]: the API's side of them, and the thread that works
//! * [`world`]: what the sequence asks of the world
//! * [`executor`]: the loop of look, decide, journal, do
//! * [`health`]: how the node is, while nothing disturbs it
//! * [`starts`]: whether the machine starts again and again
//! * [`service`]: the API's side: who asks, who watches
//! * [`logs`]: the logs of the kernel and of other services
//! * [`machine`]: the world as it is on a machine: the installer, the init system, mounts

pub mod config;
pub mod control_plane;
pub mod durable;
pub mod etcd_snapshots;
pub mod executor;
pub mod health;
pub mod image_pulls;
pub mod logs;
pub mod machine;
pub mod service;
pub mod starts;
pub mod static_pods;
pub mod store;
pub mod world;
