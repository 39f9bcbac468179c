//! What nodes say, for people.

use std::fmt::Write as _;

use slipway_node_api::{
    enum_name,
    text::clean,
    v1::{
        Certificate, CertificateUse, Disk, Ended, Event, Goal, Health, HealthState, OnFailure, Operation, Outcome,
        PlanResponse, Position, Slot, SlotContents, SlotState, StatusResponse, Step, event::What,
    },
};

/// `HH:MM:SS` of milliseconds since 1970, UTC.
pub fn clock(time: u64) -> String {
    let seconds = time / 1000 % 86400;
    format!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

pub fn bar(done: u64, total: u64) -> String {
    const WIDTH: u64 = 30;
    let mib = |bytes: u64| bytes >> 20;
    if total == 0 {
        return format!("{} MiB", mib(done));
    }
    let share = |of: u64| u64::try_from(u128::from(done.min(total)) * u128::from(of) / u128::from(total)).unwrap_or(of);
    let full = usize::try_from(share(WIDTH)).unwrap_or_default();
    let (full, rest) = ("#".repeat(full), ".".repeat(30 - full));
    format!("[{full}{rest}] {} %, {} of {} MiB", share(100), mib(done), mib(total))
}

/// One event as a line.
pub fn line(event: &Event) -> String {
    let says = match &event.what {
        Some(What::Asked(of)) => {
            let outage = if of.allow_outage { ", although etcd may lose its quorum" } else { "" };
            let version = if of.allow_any_version { ", whatever its version" } else { "" };
            let data = if of.allow_any_etcd { ", whether etcd's data can be read or not" } else { "" };
            format!(
                "{} {} {} for {}{outage}{version}{data}",
                enum_name::of::<Goal>(of.goal),
                of.id,
                of.source,
                of.caller
            )
        }
        Some(What::StepBegun(of)) if of.place > 0 => format!("[{}/{}] {}", of.place, of.places, of.does),
        Some(What::StepBegun(of)) => format!("[back] {}", of.does),
        Some(What::StepProgress(of)) => bar(of.done, of.total),
        Some(What::StepBlocked(of)) => format!("{} is blocked: {}", enum_name::of::<Step>(of.step), of.why),
        Some(What::StepDone(of)) => format!("{} is done", enum_name::of::<Step>(of.step)),
        Some(What::TurnedBack(of)) => format!("going back: {}", of.why),
        Some(What::Ended(of)) => ended(of),
        Some(What::Notice(of)) => of.text.clone(),
        Some(What::Gap(of)) => match of.missing {
            Some(missing) => format!("({missing} events are missing: they were not read in time)"),
            None => "(events may be missing: the service was started anew)".to_owned(),
        },
        None => "an event that this program does not know".to_owned(),
    };
    clean(format!("{}  {says}", clock(event.time)).trim_end())
}

/// The end of an operation, as a sentence.
pub fn ended(of: &Ended) -> String {
    let how = missed(of.outcome.as_ref()).unwrap_or_else(|| "reached its goal".to_owned());
    format!("{} {} {how}", enum_name::of::<Goal>(of.goal), of.id)
}

/// Why its goal was not reached, if it was not.
pub fn missed(outcome: Option<&Outcome>) -> Option<String> {
    let outcome = outcome?;
    let why = outcome.came_back.as_deref()?;
    let how = if outcome.left { "failed, left as it was; the node may not be well" } else { "failed, undone" };
    Some(format!("{how}: {why}"))
}

/// `EPOCH/NUMBER`.
pub fn position(of: &Position) -> String {
    format!("{}/{}", of.epoch, of.seq)
}

/// A node for people: with all operations that it remembers, or with the last three.
pub fn status(of: &StatusResponse, is_wide: bool) -> String {
    let mut rows = vec![(
        "node",
        format!(
            "{}, OS {}, service {}, up {}",
            of.node,
            of.os_version().unwrap_or("unknown"),
            of.version,
            duration(of.uptime)
        ),
    )];
    let parts = [(of.kubernetes, "Kubernetes"), (of.etcd, "etcd")];
    let parts: Vec<&str> = parts.into_iter().filter_map(|(has, what)| has.then_some(what)).collect();
    if !parts.is_empty() {
        rows.push(("runs", parts.join(", ")));
    }
    match &of.disk {
        Some(disk) => rows.extend(slots(disk)),
        None => rows.push((
            "disk",
            "its boot state cannot be read, or another disk runs: on the node, `installer status` says which"
                .to_owned(),
        )),
    }
    rows.extend(of.no_way_back.iter().map(|why| ("way back", format!("none: {why}"))));
    match &of.operation {
        Some(op) => rows.extend(operation(op)),
        None => rows.push(("doing", "nothing".to_owned())),
    }
    rows.extend(of.health.iter().map(|of| ("health", health(of))));
    rows.extend(
        of.ended
            .iter()
            .take(if is_wide { usize::MAX } else { 3 })
            .map(|of| ("before", format!("{}, for {}", ended(of), of.caller))),
    );
    rows.extend(of.denied.iter().map(|of| ("denied", format!("{}: {}", of.payload, of.why))));
    rows.extend(of.certificates.iter().map(|of| ("cert", certificate(of))));
    rows.extend(of.events.as_ref().map(|of| ("events", position(of))));
    rows.iter().fold(String::new(), |mut text, (key, value)| {
        // Writing to a String does not fail.
        let _ = writeln!(text, "{key:<9} {}", clean(value));
        text
    })
}

/// The health of a node, as a sentence.
pub fn health(of: &Health) -> String {
    let time =
        if of.state() == HealthState::Unknown { String::new() } else { format!(" for {}", duration(of.seconds)) };
    let why = if of.reasons.is_empty() { String::new() } else { format!(": {}", of.reasons.join("; ")) };
    format!("{}{time}{why}", enum_name::of::<HealthState>(of.state))
}

/// When a certificate expires, with a warning in the last thirty days.
fn certificate(of: &Certificate) -> String {
    let what = match of.r#use() {
        CertificateUse::Server => "of this node",
        CertificateUse::ClientCa => "CA of clients",
        CertificateUse::Unspecified => "of another use",
    };
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    match u64::try_from(of.expires).unwrap_or(0).saturating_sub(now) / 86_400 {
        0 => format!("{what}, {}: EXPIRES TODAY, OR HAS EXPIRED", of.name),
        days if days <= 30 => format!("{what}, {}: expires in {days} d, RENEW IT", of.name),
        days => format!("{what}, {}: expires in {days} d", of.name),
    }
}

fn slots(disk: &Disk) -> Vec<(&'static str, String)> {
    let slot = |of: &SlotContents| {
        let running = if of.slot == disk.running { ", running" } else { "" };
        let next = if disk.next == Some(of.slot) { ", next" } else { "" };
        let payload = of.payload.as_deref().unwrap_or("unknown");
        let state = of.state.map_or_else(|| "?".to_owned(), enum_name::of::<SlotState>);
        let version = of.version.as_deref().map(|version| format!(", version {version}")).unwrap_or_default();
        let slot = enum_name::of::<Slot>(of.slot).to_uppercase();
        ("slot", format!("{slot} {state}{running}{next}{version}, payload {payload}"))
    };
    disk.slots.iter().map(slot).collect()
}

fn operation(op: &Operation) -> Vec<(&'static str, String)> {
    let step = if op.place > 0 { format!("[{}/{}]", op.place, op.places) } else { "[back]".to_owned() };
    let done = if op.done { ", done" } else { "" };
    let mut rows = vec![
        ("doing", format!("{} {} {} for {}", enum_name::of::<Goal>(op.goal), op.id, op.source, op.caller)),
        ("step", format!("{step} {}{done}", op.does)),
    ];
    rows.extend(op.back.as_ref().map(|why| ("back", why.clone())));
    rows.extend(op.blocked.as_ref().map(|why| ("blocked", why.clone())));
    rows
}

fn duration(seconds: u64) -> String {
    match (seconds / 86400, seconds / 3600 % 24, seconds / 60 % 60) {
        (0, 0, minutes) => format!("{minutes} min"),
        (0, hours, minutes) => format!("{hours} h {minutes} min"),
        (days, hours, _) => format!("{days} d {hours} h"),
    }
}

/// A plan for people.
pub fn plan(of: &PlanResponse) -> String {
    of.steps.iter().enumerate().fold(String::new(), |mut text, (at, step)| {
        let failure = match step.on_failure() {
            OnFailure::Undo => "if not: undone, the machine keeps running",
            OnFailure::OldSystem => "if not: reboot into the old system",
            _ => "if not: tried again",
        };
        let _ = writeln!(text, "{:>2}  {:<52} {failure}", at + 1, clean(&step.does));
        if let Some(why) = &step.blocked {
            let _ = writeln!(text, "    blocked: {}", clean(why));
        }
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars() {
        assert_eq!(bar(0, 0), "0 MiB");
        assert_eq!(bar(5 << 20, 10 << 20), "[###############...............] 50 %, 5 of 10 MiB");
        // A total that was wrong does not break the line.
        assert!(bar(u64::MAX, 1 << 20).starts_with(&format!("[{}] 100 %", "#".repeat(30))));
    }

    #[test]
    fn what_a_node_says_cannot_write_over_the_terminal() {
        let event = Event { what: Some(What::notice("a\x1b[2Jb\nc")), ..Event::default() };
        assert_eq!(line(&event), "00:00:00  a [2Jb c");
    }

    #[test]
    fn how_a_node_is() {
        let of = |state: HealthState, seconds, reasons: &[&str]| {
            let reasons = reasons.iter().map(|&why| why.to_owned()).collect();
            health(&Health { state: state.into(), seconds, reasons })
        };
        assert_eq!(of(HealthState::Well, 7200, &[]), "well for 2 h 0 min");
        assert_eq!(of(HealthState::Ill, 60, &["a is failed", "b"]), "ill for 1 min: a is failed; b");
        assert_eq!(of(HealthState::Unknown, 0, &["an operation is under way"]), "unknown: an operation is under way");
        let status = StatusResponse { health: Some(Health::default()), ..StatusResponse::default() };
        assert!(super::status(&status, false).contains("\nhealth "));
        let ended = vec![Ended::default(); 5];
        let status = StatusResponse { ended, ..status };
        let shown = [false, true].map(|is_wide| super::status(&status, is_wide).matches("\nbefore ").count());
        assert_eq!(shown, [3, 5]);
    }

    #[test]
    fn times() {
        assert_eq!(clock(86_399_999), "23:59:59");
        assert_eq!(duration(3 * 86400 + 7200), "3 d 2 h");
    }
}
