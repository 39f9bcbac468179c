//! What a report advises, apart from what it quotes.

use crate::prelude::*;

use super::{HistoryEntry, Outcome, Report, SlotStatus, StatusReport};
use crate::plan::{Plan, Step};

impl Report {
    /// The sentences that may name a command. What comes from outside, such as a reason or a version, has fields of its own, and
    /// none of them is here.
    pub fn advice(&mut self) -> Vec<&mut String> {
        match self {
            Report::Install(report) => of_plan(&mut report.plan),
            Report::Image(report) => of_plan(&mut report.plan),
            Report::Change(report) => of_plan(&mut report.plan),
            Report::AutoUpgrade(report) => {
                report.change.iter_mut().flat_map(|change| of_plan(&mut change.plan)).collect()
            }
            Report::Unattended(report) => match &mut report.outcome {
                Outcome::Nothing(why) => vec![why],
                Outcome::Installed(report) => of_plan(&mut report.plan),
                Outcome::Upgraded(report) => of_plan(&mut report.plan),
            },
            Report::Bootloader(report) => report.left.iter_mut().chain([&mut report.command]).collect(),
            Report::Status(report) => of_status(report),
            Report::Verify(report) => {
                report.problems.iter_mut().chain(&mut report.notes).chain([&mut report.next_step.why]).collect()
            }
            Report::Layout(report) => report.problems.iter_mut().chain(&mut report.not_ours).collect(),
            Report::Snapshot(report) => report.snapshots.iter_mut().map(|found| &mut found.put_back).collect(),
            Report::Enroll(report) => vec![&mut report.plan.result],
            _ => vec![],
        }
    }

    /// The values from outside that these sentences may have in them.
    pub fn quoted(&self) -> Vec<String> {
        match self {
            Report::Install(report) => quoted_by(&report.plan),
            Report::Image(report) => quoted_by(&report.plan),
            Report::Change(report) => quoted_by(&report.plan),
            Report::AutoUpgrade(report) => report.change.iter().flat_map(|change| quoted_by(&change.plan)).collect(),
            Report::Unattended(report) => match &report.outcome {
                Outcome::Nothing(_) => vec![],
                Outcome::Installed(report) => quoted_by(&report.plan),
                Outcome::Upgraded(report) => quoted_by(&report.plan),
            },
            Report::Status(report) => {
                let history =
                    report.history.iter().flat_map(|HistoryEntry { version, reason, by, .. }| [version, reason, by]);
                of_slots([&report.slots.a, &report.slots.b]).chain(history.flatten().cloned()).collect()
            }
            Report::Verify(report) => report.versions.clone(),
            Report::Layout(report) => {
                report.system.iter().flat_map(|system| of_slots([&system.slots.a, &system.slots.b])).collect()
            }
            _ => vec![],
        }
    }
}

fn of_plan(plan: &mut Plan) -> Vec<&mut String> {
    plan.warnings.iter_mut().chain(&mut plan.left).collect()
}

fn of_status(report: &mut StatusReport) -> Vec<&mut String> {
    let StatusReport { problems, notes, rollback, slots, next_step, .. } = report;
    let snapshots = [&mut slots.a.snapshot, &mut slots.b.snapshot].into_iter().flatten();
    let put_back = snapshots.map(|found| &mut found.put_back);
    problems.iter_mut().chain(notes).chain([rollback, &mut next_step.why]).chain(put_back).collect()
}

fn quoted_by(plan: &Plan) -> Vec<String> {
    let system = plan.system.iter().flat_map(|system| system.version.iter().chain([&system.cmdline]));
    let entries = plan.steps.iter().filter_map(|step| match step {
        Step::WriteHistory { entry, .. } => Some([&entry.version, &entry.reason, &entry.by]),
        _ => None,
    });
    system.chain(entries.flatten().flatten()).cloned().collect()
}

fn of_slots(slots: [&SlotStatus; 2]) -> impl Iterator<Item = String> {
    slots.into_iter().flat_map(|slot| [&slot.version, &slot.cmdline]).flatten().cloned()
}
