//! What is wanted of an upgrade, and its part of a command line: a person's, and that of the fleet's Job.

use std::time::Duration;

use clap::{Args, builder::TypedValueParser};
use slipway_kubernetes::{
    add_ons::{self, AddOn, Given},
    facts::Direction,
    images::{self, Images},
    version::Version,
};

/// How long nothing may change before a run gives up, unless a person says otherwise.
pub const PATIENCE: Duration = Duration::from_secs(900);

/// What is wanted.
#[derive(Clone, Debug)]
pub struct Wish {
    /// Where to.
    pub direction: Direction,
    /// The version; on the way back, the one to leave.
    pub target: Version,
    /// The images that people pin.
    pub images: Images,
    /// The add-ons that people give to the upgrade.
    pub add_ons: Given,
    /// Have nodes pull their images before anything is touched.
    pub pre_pull: bool,
    /// Have servers that know it emulate their older minor version, until everything has been well for so long.
    pub emulate: bool,
    /// How long everything must have been well before the way back closes.
    pub soak: Duration,
    /// How long nothing may change before the run gives up. Nodes go on with what they do.
    pub patience: Duration,
    /// Make a snapshot of etcd before anything is touched.
    pub snapshot: bool,
    /// Look at the certificates that etcd and kubelets show.
    pub serving_certificates: bool,
    /// The namespace in which a trial write asks the admission webhooks.
    pub trial_in: String,
}

/// An upgrade, as a command line wants it.
#[derive(Args, Clone, Debug)]
pub struct WishArgs {
    /// The version
    #[arg(long, value_name = "VERSION")]
    pub to: Version,
    /// How long everything must have been well before the way back closes, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 300, value_parser = seconds())]
    pub soak: u64,
    /// The image of a component, with the tag of the version and a digest:
    /// kube-apiserver=registry.example/kube-apiserver:v1.31.2@sha256:DIGEST
    #[arg(long = "image", value_name = "COMPONENT=IMAGE", value_parser = images::named)]
    pub images: Vec<(String, String)>,
    /// An add-on that gets its image, too, after completion: kube-proxy that of the version, coredns the one of --image.
    /// Name only what nothing else upgrades
    #[arg(long = "add-on", value_name = "NAME")]
    pub add_ons: Vec<AddOn>,
    /// Have servers that know it, from 1.32 on, emulate their older minor version until everything has been well for long
    /// enough. Then each starts once more
    #[arg(long)]
    pub emulate: bool,
    /// Have nodes pull no images before anything is touched
    #[arg(long)]
    pub no_pre_pull: bool,
    /// Make no snapshot of etcd before anything is touched
    #[arg(long)]
    pub no_snapshot: bool,
    /// Look at no certificate that etcd and the kubelets of the control plane show
    #[arg(long)]
    pub no_serving_certificates: bool,
}

impl WishArgs {
    /// What it wants; trial writes go into the namespace `trial_in`.
    ///
    /// # Errors
    ///
    /// An add-on has no image, or two, or one of another version.
    pub fn wish(&self, trial_in: &str) -> Result<Wish, String> {
        let names = self.add_ons.iter().map(|add_on| add_on.name());
        let (images, add_ons) = add_ons::named(names, self.images.clone(), &self.to)?;
        Ok(Wish {
            direction: Direction::Forward,
            target: self.to.clone(),
            images,
            add_ons,
            pre_pull: !self.no_pre_pull,
            emulate: self.emulate,
            soak: Duration::from_secs(self.soak),
            patience: PATIENCE,
            snapshot: !self.no_snapshot,
            serving_certificates: !self.no_serving_certificates,
            trial_in: trial_in.to_owned(),
        })
    }
}

/// At most a year.
pub fn seconds() -> impl TypedValueParser<Value = u64> {
    clap::value_parser!(u64).range(..=365 * 24 * 3600)
}
