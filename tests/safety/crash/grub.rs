//! What GRUB does with `assets/grub/grub.cfg`, modelled from that text and from GRUB's own sources
//! (`commands/loadenv.c`, `lib/envblk.c`, `commands/hashsum.c`), and from nothing of the installer's.

use std::{collections::BTreeMap, rc::Rc};

use slipway_core::units::Extent;

use super::{
    grub_fat::Volume,
    pages::{Memo, Pages},
    read::{self, Digest, Table, digest, env_block, env_block_with},
};

/// The end of a power-on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// A kernel is started.
    Boots { slot: char, trial: bool },
    /// GRUB resets the machine.
    Reboots,
    /// Nothing can be booted; GRUB tries again for ever.
    Dead,
}

/// Which of GRUB's writes to the two copies, when it spends a try, are on the medium before the power goes. If both are,
/// so are those of the mark that follows where a slot is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Saves {
    Both,
    /// The power goes between them.
    First,
    /// GRUB does not flush: the drive has them in its own order.
    Second,
    /// The disk refuses the write to this copy, and GRUB finds what was there.
    Refused(usize),
}

/// The content of a slot.
#[derive(Debug, Default)]
pub struct SlotView {
    /// Digests of its files.
    pub files: BTreeMap<String, Digest>,
    /// Text files that say something: slot.cfg, manifest.json and the like.
    pub texts: BTreeMap<String, Vec<u8>>,
    /// The list boot.sha256 is not empty and every file in it is what it says.
    pub verifies: bool,
    /// slot.cfg names a kernel and an initramfs that are there.
    pub loads: bool,
    /// State and sequence number of its own marker.
    pub marker: (String, u64),
}

/// One copy of boot.env: its bytes and their place on the disk.
type Copy = Option<(Vec<u8>, u64)>;
type Vars = BTreeMap<String, String>;

/// A machine with a disk.
pub struct Machine {
    /// Structures may be wrong: volumes are read as GRUB itself would.
    pub wrong_structures: bool,
    esp: Extent,
    slots: [Extent; 2],
    views: [Memo<Rc<SlotView>>; 2],
    envs: Memo<[Copy; 2]>,
}

/// `regexp '^(0|[1-9][0-9]{0,8})$'`
fn is_seq(text: &str) -> bool {
    let digits = !text.is_empty() && text.len() <= 9 && text.bytes().all(|b| b.is_ascii_digit());
    digits && (text == "0" || !text.starts_with('0'))
}

/// `-gt`, of what `is_seq` let through.
fn seq(text: &str) -> u64 {
    if is_seq(text) { text.parse().unwrap_or(0) } else { 0 }
}

/// `env_load`: the known names of a copy.
fn env_load(copy: &Copy) -> Option<Vars> {
    let mut vars = env_block(&copy.as_ref()?.0)?;
    vars.retain(|name, _| ["seq", "default", "once", "a", "b", "check", "refused"].contains(&name.as_str()));
    let var = |name: &str| vars.get(name).map_or("", String::as_str);
    (matches!(var("default"), "A" | "B") && is_seq(var("seq"))).then_some(vars)
}

/// `env_pick`: the copy that counts.
fn env_pick(copies: &[Copy; 2]) -> Option<Vars> {
    match (env_load(&copies[0]), env_load(&copies[1])) {
        (Some(first), Some(second)) if seq(&second["seq"]) > seq(&first["seq"]) => Some(second),
        (Some(first), _) => Some(first),
        (None, second) => second,
    }
}

fn var<'v>(vars: &'v Vars, name: &str) -> &'v str {
    vars.get(name).map_or("", String::as_str)
}

/// The variable with the state of a slot.
const fn state_name(slot: char) -> &'static str {
    if slot == 'A' { "a" } else { "b" }
}

fn view(files: BTreeMap<String, Vec<u8>>) -> SlotView {
    let digests: BTreeMap<String, Digest> = files.iter().map(|(name, bytes)| (name.clone(), digest(bytes))).collect();
    let hex = |name: &str| Some(digests.get(name)?.iter().map(|b| format!("{b:02x}")).collect::<String>());
    // Each line: the digest, two characters, the name.
    let right = |line: &str| line.len() > 66 && line.is_ascii() && hex(&line[66..]).as_deref() == Some(&line[..64]);
    let text = |name: &str| files.get(name).map(|bytes| String::from_utf8_lossy(bytes)).unwrap_or_default();
    let block = |name: &str| files.get(name).and_then(|bytes| env_block(bytes)).unwrap_or_default();
    let (list, cfg, marker) = (text("boot.sha256"), block("slot.cfg"), block("slot.env"));
    let there = |name: &str| var(&cfg, name).strip_prefix('/').is_some_and(|name| files.contains_key(name));
    SlotView {
        verifies: !list.is_empty() && list.lines().all(right),
        loads: there("kernel") && there("initrd"),
        marker: (var(&marker, "state").to_owned(), seq(var(&marker, "seq"))),
        files: digests,
        texts: files.into_iter().filter(|(_, bytes)| bytes.len() < 4096).collect(),
    }
}

impl Machine {
    pub fn new(table: &Table) -> Self {
        Machine {
            wrong_structures: false,
            esp: table.parts[&1],
            slots: [table.parts[&3], table.parts[&4]],
            views: [Memo::new(), Memo::new()],
            envs: Memo::new(),
        }
    }

    /// The content of a slot.
    pub fn slot(&self, pages: &Pages, slot: char) -> Rc<SlotView> {
        let n = usize::from(slot == 'B');
        let files = || match self.wrong_structures {
            true => Volume::open(pages, self.slots[n]).map(|volume| volume.files()),
            false => read::files(pages, self.slots[n]).ok(),
        };
        self.views[n].get(pages, self.slots[n], || Rc::new(files().map(view).unwrap_or_default()))
    }

    /// Both copies of boot.env.
    pub fn copies(&self, pages: &Pages) -> [Copy; 2] {
        let file = |path| match self.wrong_structures {
            true => Volume::open(pages, self.esp)?.file(path),
            false => read::file(pages, self.esp, path).ok(),
        };
        let read = || ["slipway/boot.env", "slipway/boot2.env"].map(file);
        self.envs.get(pages, self.esp, read)
    }

    /// The boot state that counts.
    pub fn env(&self, pages: &Pages) -> Option<Vars> {
        env_pick(&self.copies(pages))
    }

    /// The copy that counts, with what GRUB does not know.
    pub fn whole_env(&self, pages: &Pages) -> Option<Vars> {
        let copies = self.copies(pages);
        let counts = env_pick(&copies)?;
        let copy = copies.iter().find(|copy| env_load(copy).as_ref() == Some(&counts));
        env_block(&copy?.as_ref()?.0)
    }

    /// From power-on to a kernel, or not. What GRUB writes is written to `pages`.
    pub fn power_on(&self, pages: &mut Pages, saves: Saves) -> Outcome {
        let mut copies = self.copies(pages);
        if let Some(mut vars) = env_pick(&copies) {
            let trial = match var(&vars, "once") {
                "A" => Some('A'),
                "B" => Some('B'),
                _ => None,
            };
            if let Some(slot) = trial {
                vars.insert("once".to_owned(), String::new());
                vars.insert(state_name(slot).to_owned(), "tried".to_owned());
                env_save(&mut copies, &vars, pages, saves);
                let after = env_pick(&copies);
                if after.is_some_and(|vars| var(&vars, "once").is_empty() && var(&vars, state_name(slot)) == "tried") {
                    let check = var(&vars, "check") != "off";
                    return match self.slot_boot(pages, slot, check) {
                        Ok(()) => Outcome::Boots { slot, trial: true },
                        Err(fault) => {
                            refuse(&mut copies, slot, true, fault, pages, saves);
                            Outcome::Reboots
                        }
                    };
                }
            }
        }
        let booted = match env_pick(&copies) {
            Some(vars) => self.by_default(pages, &vars, &mut copies, saves),
            None => self.by_markers(pages),
        };
        booted.map_or(Outcome::Dead, |slot| Outcome::Boots { slot, trial: false })
    }

    /// `slot_boot`: verify, unless that is off, and load; or why not.
    fn slot_boot(&self, pages: &Pages, slot: char, check: bool) -> Result<(), &'static str> {
        let view = self.slot(pages, slot);
        match (view.verifies || !check, view.loads) {
            (false, _) => Err("digest"),
            (true, false) => Err("load"),
            (true, true) => Ok(()),
        }
    }

    fn by_default(&self, pages: &mut Pages, vars: &Vars, copies: &mut [Copy; 2], saves: Saves) -> Option<char> {
        let default = if var(vars, "default") == "A" { 'A' } else { 'B' };
        let other = if default == 'A' { 'B' } else { 'A' };
        let good = |slot| var(vars, state_name(slot)) == "good";
        let check = var(vars, "check") != "off";
        let order = match (good(other), good(default)) {
            (false, _) => vec![default],
            (true, true) => vec![default, other],
            (true, false) => vec![other, default],
        };
        order.into_iter().find(|slot| {
            let fault = self.slot_boot(pages, *slot, check).err();
            fault.iter().for_each(|fault| refuse(copies, *slot, false, fault, pages, saves));
            fault.is_none()
        })
    }

    fn by_markers(&self, pages: &Pages) -> Option<char> {
        let (a, b) = (self.slot(pages, 'A'), self.slot(pages, 'B'));
        let order: &[char] = match (a.marker.0 == "good", b.marker.0 == "good") {
            (true, true) if b.marker.1 > a.marker.1 => &['B', 'A'],
            (true, true) | (false, false) => &['A', 'B'],
            (false, true) => &['B'],
            (true, false) => &['A'],
        };
        order.iter().copied().find(|slot| self.slot_boot(pages, *slot, true).is_ok())
    }
}

/// `refuse`: the mark, where both copies are there and say the same, and where a default has none yet.
fn refuse(copies: &mut [Copy; 2], slot: char, trial: bool, fault: &str, pages: &mut Pages, saves: Saves) {
    let [Some(first), Some(second)] = [env_load(&copies[0]), env_load(&copies[1])] else { return };
    let marked = env_pick(copies).is_some_and(|vars| !var(&vars, "refused").is_empty());
    // Without power nothing follows.
    let dead = matches!(saves, Saves::First | Saves::Second) && trial;
    if first["seq"] == second["seq"] && (trial || !marked) && !dead {
        let mark = Vars::from([("refused".to_owned(), format!("{slot}:{fault}"))]);
        save(copies, &["refused"], &mark, pages, saves);
    }
}

/// `env_save`: both copies, boot.env first.
fn env_save(copies: &mut [Copy; 2], vars: &Vars, pages: &mut Pages, saves: Saves) {
    save(copies, &["seq", "default", "once", "a", "b", "check"], vars, pages, saves);
}

/// `save_env` of both copies. One that is no block cannot be saved and stays as it is.
fn save(copies: &mut [Copy; 2], names: &[&str], vars: &Vars, pages: &mut Pages, saves: Saves) {
    for (n, copy) in copies.iter_mut().enumerate() {
        let names: Vec<_> = names.iter().map(|name| (*name, vars.get(*name))).collect();
        let Some((bytes, at)) = copy.as_mut().filter(|_| saves != Saves::Refused(n)) else { continue };
        let Some(saved) = env_block_with(bytes, &names) else { continue };
        *bytes = saved;
        if !matches!((n, saves), (1, Saves::First) | (0, Saves::Second)) {
            pages.write(*at, bytes);
        }
    }
}
