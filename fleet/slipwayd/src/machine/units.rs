//! The init system's part, by systemd's own tool.

use std::process::{Command, Stdio};

/// Run `systemctl` and return its standard output.
fn systemctl(args: &[&str]) -> Result<String, String> {
    let shown = || format!("systemctl {}", args.join(" "));
    let output = Command::new("systemctl")
        .args(args)
        .stdin(Stdio::null())
        .output()
        .map_err(|e| format!("{} cannot be run: {e}", shown()))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("{} ended with {}: {}", shown(), output.status, said.trim()))
}

/// Stop these units, in this order. A unit that does not exist is a mistake in the configuration, and an error.
pub fn stop(units: &[String]) -> Result<(), String> {
    for unit in units {
        systemctl(&["stop", "--", unit])?;
    }
    Ok(())
}

/// The first of these units that is not active, and what it is instead.
pub fn are_active(units: &[String]) -> Result<(), String> {
    for unit in units {
        let state = systemctl(&["show", "--property=ActiveState,SubState", "--value", "--", unit])?;
        let state = state.split_whitespace().collect::<Vec<_>>().join(", ");
        if !state.starts_with("active") {
            return Err(format!("{unit} is {state}"));
        }
    }
    Ok(())
}

/// Start the machine anew. Answers once the init system has taken it on.
pub fn reboot() -> Result<(), String> {
    systemctl(&["reboot"]).map(drop)
}
