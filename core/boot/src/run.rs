//! A boot by the rule: the steps of the UEFI loader, with the firmware behind [`Machine`].
//!
//! The order of these writes and starts is the loader's safety argument:
//!
//! 1. A try is spent before the slot is touched: both copies of the boot state, `boot.env` first, because it wins a tie. The
//!    slot is tried only if that is read back, and if the device says of every copy that can be read that it is on the medium.
//!    Otherwise a trial that hangs would be tried again and again.
//! 2. A slot that does not start gives way to the next one in the same run. Nothing has been given up until then. One that was
//!    started and came back leaves things behind: variables, measurements in the TPM, memory. A trial can leave them to a
//!    reset, because its try is spent. A default cannot: it would come back at every boot, and the other slot never start.
//! 3. Why it did not start is noted, where no boot depends on the sector that this note could destroy.
//! 4. A default that hangs the firmware is reset by the watchdog, and would be opened again and again. So before a
//!    default is opened, if there is another slot to go to, its name is noted in the copy that does not count, and
//!    taken away once all of it is in memory. A loader that finds the note starts the other slot. That one takes the
//!    note away, so the default has its chance at the next boot: one slow or interrupted start gives up nothing.

use crate::prelude::*;

use crate::{
    env::{BootEnv, BootFailure, Fault, Marker, OPENING},
    env_block::EnvBlock,
    rule::Order,
    slot::{PerSlot, Slot, SlotState},
};

/// A slot to start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    /// The slot.
    pub slot: Slot,
    /// Whether it is a trial.
    pub trial: bool,
    /// Whether its files are compared with their digests.
    pub check: bool,
}

/// The machine that boots.
pub trait Machine {
    /// A slot of which all that starts is in memory.
    type Loaded;
    /// The content of a copy of the boot state ([`crate::env::PATHS`]), from the medium; `None` if it cannot be read.
    fn read_copy(&mut self, copy: usize) -> Option<Vec<u8>>;
    /// Writes one sector over a copy, and flushes it. False if the device does not say that it has: bytes that are read
    /// back then may be on no medium.
    fn write_copy(&mut self, copy: usize, sector: &[u8]) -> bool;
    /// The content of a slot's marker.
    fn read_marker(&mut self, slot: Slot) -> Option<Vec<u8>>;
    /// Reads a slot, and loads it. May never come back: the slot's volume is read by the firmware.
    fn load(&mut self, start: Start) -> Result<Self::Loaded, Fault>;
    /// Starts the loaded system. Comes back only if it does not go on.
    fn start(&mut self, loaded: Self::Loaded) -> Fault;
    /// Starts the machine anew if a slot has run. Comes back if none has.
    fn reset_if_run(&mut self);
    /// A line for a person at the console.
    fn print(&mut self, line: &str);
    /// Whether a key was pressed: a person wants to choose.
    fn menu_requested(&mut self) -> bool;
    /// Offers these slots, each with a word for its state. The chosen slot, if any: there may be no person.
    fn choose(&mut self, offered: &[(Slot, &'static str)]) -> Option<Slot>;
}

/// Boots. Comes back only if no slot can be booted.
pub fn run(machine: &mut impl Machine) {
    let mut state = State::read(machine);
    // If both copies are lost, nothing says that the menu is off.
    if state.env().is_none_or(|env| !env.no_menu) && machine.menu_requested() {
        boot_menu(machine, &state);
    }
    if let Some((trial, spent)) = state.env().and_then(BootEnv::spent) {
        let written = state.write(machine, &[("once", ""), (key(trial), &SlotState::Tried.to_string())]);
        state = State::read(machine);
        let recorded = |env: &BootEnv| env.once.is_none() && env.states[trial] == SlotState::Tried;
        // A copy that is not flushed may have its old bytes at the next boot, and then count. One on a dead sector
        // cannot be read.
        let flushed = [0, 1].into_iter().all(|copy| written[copy] || state.envs[copy].is_none());
        if flushed && state.env().is_some_and(recorded) {
            let fault = start(machine, Start { slot: trial, trial: true, check: spent.check }, |_| ());
            state.refuse(machine, BootFailure { slot: trial, fault });
            machine.print(&format!("trial of slot {trial} failed, booting the default"));
            machine.reset_if_run();
            state = State::read(machine);
        } else {
            machine.print(&format!("boot.env cannot be written: not trying slot {trial}"));
        }
    }
    let order = state.env().map_or_else(
        || {
            machine.print("both copies of boot.env are lost, reading the slots' own markers");
            Order::by_markers(&PerSlot::new(|slot| Marker::parse(&machine.read_marker(slot)?)))
        },
        Order::by_env,
    );
    // Without a boot state nothing says that a slot need not verify.
    let check = state.env().is_none_or(|env| env.check);
    let order = after_a_hang(machine, &mut state, order);
    for slot in order.slots() {
        if slot != order.first {
            machine.print(&format!("falling back to slot {slot}"));
        }
        let note = |machine: &mut _, text: &str| {
            if order.second.is_some() {
                state.write_opening(machine, text);
            }
        };
        note(machine, &slot.to_string());
        let fault = start(machine, Start { slot, trial: false, check }, |machine| note(machine, ""));
        // A default may be passed over at every boot: only the first refusal is noted.
        if state.env().is_some_and(|env| env.refused.is_none()) {
            state.refuse(machine, BootFailure { slot, fault });
            state = State::read(machine);
        }
    }
    machine.print("no slot can be booted");
}

/// Loads a slot and starts it. `through` is called between the two.
fn start<M: Machine>(machine: &mut M, start: Start, through: impl FnOnce(&mut M)) -> Fault {
    match machine.load(start) {
        Ok(loaded) => {
            through(machine);
            machine.start(loaded)
        }
        Err(fault) => fault,
    }
}

/// The slots in another order, if the first one did not get through its last start.
fn after_a_hang(machine: &mut impl Machine, state: &mut State, order: Order) -> Order {
    match order.second {
        Some(second) if state.opening() == Some(order.first) => {
            let hung = order.first;
            state.write_opening(machine, "");
            *state = State::read(machine);
            // A note that stays says nothing of the last start: the sector can be written no more, and the default would be
            // passed over for good.
            if state.opening() == Some(hung) {
                return order;
            }
            machine.print(&format!("the last start of slot {hung} did not get through: booting slot {second}"));
            if state.env().is_some_and(|env| env.refused.is_none()) {
                state.refuse(machine, BootFailure { slot: hung, fault: Fault::Hung });
                *state = State::read(machine);
            }
            Order { first: second, second: Some(hung) }
        }
        _ => order,
    }
}

/// A slot by a person's choice. It boots as it is, not as a trial, and nothing is written: the boot after it goes by
/// the rule. Comes back if nothing is chosen, or the chosen slot does not start.
fn boot_menu(machine: &mut impl Machine, state: &State) {
    let word = |slot: Slot| match state.env().map(|env| env.states[slot]) {
        Some(SlotState::Empty) => None,
        Some(state) => Some((slot, state.plain())),
        None => Some((slot, "not known to be good")),
    };
    let offered: Vec<_> = Slot::BOTH.into_iter().filter_map(word).collect();
    if let Some(slot) = machine.choose(&offered).filter(|slot| offered.iter().any(|(known, _)| known == slot)) {
        start(machine, Start { slot, trial: false, check: state.env().is_none_or(|env| env.check) }, |_| ());
        machine.reset_if_run();
    }
}

const fn key(slot: Slot) -> &'static str {
    match slot {
        Slot::A => "a",
        Slot::B => "b",
    }
}

/// Both copies, as they are on the medium.
struct State {
    blocks: [Option<EnvBlock>; 2],
    envs: [Option<BootEnv>; 2],
}

impl State {
    fn read(machine: &mut impl Machine) -> Self {
        let copies = [0, 1].map(|copy| machine.read_copy(copy));
        let blocks = copies.map(|copy| EnvBlock::parse(copy.as_deref()?));
        let envs = blocks.each_ref().map(|block| BootEnv::from_block(block.as_ref()?));
        State { blocks, envs }
    }

    /// The copy that counts.
    fn env(&self) -> Option<&BootEnv> {
        BootEnv::pick(&self.envs)
    }

    /// Writes the copy that counts over both, with these values. Its other keys stay. Returns the copies that the
    /// device confirms as written.
    fn write(&self, machine: &mut impl Machine, values: &[(&str, &str)]) -> [bool; 2] {
        let mut written = [false; 2];
        let Some(mut block) = BootEnv::which(&self.envs).and_then(|copy| self.blocks[copy].clone()) else {
            return written;
        };
        for (key, value) in values {
            block.set(key, value);
        }
        // Without room for it nothing is written, and the next read shows that.
        let Some(sector) = block.render_sector() else { return written };
        for (copy, written) in written.iter_mut().enumerate() {
            // Only over a copy: a damaged directory may lead anywhere, also into the block of another boot loader.
            *written = self.envs[copy].is_some() && machine.write_copy(copy, sector.as_bytes());
        }
        written
    }

    /// The slot that was being opened when the last start ended.
    fn opening(&self) -> Option<Slot> {
        let counts = BootEnv::which(&self.envs)?;
        self.blocks[1 - counts].as_ref()?.get(OPENING)?.parse().ok()
    }

    /// Notes which slot is about to be opened; an empty text takes the note away. Only in the copy that does not count,
    /// and only if the other one is whole: the fate of the sector does not matter then.
    fn write_opening(&self, machine: &mut impl Machine, slot: &str) {
        let ([Some(_), Some(_)], Some(counts)) = (&self.envs, BootEnv::which(&self.envs)) else { return };
        let copy = 1 - counts;
        let Some(mut block) = self.blocks[copy].clone() else { return };
        block.set(OPENING, slot);
        if let Some(sector) = block.render_sector() {
            machine.write_copy(copy, sector.as_bytes());
        }
    }

    /// Notes why a slot did not start. Only where both copies say the same, so that a sector which this write destroys is no
    /// loss.
    fn refuse(&self, machine: &mut impl Machine, refused: BootFailure) {
        if let [Some(first), Some(second)] = &self.envs
            && first == second
        {
            self.write(machine, &[("refused", &refused.to_string())]);
        }
    }
}

#[cfg(test)]
mod tests;
