//! The two copies of boot.env: read, and written in the order in which one is valid at every instant.

use crate::prelude::*;

use super::{
    Refusal, Step, SystemFacts,
    rebuild_boot_state::{current_or_rebuilt, default_if_lost},
};
use crate::boot::{env::BootEnv, slot::Slot};

/// The boot state in force, and where its two copies lie.
pub struct EnvCopies {
    pub env: BootEnv,
    /// Both copies were lost, and `env` was made from the slots' markers.
    pub is_rebuilt: bool,
    at: [Option<u64>; 2],
    copies: [Option<BootEnv>; 2],
    /// The copy that counts.
    counts: Option<usize>,
    /// The number of the entry that the change leaves in the history.
    entry: Option<u32>,
}

impl EnvCopies {
    /// The boot state as found. If both copies are lost it is rebuilt from the markers and the running slot, but only
    /// inside a system of this disk that is undamaged. One copy that can be written is enough.
    pub fn read(system: &SystemFacts, now: u64) -> Result<Self, Refusal> {
        let whole = |slot: &Slot| system.slots[*slot].damage().is_none();
        Self::or_rebuilt(system, now, || system.running.slot().filter(whole).and_then(|_| default_if_lost(system)))
    }

    /// The boot state as found, or rebuilt with `default` as the slot that boots.
    pub fn or_rebuilt(system: &SystemFacts, now: u64, default: impl FnOnce() -> Option<Slot>) -> Result<Self, Refusal> {
        if system.env_at == [None; 2] {
            return Err(Refusal::NoBootEnv);
        }
        let env = current_or_rebuilt(system, now, default)?;
        let entry = system.history.as_ref().and_then(|history| history.next(system.env.as_ref()));
        let (at, copies, counts) = (system.env_at, system.env_copies.clone(), system.env_counts());
        Ok(EnvCopies { env, is_rebuilt: system.env.is_none(), at, copies, counts, entry })
    }

    /// Write a new state to both copies. The order keeps one valid copy on the disk at all times. With `commit`, the
    /// first write that puts the state in force is marked as the commit point, and the state names the plan's entry in the
    /// history.
    pub fn write(&mut self, env: &BootEnv, commit: bool) -> Vec<Step> {
        let entry = self.entry.filter(|_| commit).or(env.history);
        let env = &BootEnv { history: entry, ..env.clone() };
        let mut steps = Vec::new();
        let mut committed = false;
        for n in BootEnv::write_order(self.counts) {
            let Some(offset) = self.at[n] else { continue };
            let over = self.copies[n].replace(env.clone());
            let in_force = BootEnv::pick(&self.copies) == Some(env);
            let commit = commit && in_force && !committed;
            committed |= in_force;
            steps.push(Step::WriteBootEnv { copy: n as u8 + 1, offset, env: env.clone(), over, commit });
        }
        self.env = env.clone();
        self.counts = BootEnv::which(&self.copies);
        steps
    }

    /// Repair a copy that differs from the state in force, after damage or a power loss between the two writes.
    pub fn heal(&mut self) -> Vec<Step> {
        let env = self.env.clone();
        let mut steps = Vec::new();
        for n in BootEnv::write_order(self.counts) {
            let Some(offset) = self.at[n].filter(|_| self.copies[n].as_ref() != Some(&env)) else { continue };
            let over = self.copies[n].replace(env.clone());
            steps.push(Step::WriteBootEnv { copy: n as u8 + 1, offset, env: env.clone(), over, commit: false });
        }
        steps
    }
}
