//! Enrolment: the keys of Secure Boot go into the variables of a firmware that is in setup mode.
//!
//! The order of the writes: db, KEK, PK. PK is the commit point. Until it is there the firmware stays in setup mode: it
//! starts everything, and takes the same writes again. With it, only programs that db allows start from the next boot
//! on, so the plan looks for others before the first write.

use crate::prelude::*;

use alloc::collections::BTreeMap;

use core::fmt;

use serde::{Deserialize, Serialize};

use super::{Refusal, Refusals};
use crate::{
    digest::Sha256,
    efi::{
        auth::{Auth, KeySet},
        enroll_mode::EnrollMode,
        signature_list,
        variable::Variable,
    },
    text::printable,
};

/// Facts about the firmware.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FirmwareFacts {
    /// Whether it takes keys without a signature, for it has no platform key.
    pub setup_mode: bool,
    /// Whether this boot was verified.
    pub secure_boot: bool,
    /// The contents of its variables; none: it has no such variable.
    pub held: BTreeMap<Variable, Vec<u8>>,
}

/// A program that has to start afterwards.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Judged {
    /// Its file, or the device that has it.
    pub name: String,
    /// Why it would not start; none if it would.
    pub problem: Option<String>,
}

/// The machine, and the programs that it would start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EnrollFacts {
    /// Facts about the firmware.
    pub firmware: FirmwareFacts,
    /// Whether the machine is a virtual one; none if it does not say.
    pub virtual_machine: Option<bool>,
    /// Programs of the next boot.
    pub programs: Vec<Judged>,
    /// Programs of the fallback.
    pub fallback: Vec<Judged>,
    /// Drivers in the ROMs of PCI devices.
    pub option_roms: Vec<Judged>,
}

/// The variables to write, decided before the first write.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct EnrollPlan {
    /// When it is done.
    pub mode: EnrollMode,
    /// The writes in order; empty if there is nothing to do.
    pub steps: Vec<EnrollStep>,
    /// Notes for the user.
    pub warnings: Vec<String>,
    /// The state afterwards, as a sentence.
    pub result: String,
}

/// A variable that is set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct EnrollStep {
    /// Which one.
    pub variable: Variable,
    /// Bytes that firmware gets.
    pub bytes: u64,
    /// Their digest.
    pub sha256: Sha256,
    /// The certificates that the variable has afterwards: SHA-256 of their DER form.
    pub certificates: Vec<Sha256>,
    /// The number of signatures that go away.
    pub replaced: u64,
}

impl EnrollPlan {
    /// SHA-256 of the plan's actions, as JSON: without the sentences that are for people.
    pub fn hash(&self) -> Sha256 {
        let plan = EnrollPlan { warnings: vec![], result: String::new(), ..self.clone() };
        // Cannot fail: the plan holds only strings, numbers and lists.
        Sha256::of(&serde_json::to_vec(&plan).unwrap_or_default())
    }
}

/// The files are sound: [`KeySet::check`].
pub fn enroll(mode: EnrollMode, keys: &KeySet, facts: &EnrollFacts) -> Result<EnrollPlan, Refusals> {
    let nothing = |result: String| Ok(EnrollPlan { mode, steps: vec![], warnings: vec![], result });
    let firmware = &facts.firmware;
    if mode == EnrollMode::Off {
        return nothing("by the mode off no keys are enrolled".to_owned());
    }
    let missing: Vec<_> = keys.in_order().into_iter().filter(|auth| !holds(firmware, auth)).collect();
    if !firmware.setup_mode {
        let in_force = if firmware.secure_boot { "Secure Boot is on" } else { "Secure Boot is off in its menu" };
        return match mode {
            _ if missing.is_empty() => nothing(format!("the firmware has these keys, and {in_force}")),
            EnrollMode::IfSafe => nothing(format!("the firmware has other keys, is not in setup mode, and {in_force}")),
            _ => Err(Refusal::NotInSetupMode.into()),
        };
    }
    if mode == EnrollMode::IfSafe && facts.virtual_machine != Some(true) {
        let machine = match facts.virtual_machine {
            Some(_) => "this is no virtual machine",
            None => "nothing says that this is a virtual machine",
        };
        return nothing(format!("{machine}, so a person has to ask for it: `installer enroll` without --mode=if-safe"));
    }
    let against = against(facts);
    let mut warnings = against.iter().map(|refusal| refusal.to_string()).collect::<Vec<_>>();
    if !against.is_empty() && mode != EnrollMode::Force {
        return Err(Refusals(against));
    }
    warnings.extend(facts.fallback.iter().filter_map(|judged| {
        Some(format!("{}: {}, so it is no way back any more", judged.name, judged.problem.as_ref()?))
    }));
    let steps: Vec<_> = missing.into_iter().map(|auth| step(auth, firmware)).collect();
    warnings.extend(
        steps
            .iter()
            .filter(|step| step.replaced > 0)
            .map(|step| format!("{}: {} signatures that it has now are replaced", step.variable.name(), step.replaced)),
    );
    let result = "the firmware leaves setup mode at once; from the next boot on Secure Boot is in force".to_owned();
    Ok(EnrollPlan { mode, steps, warnings, result })
}

fn against(facts: &EnrollFacts) -> Vec<Refusal> {
    let mut found: Vec<_> = facts
        .programs
        .iter()
        .filter_map(|judged| {
            Some(Refusal::WouldNotStart { program: judged.name.clone(), why: judged.problem.clone()? })
        })
        .collect();
    if facts.programs.is_empty() {
        found.push(Refusal::NextUnknown);
    }
    found.extend(
        facts.option_roms.iter().filter_map(|judged| {
            Some(Refusal::OptionRom { device: judged.name.clone(), why: judged.problem.clone()? })
        }),
    );
    found
}

fn holds(firmware: &FirmwareFacts, auth: &Auth) -> bool {
    firmware.held.get(&auth.variable) == Some(&auth.content)
}

fn step(auth: &Auth, firmware: &FirmwareFacts) -> EnrollStep {
    let held = firmware.held.get(&auth.variable).map(|held| signature_list::parse(held).unwrap_or_default());
    let gone = held.unwrap_or_default().into_iter().filter(|entry| !auth.entries.contains(entry)).count();
    EnrollStep {
        variable: auth.variable,
        bytes: auth.file.len() as u64,
        sha256: Sha256::of(&auth.file),
        certificates: auth.certificates().iter().map(|certificate| Sha256::of(certificate.der())).collect(),
        replaced: gone as u64,
    }
}

impl fmt::Display for EnrollStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, count) = (self.variable.name(), self.certificates.len());
        let many = if count == 1 { "" } else { "s" };
        write!(f, "write      {name}: {count} certificate{many}, {} bytes", self.bytes)
    }
}

impl fmt::Display for EnrollPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "enroll in this machine's firmware, mode {}", self.mode)?;
        for (n, step) in (1..).zip(&self.steps) {
            let commit = if step.variable == Variable::Pk { "   <- commit point" } else { "" };
            writeln!(f, "  {n:>2}. {step}{commit}")?;
        }
        self.warnings.iter().try_for_each(|warning| writeln!(f, "  note: {}", printable(warning)))
    }
}
