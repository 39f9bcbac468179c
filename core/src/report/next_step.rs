//! The next command for the user, from the facts about an installed disk.
//!
//! A verb is named only where the plan of that verb is not refused for these facts, and would change something.

use crate::prelude::*;

mod esp;
mod table;

use serde::{Deserialize, Serialize};

use super::{
    rows::{NO_BREAK, Row},
    writer::Writer,
};
use crate::{
    boot::{
        env::Fault,
        running::Running,
        slot::{Slot, SlotState},
    },
    disk::layout::Part,
    plan::{
        self, ActivateRequest, Asked, Plan, Refusals, RequestBase, RunsFrom, SystemFacts, VolumeHolds,
        bootloader::NotRenewed,
    },
    snapshot::head,
    text::quoted,
    units::Extent,
};

/// The one thing to do next.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct NextStep {
    /// The command to type; `null` where no command does it, or there is nothing to do. `SOURCE` stands for the payload.
    pub command: Option<String>,
    /// Its effect; without a command, the action to take.
    pub why: String,
}

impl NextStep {
    pub(super) fn rows(&self) -> Vec<Row> {
        // A command is copied as a whole.
        let command = self.command.as_ref().map(|command| command.replace(' ', &NO_BREAK.to_string()));
        let texts = command.into_iter().chain([self.why.clone()]);
        ["next step:", ""].into_iter().zip(texts).collect()
    }
}

/// What `status` knows of a disk beside the facts that plans are made from.
#[derive(Clone, Debug, Default)]
pub struct StatusFacts<'a> {
    /// Path of the disk.
    pub disk: &'a str,
    /// Whether it is an image file.
    pub is_image: bool,
    /// The disk to detach, and why, if another one has the same disk GUID.
    pub detach: Option<String>,
    /// The remedy, if there is no room for the second copy of the table: the disk was larger, and `repair` is refused.
    pub shrunk: Option<String>,
    /// Whether the FATs of the ESP are the same, and contradict its files.
    pub esp_contradicts: bool,
    /// Whether the boot chain is damaged.
    pub chain_damaged: bool,
    /// The boot loaders in place of damaged ones may not start, and that has to be accepted first.
    pub not_started: Option<NotRenewed>,
    /// If `repair` cannot write the list of the boot chain that is missing: whether `bootloader update` replaces the loaders.
    pub unlisted: Option<Result<(), String>>,
    /// Whether there are problems at all.
    pub problems: bool,
    /// Another program that writes to the disk.
    pub writer: Option<&'a Writer>,
}

/// Decide. Earlier rows are more urgent, or stand in the way of the rest.
pub fn next_step(facts: &SystemFacts, status: &StatusFacts) -> NextStep {
    let base = RequestBase { disk: status.disk.to_owned(), now: 0, asked: Asked::default() };
    let runs_from = if facts.running.slot().is_some() { RunsFrom::Inside } else { RunsFrom::Offline };
    let on = Deciding { facts, status, base, runs_from };
    let rows = [
        Deciding::writer,
        Deciding::clone,
        Deciding::partition_table,
        Deciding::esp_lost,
        Deciding::boot_state_lost,
        Deciding::not_put_back,
        Deciding::trial_runs,
        Deciding::copy_lost,
        Deciding::intruder,
        Deciding::boot_chain,
        Deciding::nothing_boots,
        Deciding::other_guid,
        Deciding::other_partuuid,
        Deciding::wipe_interrupted,
        Deciding::trial_pending,
        Deciding::default_damaged,
        Deciding::default_refused,
        Deciding::other_boots_next,
        Deciding::other_damaged,
        Deciding::incomplete,
        Deciding::refused_by_digest,
        Deciding::trial_failed,
        Deciding::staged,
        Deciding::meta_lost,
        Deciding::backup_table,
        Deciding::list_missing,
        Deciding::covered,
        Deciding::data_lost,
        Deciding::esp_contradicts,
        Deciding::problems,
        Deciding::cancelled,
        Deciding::not_read,
    ];
    let step = rows.iter().find_map(|row| row(&on)).unwrap_or_else(|| words("nothing to do"));
    let step = on.with_unread(step);
    let is_repair = step.command.as_ref().is_some_and(|command| command.starts_with("installer repair "));
    // It begins with the table, whatever else it has to do.
    status.shrunk.clone().filter(|_| is_repair).map_or(step, words)
}

const VERIFIES: &str = "reads everything, and names what is damaged";
/// Begins what says that no step is needed.
const NONE: &str = "none: ";
const TAGS_LOST: &str = "The tags of META are lost";

/// A step without a command of ours.
fn words(why: impl Into<String>) -> NextStep {
    NextStep { command: None, why: why.into() }
}

struct Deciding<'a> {
    facts: &'a SystemFacts,
    status: &'a StatusFacts<'a>,
    base: RequestBase,
    runs_from: RunsFrom,
}

/// The rows: each is about one thing, and says nothing where all is well with it.
impl Deciding<'_> {
    /// The other program's writes change the next step.
    fn writer(&self) -> Option<NextStep> {
        self.status.writer.map(|writer| words(format!("wait: {}", writer.what())))
    }

    fn clone(&self) -> Option<NextStep> {
        self.status.detach.clone().map(words)
    }

    fn boot_state_lost(&self) -> Option<NextStep> {
        if self.facts.env.is_some() {
            return None;
        }
        let repair = self.verb(self.repair(), "repair", "makes the boot state again; what boots stays what boots");
        let confirm = || self.verb(self.confirm(), "confirm", "once the system is well: it becomes the default");
        let is_refused = self.status.shrunk.is_some();
        let step = if is_refused { confirm().or(repair) } else { repair.or_else(confirm) };
        step.or_else(|| Some(self.reinstall("the boot state is lost, and cannot be made again")))
    }

    /// A system runs without what belongs to it.
    fn not_put_back(&self) -> Option<NextStep> {
        let slot = self.facts.running.slot()?;
        let (found, system) = (&self.facts.snapshots[slot], self.facts.slots[slot].system());
        let head = head::due(found, slot, system, self.facts.env.as_ref()).ok()?;
        let why = format!(
            "{} runs, and its {} files were not put back when it started: a volume was not open or mounted by then, or full. The \
             log of slipway-restore says which. Once it is, this puts them back",
            self.name(slot),
            head.files
        );
        Some(self.command("installer snapshot restore --boot --disk {disk}", &why))
    }

    fn trial_runs(&self) -> Option<NextStep> {
        let Running::This { slot, trial: true } = self.facts.running else { return None };
        let env = self.facts.env.as_ref().filter(|env| env.once.is_none() && env.states[slot] == SlotState::Tried)?;
        // Its guard may reset the machine at any time.
        if self.status.chain_damaged {
            return None;
        }
        let name = self.name(slot);
        let otherwise =
            self.no_way_back().unwrap_or_else(|| format!("Otherwise {} boots next", self.name(env.default)));
        let confirm = format!("once {name} is well: it becomes the default. {otherwise}");
        let back = format!("{name} is damaged on the disk: gives it up");
        let confirm = self.verb(self.confirm(), "confirm", &confirm);
        confirm.or_else(|| self.verb(self.rollback(), "rollback", &back))
    }

    fn copy_lost(&self) -> Option<NextStep> {
        let tags = if self.facts.meta.blank { ". META begins anew: its tags are lost" } else { "" };
        self.verb(self.repair(), "repair", &format!("writes again what is lost; what boots stays what boots{tags}"))
    }

    fn nothing_boots(&self) -> Option<NextStep> {
        if self.facts.next.slot.is_some() {
            return None;
        }
        let back = self.verb(self.rollback(), "rollback", "nothing would boot: makes a slot that is whole the default");
        let write = || self.upgrade("nothing would boot: writes the other slot before a reboot");
        back.or_else(write).or_else(|| self.no_command("nothing on this disk boots"))
    }

    /// An upgrade without `--preserve=false` would leave EPHEMERAL as it is.
    fn wipe_interrupted(&self) -> Option<NextStep> {
        self.facts.env.as_ref().filter(|env| env.format_ephemeral)?;
        let why = "EPHEMERAL was erased, and that was interrupted before it had a file system again: makes it anew";
        match self.facts.held(Part::Ephemeral) {
            VolumeHolds::Blank => Some(self.command("installer wipe EPHEMERAL --disk {disk}", why)),
            // Half of ours, or what a system has used since and lost.
            VolumeHolds::Other => self.volume_lost(Part::Ephemeral),
            _ => None,
        }
    }

    fn trial_pending(&self) -> Option<NextStep> {
        let slot = self.facts.env.as_ref()?.once?;
        let name = self.name(slot);
        // The boot loader reads no root file system, and would try it.
        if self.facts.next.trial && self.facts.slots[slot].problem().is_none() {
            let caveat = self.no_way_back().or_else(|| self.meta_is_lost().then(|| TAGS_LOST.to_owned()));
            let caveat = caveat.map_or_else(String::new, |caveat| format!(". {caveat}"));
            return Some(self.reboot(&format!("tries {name} once{caveat}")));
        }
        let again = self.upgrade(&format!("{name} waits for its trial and is damaged: writes it again"));
        let back = || self.verb(self.rollback(), "rollback", &format!("{name} is damaged: it is not tried"));
        again.or_else(back).or_else(|| self.no_command(&format!("{name} is damaged and is not tried")))
    }

    fn default_damaged(&self) -> Option<NextStep> {
        let default = self.facts.env.as_ref()?.default;
        self.facts.slots[default].problem()?;
        let what = format!("{} is the default and damaged", self.name(default));
        self.default_left().or_else(|| self.upgrade(&what)).or_else(|| self.no_command(&what))
    }

    /// A damaged default gives way to the other slot, if that is whole and good.
    fn default_left(&self) -> Option<NextStep> {
        let default = self.facts.env.as_ref().filter(|env| env.once.is_none())?.default;
        self.facts.slots[default].problem()?;
        let why = format!("{} is the default and damaged: back to {}", self.name(default), self.name(!default));
        self.verb(self.rollback(), "rollback", &why)
    }

    /// While the default runs, it was an earlier boot.
    fn default_refused(&self) -> Option<NextStep> {
        let env = self.facts.env.as_ref()?;
        env.fault(env.default)?;
        let is_well = self.facts.slots[env.default].whole == Some(Ok(()));
        let is_over = is_well || self.facts.running.slot() == Some(env.default);
        let why = format!("the boot loader could not start {}: {VERIFIES}", self.name(env.default));
        (!is_over).then(|| self.command("installer verify --disk {disk}", &why))
    }

    fn other_boots_next(&self) -> Option<NextStep> {
        let next = self.facts.next.slot?;
        let running = self.facts.running.slot().filter(|running| *running != next)?;
        Some(self.reboot(&format!("{} boots next, but {} runs", self.name(next), self.name(running))))
    }

    fn other_damaged(&self) -> Option<NextStep> {
        let other = self.other().filter(|other| self.facts.slots[*other].problem().is_some())?;
        // An upgrade to what the other slot holds writes nothing.
        let version = self.facts.slots[!other].version();
        let failed = self.facts.env.as_ref().is_some_and(|env| env.came_back(other));
        let again = if failed { "; with what failed its trial there, give --retry-bad" } else { "" };
        let how = format!("writes it again, with any payload but {version}{again}");
        self.upgrade_or_boot(&format!("slot {other} is damaged"), &how)
    }

    fn incomplete(&self) -> Option<NextStep> {
        let env = self.facts.env.as_ref()?;
        let slot = Some(!env.default).filter(|slot| env.is_incomplete(*slot))?;
        self.upgrade_or_boot(
            &format!("slot {slot} is incomplete, because an upgrade was interrupted"),
            "writes it anew",
        )
    }

    fn refused_by_digest(&self) -> Option<NextStep> {
        let env = self.facts.env.as_ref()?;
        let is_refused = |slot: &Slot| env.states[*slot] == SlotState::Tried && env.fault(*slot) == Some(Fault::Digest);
        let other = self.other().filter(is_refused)?;
        let what = format!("a file of {} was damaged on the disk, so it was never tried", self.name(other));
        self.upgrade_or_boot(&what, "writes it again")
    }

    fn trial_failed(&self) -> Option<NextStep> {
        let other = self.other().filter(|other| self.facts.env.as_ref().is_some_and(|env| env.came_back(*other)))?;
        self.upgrade_or_boot(&format!("{} failed its trial", self.name(other)), "take another payload")
    }

    fn staged(&self) -> Option<NextStep> {
        let other = self.untried(false)?;
        self.activation(other).or_else(|| self.inside(&format!("{} is not tried yet", self.name(other))))
    }

    /// A person wanted it so. That is not undone unasked, and nothing else has to wait for it.
    fn cancelled(&self) -> Option<NextStep> {
        let other = self.untried(true)?;
        let command = self.activation(other).and_then(|step| step.command);
        let again = command.map_or_else(String::new, |command| format!("; `{command}` has the next boot try it"));
        Some(words(format!("{NONE}the trial of {} was cancelled{again}", self.name(other))))
    }

    /// The slot with a system that no boot has tried, by whether its trial was cancelled.
    fn untried(&self, is_cancelled: bool) -> Option<Slot> {
        let env = self.facts.env.as_ref()?;
        let is_meant =
            |other: &Slot| env.states[*other] == SlotState::Untried && (env.last_trial == Some(*other)) == is_cancelled;
        self.other().filter(is_meant)
    }

    fn activation(&self, staged: Slot) -> Option<NextStep> {
        let request = ActivateRequest {
            base: self.base.clone(),
            runs_from: self.runs_from,
            preserve: true,
            only_ukis_start: false,
            bootloader: None,
            snapshot: None,
        };
        let why = format!("the next boot tries {} once", self.name(staged));
        self.verb(plan::activate(&request, self.facts), "activate", &why)
    }

    fn meta_lost(&self) -> Option<NextStep> {
        let why = format!("{TAGS_LOST}: set those again that you need. No upgrade is possible before");
        self.meta_is_lost().then(|| self.command("installer meta set KEY=VALUE --disk {disk}", &why))
    }

    fn data_lost(&self) -> Option<NextStep> {
        self.facts.data_faults.keys().find_map(|part| self.volume_lost(*part))
    }

    fn volume_lost(&self, part: Part) -> Option<NextStep> {
        let fault = self.facts.data_faults.get(&part)?;
        let (remedy, disk) = (fault.format.remedy(|program| self.on_part(part, program)), quoted(self.status.disk));
        Some(words(format!(
            "{}. What boots is whole. {remedy}. If nothing does, `installer wipe {part} --disk {disk} --format-data` makes a \
             new file system, and what was in it is gone",
            fault.what
        )))
    }

    /// A command for one partition. An image may be a copy of a disk that is attached, whose partitions the links then name.
    fn on_part(&self, part: Part, command: &str) -> String {
        if !self.status.is_image {
            return format!("{command} /dev/disk/by-partuuid/{}", self.facts.gpt.guid(part));
        }
        let (Extent { offset, len }, disk) = (self.facts.gpt.part(part), quoted(self.status.disk));
        let attach = format!("losetup --find --show --offset={offset} --sizelimit={len} {disk}");
        format!("part=$({attach}) && {command} \"$part\"; losetup --detach \"$part\"")
    }

    fn problems(&self) -> Option<NextStep> {
        self.status.problems.then(|| self.command("installer verify --disk {disk}", VERIFIES))
    }

    fn not_read(&self) -> Option<NextStep> {
        self.is_unread().then(|| words(format!("{NONE}what was read is well")))
    }

    /// Slots that were not read may be damaged: no all-clear, and no command that reads them before it does anything, leaves
    /// that out.
    fn with_unread(&self, step: NextStep) -> NextStep {
        const READ: [&str; 4] = ["activate", "confirm", "repair", "rollback"];
        let reads = |command: &String| READ.iter().any(|verb| command.starts_with(&format!("installer {verb} ")));
        let is_meant = step.command.as_ref().map_or_else(|| step.why.starts_with(NONE), reads);
        if !is_meant || !self.is_unread() {
            return step;
        }
        let verify = format!("installer verify --disk {}", quoted(self.status.disk));
        NextStep { why: format!("{}. `{verify}` reads the root file systems, too", step.why), ..step }
    }

    fn is_unread(&self) -> bool {
        self.facts.in_use().any(|slot| self.facts.slots[slot].whole.is_none())
    }
}

impl Deciding<'_> {
    fn repair(&self) -> Result<Plan, Refusals> {
        plan::repair(&self.base, self.facts, None, false)
    }

    fn confirm(&self) -> Result<Plan, Refusals> {
        plan::confirm(&self.base, self.facts)
    }

    fn rollback(&self) -> Result<Plan, Refusals> {
        match self.runs_from {
            RunsFrom::Offline => plan::rollback_offline(&self.base, self.facts),
            _ => plan::rollback(&self.base, self.facts),
        }
    }

    /// A verb, if it is not refused and does something.
    fn verb(&self, plan: Result<Plan, Refusals>, verb: &str, why: &str) -> Option<NextStep> {
        let does_something = plan.is_ok_and(|plan| !plan.steps.is_empty());
        let command = || self.facts.command(verb, self.status.disk);
        does_something.then(|| NextStep { command: Some(command()), why: why.to_owned() })
    }

    fn upgrade(&self, why: &str) -> Option<NextStep> {
        let taken = plan::takes_an_upgrade(self.runs_from, self.facts);
        let command = || self.facts.command("upgrade", self.status.disk);
        taken.then(|| NextStep { command: Some(command()), why: why.to_owned() })
    }

    /// An upgrade, which mends what is wrong. Where none runs from here, the disk's own system takes it.
    fn upgrade_or_boot(&self, what: &str, how: &str) -> Option<NextStep> {
        self.upgrade(&format!("{what}: {how}")).or_else(|| self.inside(what))
    }

    fn by_repair(&self, why: &str) -> NextStep {
        self.command("installer repair --disk {disk}", why)
    }

    fn meta_is_lost(&self) -> bool {
        self.facts.meta.valid == [false, false] && !self.facts.meta.blank
    }

    /// Damage of the slot that a trial would fall back to.
    fn no_way_back(&self) -> Option<String> {
        let default = self.facts.env.as_ref()?.default;
        self.facts.slots[default].problem()?;
        Some(format!("There is no way back: {} is damaged", self.name(default)))
    }

    /// All that is left. While the disk is at rest, more may help that keeps the data.
    fn reinstall(&self, why: &str) -> NextStep {
        match self.facts.running.slot() {
            Some(_) => words(format!(
                "{why}: start a live medium; `installer status --disk PATH` names there what helps, and whether the data stays"
            )),
            None => NextStep {
                command: Some(format!("{} --force", self.facts.command("install", self.status.disk))),
                why: format!("{why}. This command erases all data"),
            },
        }
    }

    fn reboot(&self, why: &str) -> NextStep {
        match self.facts.running.slot() {
            Some(_) => NextStep { command: Some("reboot".to_owned()), why: why.to_owned() },
            None => words(format!("boot this disk: that {why}")),
        }
    }

    /// Faults that only the disk's own system can mend, seen from elsewhere.
    fn inside(&self, what: &str) -> Option<NextStep> {
        let next = self.facts.next.slot.filter(|_| self.facts.running.slot().is_none())?;
        let why = format!("{what}. Boot this disk, which starts {}, and ask for the status there", self.name(next));
        Some(words(why))
    }

    /// The next boot starts a damaged system, and no verb can run from here.
    fn no_command(&self, what: &str) -> Option<NextStep> {
        self.inside(what).or_else(|| self.meta_lost()).or_else(|| Some(self.reinstall(what)))
    }

    /// The slot that does not boot by default and is in use.
    fn other(&self) -> Option<Slot> {
        let env = self.facts.env.as_ref()?;
        Some(!env.default).filter(|other| env.states[*other] != SlotState::Empty)
    }

    /// A slot for people: the version says more than the letter.
    fn name(&self, slot: Slot) -> String {
        let version = self.facts.slots[slot].manifest.as_ref().and_then(|manifest| manifest.version.as_deref());
        version.map_or_else(|| format!("slot {slot}"), |version| format!("{version} in slot {slot}"))
    }

    fn command(&self, command: &str, why: &str) -> NextStep {
        NextStep { command: Some(command.replace("{disk}", &quoted(self.status.disk))), why: why.to_owned() }
    }
}
