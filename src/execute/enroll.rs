//! The steps of an enrolment: each one write to the firmware, read back.

use anyhow::{Context as _, anyhow, bail, ensure};
use slipway_core::{
    efi::{
        auth::{Auth, KeySet},
        variable::Variable,
    },
    plan::{EnrollPlan, EnrollStep},
    report::{FailureKind, Left, Observer},
};

use super::ExecuteError;
use crate::device::{EfiVariables, SETUP_MODE};

/// `keys` are the keys of the plan.
pub fn enroll(
    plan: &EnrollPlan,
    keys: &KeySet,
    firmware: &dyn EfiVariables,
    observer: &mut dyn Observer,
) -> Result<(), ExecuteError> {
    for (n, step) in plan.steps.iter().enumerate() {
        let sentence = step.to_string();
        observer.left(left(plan, firmware));
        observer.step(n + 1, plan.steps.len(), &sentence, step.bytes);
        let done = written(step, keys, firmware);
        if let Err(source) = done {
            let (number, of, left) = (n + 1, plan.steps.len(), left(plan, firmware));
            let source = source.reallocate_into_boxed_dyn_error_without_backtrace();
            return Err(ExecuteError { number, of, sentence, wrote: true, left, kind: FailureKind::Install, source });
        }
        observer.advance(step.bytes);
    }
    observer.left(Left::state(&plan.result));
    Ok(())
}

fn written(step: &EnrollStep, keys: &KeySet, firmware: &dyn EfiVariables) -> anyhow::Result<()> {
    let name = step.variable.name();
    let auth = keys.in_order().into_iter().find(|auth| auth.variable == step.variable);
    let auth = auth.ok_or_else(|| anyhow!("the plan is for other keys"))?;
    let changed = firmware.change(step.variable, &auth.file);
    changed.with_context(|| format!("the firmware does not take {name}"))?;
    ensure!(is_there(auth, firmware), "{name}, read back, is not what was written");
    if step.variable == Variable::Pk && firmware.flag(SETUP_MODE).context(SETUP_MODE)? != Some(false) {
        bail!("the firmware took PK, and is in setup mode all the same");
    }
    Ok(())
}

fn is_there(auth: &Auth, firmware: &dyn EfiVariables) -> bool {
    firmware.read(auth.variable).is_ok_and(|held| held.as_ref() == Some(&auth.content))
}

/// The firmware's state now, asked once more, and the remedy.
fn left(plan: &EnrollPlan, firmware: &dyn EfiVariables) -> Left {
    match firmware.flag(SETUP_MODE) {
        Ok(Some(true)) => {
            let names: Vec<_> = plan.steps.iter().map(|step| step.variable.name()).collect();
            let names = names.join(", ");
            let state = "the firmware is in setup mode still, so it starts everything, as before";
            Left::new(format!("{state}, whatever of {names} was written"), Left::AGAIN)
        }
        Ok(Some(false)) => {
            Left::state("the firmware has left setup mode: Secure Boot is in force from the next boot on")
        }
        Ok(None) | Err(_) => {
            let state = "the firmware does not say whether it is in setup mode still: if so, it starts everything";
            Left::new(state, Left::AGAIN)
        }
    }
}
