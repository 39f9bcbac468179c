//! Does an installed disk boot a whole system, whatever happens? Judged by what GRUB would do with it and by what is
//! in its slots.

use std::collections::{BTreeMap, BTreeSet};

use slipway_core::units::Extent;

use super::{
    esp,
    grub::{Machine, Outcome, Saves, SlotView},
    pages::{Memo, Pages, SECTOR},
    read::{self, Digest, Table, digest},
    world::World,
};

/// A slot, and which of the payloads is in it.
pub type System = (char, usize);
pub type Tags = BTreeMap<u32, Vec<u8>>;

/// META tag with the label to return to.
const LABEL: u32 = 6;
/// What of a boot state no marker knows: a cut while the ESP is made again loses it.
pub const NO_MARKER_KNOWS: [&str; 4] = ["a_since", "b_since", "medium", "rebuilt"];
/// The slot's own marker, the only file that changes.
const MARKER: &str = "slot.env";

/// The states that a verb may leave.
#[derive(Clone, Debug, Default)]
pub struct Expect {
    /// May boot for good; the last is what does if the verb leaves no trial.
    pub plain: Vec<System>,
    /// May boot as a trial; the last is the verb's own.
    pub trial: Vec<System>,
    /// Was confirmed once: may boot where both copies of boot.env are lost.
    pub marked: Vec<System>,
    /// Both copies are lost to begin with.
    pub env_lost: bool,
    /// The boot loaders may be others afterwards, each of them whole.
    pub renews: bool,
    /// The ESP is made again.
    pub makes_esp: bool,
    /// The ESP gets a copy of its FAT, or files that are missing.
    pub mends_esp: bool,
    /// They are damaged to begin with.
    pub chain_damaged: bool,
    /// The medium that boot.env names if the verb's trial is armed, and else not.
    pub medium: Option<String>,
}

/// The files of a payload, which every slot with it must hold.
pub type Payload = BTreeMap<String, Vec<u8>>;

pub struct Judge {
    pub table: Table,
    pub machine: Machine,
    pub expect: Expect,
    known: BTreeSet<(System, BTreeMap<String, Digest>)>,
    tags: Vec<Tags>,
    metas: Memo<Option<Tags>>,
    /// All whole records of the history.
    pub histories: Memo<Option<Vec<serde_json::Value>>>,
}

impl Judge {
    /// Learn from a disk before and after a verb what complete systems and META are.
    pub fn new(size: u64, expect: Expect, payloads: &[Payload], disks: &[&Pages]) -> Self {
        let table = read::table(disks[0], size).expect("a partition table");
        let machine = Machine::new(&table);
        let (metas, histories) = (Memo::new(), Memo::new());
        let mut judge = Judge { machine, expect, known: BTreeSet::new(), tags: vec![], metas, histories, table };
        for disk in disks {
            judge.tags.extend(judge.meta(disk));
            for slot in ['A', 'B'] {
                let view = judge.machine.slot(disk, slot);
                let found = (0..payloads.len()).find(|n| complete(&view, &payloads[*n], &judge.table.guid));
                judge.known.extend(found.map(|n| ((slot, n), without_marker(&view))));
            }
        }
        judge
    }

    /// From now on volumes are read as GRUB reads them, and files that no request names do not count.
    pub fn reads_wrong_structures(&mut self) {
        let lower =
            |files: &BTreeMap<String, Digest>| files.iter().map(|(name, d)| (name.to_lowercase(), *d)).collect();
        self.known = self.known.iter().map(|(system, files)| (*system, lower(files))).collect();
        // What was read before was read by another reader.
        self.machine = Machine::new(&self.table);
        self.machine.wrong_structures = true;
    }

    /// Which payload is in a slot, whole.
    pub fn whole(&self, pages: &Pages, slot: char) -> Option<usize> {
        let view = self.machine.slot(pages, slot);
        let mut known = self.known.iter().filter(|((s, _), _)| *s == slot);
        let all = |files: &BTreeMap<String, Digest>| files.iter().all(|(name, d)| view.files.get(name) == Some(d));
        let is_whole = |files| if self.machine.wrong_structures { all(files) } else { is_marker_else(&view, files) };
        known.find(|(_, files)| is_whole(files)).map(|((_, payload), _)| *payload)
    }

    pub fn meta(&self, pages: &Pages) -> Option<Tags> {
        let part = self.table.parts[&5];
        self.metas.get(pages, part, || read::meta(pages, part))
    }

    /// Judge a state; what the next boot is, or what is wrong. `lose_env`: ask also what boots without boot.env.
    pub fn state(&self, pages: &Pages, lose_env: bool) -> Result<Outcome, String> {
        let first = self.life(pages, Saves::Both)?;
        let env = self.machine.env(pages);
        let var = |name: &str| env.as_ref().and_then(|env| env.get(name)).map_or("", String::as_str);
        if env.is_none() && !self.expect.env_lost {
            return Err("both copies of boot.env are lost".to_owned());
        }
        if !var("once").is_empty() {
            self.life(pages, Saves::First)?;
            self.life(pages, Saves::Second)?;
        }
        for slot in ['A', 'B'] {
            let state = var(if slot == 'A' { "a" } else { "b" });
            let bootable = matches!(state, "good" | "trial") || var("default") == slot.to_string();
            if bootable && self.whole(pages, slot).is_none() {
                return Err(format!("slot {slot} is {state:?} and may boot, but it is not whole"));
            }
        }
        let meta = self.meta(pages).ok_or("META cannot be read")?;
        if !self.tags.contains(&meta) {
            return Err(format!("META has tags of its own: {meta:?}"));
        }
        if let (Some(medium), false) = (&self.expect.medium, self.expect.trial.is_empty()) {
            let named = self.machine.whole_env(pages).is_some_and(|env| env.get("medium") == Some(medium));
            if named == var("once").is_empty() {
                return Err(format!("boot.env names the medium: {named}, and tries {:?}", var("once")));
            }
        }
        if !var("once").is_empty() && meta.get(&LABEL).map(Vec::as_slice) != Some(var("default").as_bytes()) {
            return Err("a trial is armed, and META has no label to return to".to_owned());
        }
        if self.expect.renews {
            World::get().chain.judge(pages, &self.table, self.expect.chain_damaged)?;
            // The trial is the first thing that new loaders do.
            if !var("once").is_empty() && !World::get().chain.is_one_set(pages, &self.table) {
                return Err("a trial is armed while the boot loaders are renewed".to_owned());
            }
        }
        if self.expect.makes_esp {
            World::get().chain.is_whole_or_lost(pages, &self.table)?;
        } else if self.expect.mends_esp {
            World::get().chain.judge(pages, &self.table, self.expect.chain_damaged)?;
        }
        if lose_env {
            self.without_env(pages).map_err(|why| format!("both copies of boot.env lost as well: {why}"))?;
        }
        Ok(first)
    }

    /// The next boot and those that follow, without a confirmation. Without all of GRUB's `saves` the power goes before
    /// the first of them starts a kernel.
    fn life(&self, pages: &Pages, saves: Saves) -> Result<Outcome, String> {
        let mut disk = pages.clone();
        let first = self.machine.power_on(&mut disk, saves);
        let mut boots = if saves == Saves::Both { vec![first] } else { vec![] };
        boots.extend((0..4).map(|_| self.machine.power_on(&mut disk, Saves::Both)));
        let context = |why: String| format!("{why} (boots: {boots:?}, GRUB saved {saves:?})");
        for outcome in &boots {
            match *outcome {
                Outcome::Dead => return Err(context("nothing boots".to_owned())),
                Outcome::Reboots => {}
                Outcome::Boots { slot, trial } => {
                    let payload =
                        self.whole(pages, slot).ok_or_else(|| context(format!("slot {slot} is not whole")))?;
                    let may = if trial { &self.expect.trial } else { &self.expect.plain };
                    if !may.contains(&(slot, payload)) {
                        return Err(context(format!("payload {payload} in slot {slot} boots, trial: {trial}")));
                    }
                }
            }
        }
        let trials = boots.iter().filter(|b| matches!(b, Outcome::Boots { trial: true, .. })).count();
        let plain: BTreeSet<_> = boots.iter().filter(|b| matches!(b, Outcome::Boots { trial: false, .. })).collect();
        let ends = matches!(boots.last(), Some(Outcome::Boots { trial: false, .. }));
        if trials > 1 || plain.len() != 1 || !ends {
            return Err(context("a trial that is no single one, or no single system to come back to".to_owned()));
        }
        Ok(first)
    }

    /// Both copies of boot.env destroyed.
    fn without_env(&self, pages: &Pages) -> Result<(), String> {
        let mut disk = pages.clone();
        for (_, at) in self.machine.copies(pages).into_iter().flatten() {
            disk.zero(Extent { offset: at, len: SECTOR as u64 });
        }
        match self.machine.power_on(&mut disk, Saves::Both) {
            Outcome::Boots { slot, trial: false } => {
                let payload = self.whole(&disk, slot).ok_or_else(|| format!("slot {slot} boots and is not whole"))?;
                let may = self.expect.marked.contains(&(slot, payload));
                if may { Ok(()) } else { Err(format!("payload {payload} in slot {slot} boots")) }
            }
            other => Err(format!("{other:?}")),
        }
    }

    /// What a finished verb must have in common with one that was not interrupted: the boot state without the numbers
    /// and times that count attempts, the systems, their markers, and META.
    pub fn summary(&self, pages: &Pages) -> BTreeMap<String, String> {
        let mut env = self.machine.whole_env(pages).unwrap_or_default();
        env.retain(|name, _| name != "seq" && name != "history");
        if self.expect.makes_esp {
            env.retain(|name, _| !NO_MARKER_KNOWS.contains(&name.as_str()));
        }
        for slot in ['A', 'B'] {
            let marker = self.machine.slot(pages, slot).marker.0.clone();
            env.insert(format!("slot {slot}"), format!("{:?}, marked {marker:?}", self.whole(pages, slot)));
        }
        if self.expect.mends_esp {
            env.insert("ESP".to_owned(), esp::summary(pages, self.table.parts[&1]));
        }
        if self.expect.renews || self.expect.makes_esp || self.expect.mends_esp {
            env.insert("boot chain".to_owned(), World::get().chain.summary(pages, &self.table));
        }
        env.insert("META".to_owned(), format!("{:?}", self.meta(pages)));
        env
    }
}

fn without_marker(view: &SlotView) -> BTreeMap<String, Digest> {
    let mut files = view.files.clone();
    files.remove(MARKER);
    files
}

/// Whether a slot has these files, and no others but the marker.
fn is_marker_else(view: &SlotView, files: &BTreeMap<String, Digest>) -> bool {
    let others = view.files.iter().filter(|(name, _)| *name != MARKER);
    others.clone().count() == files.len() && others.into_iter().all(|(name, d)| files.get(name) == Some(d))
}

/// Whether a slot is a complete system with this payload: its files, both lists of digests, slot.cfg and manifest say
/// the same.
fn complete(view: &SlotView, payload: &Payload, disk: &str) -> bool {
    let hex = |d: &Digest| d.iter().map(|b| format!("{b:02x}")).collect::<String>();
    let list = |names: &mut dyn Iterator<Item = &String>| -> String {
        names.filter_map(|name| Some(format!("{}  {name}\n", hex(view.files.get(name)?)))).collect()
    };
    let text = |name: &str| view.texts.get(name).map(|t| String::from_utf8_lossy(t).into_owned()).unwrap_or_default();
    let boot = ["initramfs.xz", "slot.cfg", "vmlinuz"].map(str::to_owned);
    let mut all = view.files.keys().filter(|name| !["SHA256SUMS", MARKER].contains(&name.as_str()));
    let cfg = read::env_block(text("slot.cfg").as_bytes()).unwrap_or_default();
    let cfg = |name: &str| cfg.get(name).map_or("", String::as_str);
    let manifest: serde_json::Value = serde_json::from_str(&text("manifest.json")).unwrap_or_default();
    let listed = |f: &serde_json::Value| payload.get(f["name"].as_str()?).map(|b| f["sha256"] == hex(&digest(b)));
    payload.iter().all(|(name, bytes)| view.files.get(name) == Some(&digest(bytes)))
        && view.files.len() == payload.len() + 5
        && text("boot.sha256") == list(&mut boot.iter())
        && text("SHA256SUMS") == list(&mut all)
        && (cfg("kernel"), cfg("initrd")) == ("/vmlinuz", "/initramfs.xz")
        && cfg("guid").eq_ignore_ascii_case(disk)
        && manifest["files"].as_array().is_some_and(|f| f.len() == 3 && f.iter().all(|f| listed(f) == Some(true)))
}
