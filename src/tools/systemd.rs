//! Questions to systemd and logind: when a calendar expression comes next, which inhibitors hold a reboot back, and the
//! reboot itself. By their programs: a D-Bus library would be larger than all of this.

use std::{
    collections::BTreeSet,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use serde_json::Value;
use slipway_core::config::update::{Inhibitors, Users};

use super::{Tool, ToolError};

/// The transient timer that opens the windows, and its service.
const REBOOT_TIMER: &str = "slipway-reboot.timer";
pub const REBOOT_SERVICE: &str = "slipway-reboot.service";

/// When a calendar expression comes next after a moment, both in seconds since 1970 UTC. None if never again.
pub fn next(calendar: &str, after: u64) -> Result<Option<u64>, ToolError> {
    let base = format!("--base-time=@{after}");
    let text = Tool::SystemdAnalyze.stdout(&["calendar", &base, "--", calendar])?;
    // The clock of the child is in UTC: `    Next elapse: Sat 2026-11-28 01:00:00 UTC`, or `never`.
    let said = text.lines().find_map(|line| line.trim().strip_prefix("Next elapse: "));
    let words: Vec<&str> = said.unwrap_or_default().split_whitespace().collect();
    let time = match words[..] {
        ["never"] => return Ok(None),
        [_, day, time, "UTC"] => humantime::parse_rfc3339_weak(&format!("{day} {time}")).ok(),
        _ => None,
    };
    let seconds = time.and_then(|time: SystemTime| time.duration_since(UNIX_EPOCH).ok());
    seconds.map(|since| Some(since.as_secs())).ok_or_else(|| ToolError::Failed {
        program: "systemd-analyze",
        why: format!("it does not say when {calendar:?} comes next: {text:?}"),
    })
}

/// Whether the answer can be had at all: each program that is missing would be noticed too late.
pub fn is_there(windows: bool) -> Result<(), ToolError> {
    let always = [Tool::Systemctl, Tool::Busctl];
    let for_windows = [Tool::SystemdAnalyze, Tool::SystemdRun];
    let mut all = always.into_iter().chain(for_windows.into_iter().filter(|_| windows));
    all.try_for_each(|tool| tool.find().map(drop))
}

/// Reasons that hold a reboot back, each in words.
pub fn held_back(inhibitors: &Inhibitors, users: Users) -> Result<Vec<String>, ToolError> {
    let mut reasons = vec![];
    if *inhibitors != Inhibitors::None {
        for inhibitor in rows(&manager("ListInhibitors")?) {
            let [what, who, why, mode] = [0, 1, 2, 3].map(|at| inhibitor[at].as_str().unwrap_or_default());
            let blocks = mode.starts_with("block") && what.split(':').any(|what| what == "shutdown");
            if blocks && inhibitors.respects(who) {
                reasons.push(format!("inhibited by {who} ({why})"));
            }
        }
    }
    if users == Users::Wait {
        let sessions = rows(&manager("ListSessions")?);
        let here = sessions.iter().filter(|session| is_a_user(session[4].as_str().unwrap_or_default()));
        // Name a user with two sessions once.
        let names: BTreeSet<_> = here.map(|session| session[2].as_str().unwrap_or_default()).collect();
        reasons.extend(names.iter().map(|name| format!("user {name} is logged in")));
    }
    Ok(reasons)
}

const LOGIND: &str = "org.freedesktop.login1";

fn manager(method: &str) -> Result<Value, ToolError> {
    let interface = "org.freedesktop.login1.Manager";
    let text = Tool::Busctl.stdout(&["--json=short", "call", LOGIND, "/org/freedesktop/login1", interface, method])?;
    serde_json::from_str(&text).map_err(|e| ToolError::Failed { program: "busctl", why: format!("{method}: {e}") })
}

/// `{"type":"a(…)","data":[[row, row]]}`
fn rows(answer: &Value) -> Vec<Value> {
    answer["data"][0].as_array().cloned().unwrap_or_default()
}

/// Not a login screen, a user's systemd, or a session that is ending. A session that does not answer counts: it is
/// asked again.
fn is_a_user(session: &str) -> bool {
    let interface = "org.freedesktop.login1.Session";
    let asked = ["--json=short", "get-property", LOGIND, session, interface, "Class", "State"];
    let Ok(text) = Tool::Busctl.stdout(&asked) else { return true };
    let mut said = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap_or_default());
    let (class, state) = (said.next().unwrap_or_default(), said.next().unwrap_or_default());
    class["data"].as_str().is_none_or(|class| class.starts_with("user")) && state["data"] != "closing"
}

/// Have systemd run a command whenever a window opens, and once after this time. A timer of an earlier call is replaced; while
/// a window is open and its service runs, nothing changes.
pub fn run_in_windows(windows: &[String], again: Option<Duration>, command: &[String]) -> Result<(), ToolError> {
    if Tool::Systemctl.stdout(&["is-active", "--quiet", REBOOT_SERVICE]).is_ok() {
        return Ok(());
    }
    // It fails if there is no such timer.
    _ = Tool::Systemctl.stdout(&["stop", REBOOT_TIMER]);
    let again = again.map(|pause| format!("--on-active={}", pause.as_secs()));
    let calendars = windows.iter().map(|window| format!("--on-calendar={window}"));
    let times: Vec<_> = again.into_iter().chain(calendars).collect();
    let name = "--description=Reboot into the new system of Slipway";
    // The command may name its file from here.
    let own = ["--quiet", "--collect", "--same-dir", "--unit=slipway-reboot", name];
    let words = own.into_iter().chain(times.iter().map(String::as_str)).chain(["--"]);
    let words: Vec<&str> = words.chain(command.iter().map(String::as_str)).collect();
    Tool::SystemdRun.stdout(&words).map(drop)
}

/// Ask logind for a reboot. It returns before the machine goes down.
pub fn reboot(inhibitors: &Inhibitors) -> Result<(), ToolError> {
    // Other inhibitors may hold it back, too: newer versions of systemd heed them for root.
    let words: &[&str] = if *inhibitors == Inhibitors::All { &["reboot"] } else { &["-i", "reboot"] };
    Tool::Systemctl.stdout(words).map(drop)
}
