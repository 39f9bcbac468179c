//! `installer unattended`.

use slipway_core::report::{Observer, Report};

use super::{asked, defaults::Defaults};
use crate::{cli::UnattendedArgs, error::Failure, ops::unattended};

pub fn run(args: &UnattendedArgs, defaults: Defaults, observer: &mut dyn Observer) -> Result<Report, Failure> {
    let request = unattended::Request {
        lock_timeout: args.lock_timeout,
        exceptions: args.exceptions.exceptions(),
        by: asked::by(),
        system: args.system.request(&defaults)?,
        config: defaults.into_config(),
    };
    unattended::run(request, observer).map(|report| Report::Unattended(Box::new(report)))
}
