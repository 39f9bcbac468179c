//! The script for fish.

use super::{Flag, Value, Verb};

pub fn script(verbs: &[Verb]) -> String {
    let paths: Vec<String> =
        verbs.iter().filter(|verb| verb.words.len() > 1).map(|verb| quoted(&verb.words[1..].join(" "))).collect();
    let lines: String = verbs.iter().map(|verb| lines(verb, verbs)).collect();
    include_str!("head.fish").replace("# THE VERBS", &paths.join(" ")).replace("# THE TABLE\n", &lines)
}

/// Everything that one verb takes, each in a line.
fn lines(verb: &Verb, all: &[Verb]) -> String {
    let program = if verb.words[0] == "imager" { "-c imager" } else { "$names" };
    let at = quoted(format!("__slipway_at {}", verb.words[1..].join(" ")).trim_end());
    let start = format!("complete {program} -n {at}");
    let mut lines = String::new();
    for below in all.iter().filter(|other| other.words[..other.words.len() - 1] == verb.words[..]) {
        let name = below.words.last().map_or("", String::as_str);
        lines += &format!("{start} -f -a {name} -d {}\n", quoted(&below.about));
    }
    for flag in &verb.flags {
        lines += &format!("{start} -l {} -d {}{}\n", &flag.name[2..], quoted(&flag.help), value(flag));
    }
    match verb.places.as_slice() {
        [] => lines += &format!("{start} -f\n"),
        places => places.iter().for_each(|place| lines += &format!("{start}{}\n", place_value(place))),
    }
    lines
}

fn value(flag: &Flag) -> String {
    let offered = flag.value.as_ref().map(offers);
    match offered {
        None => String::new(),
        // The value may be left out, and is never a word of its own.
        Some((_, Some(words))) if flag.equals => format!(" -f -a {}", quoted(&words)),
        Some((files, words)) => {
            let words = words.map(|words| format!(" -a {}", quoted(&words))).unwrap_or_default();
            format!(" -r {}{words}", if files { "-F" } else { "-f" })
        }
    }
}

fn place_value(place: &Flag) -> String {
    let (files, words) = place.value.as_ref().map_or((false, None), offers);
    let words = words.map(|words| format!(" -a {}", quoted(&words))).unwrap_or_default();
    format!(" {}{words}", if files { "-F" } else { "-f" })
}

/// Whether files are offered, and which other values.
fn offers(value: &Value) -> (bool, Option<String>) {
    match value {
        Value::Words(words) => (false, Some(words.join(" "))),
        Value::Source | Value::Layout => (false, Some("(__slipway_sources)".to_owned())),
        Value::Disk => (false, Some("(__slipway_disks)".to_owned())),
        Value::DiskOrSource => (false, Some("(__slipway_sources) (__slipway_disks)".to_owned())),
        Value::File => (true, None),
        Value::Directory => (false, Some("(__fish_complete_directories)".to_owned())),
        Value::Text => (false, None),
    }
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\\', r"\\").replace('\'', r"\'"))
}
