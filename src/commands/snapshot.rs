//! `installer snapshot list|show|restore`.

use slipway_core::report::{Observer, Report, SnapshotReport};

use crate::{
    cli::SnapshotVerb,
    error::Failure,
    ops::snapshot::{self, Restore},
};

pub fn run(verb: SnapshotVerb, observer: &mut dyn Observer) -> Result<Report, Failure> {
    let report = match verb {
        SnapshotVerb::List(target) => snapshot::list(&target.request(observer)?),
        SnapshotVerb::Show { slot, target } => snapshot::show(&target.request(observer)?, slot.slot()),
        SnapshotVerb::Restore { boot: true, ref target, .. }
            if target.disk.is_none() && !snapshot::is_booted_from_ours()? =>
        {
            let why = "nothing says that this system was started from a disk of Slipway".to_owned();
            Ok(SnapshotReport { result: Some(why), ..SnapshotReport::of("none") })
        }
        SnapshotVerb::Restore { slot, boot, root, to, target } => {
            let request = Restore { slot: slot.slot(), root, boot, to };
            snapshot::restore(&target.request(observer)?, &request, observer)
        }
    };
    report.map(Report::Snapshot)
}
