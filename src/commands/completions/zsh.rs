//! The script for zsh.

use super::{Flag, Value, Verb, quoted};

pub fn script(verbs: &[Verb]) -> String {
    let functions: String = verbs.iter().map(|verb| function(verb, verbs)).collect();
    include_str!("head.zsh").replace("# THE TABLE\n", &functions)
}

fn function(verb: &Verb, all: &[Verb]) -> String {
    let flags = verb.flags.iter().map(flag);
    let places = verb.places.iter().map(place);
    let mut lines: Vec<String> = flags.chain(places).collect();
    if verb.verbs.is_empty() {
        return format!("{}() {{\n    _arguments -S : \\\n        {}\n}}\n\n", name(verb), lines.join(" \\\n        "));
    }
    lines.extend([quoted(": :->verb"), quoted("*::: :->rest")]);
    let below: Vec<&Verb> = all.iter().filter(|other| other.words[..other.words.len() - 1] == verb.words[..]).collect();
    let described: Vec<String> =
        below.iter().map(|verb| quoted(&format!("{}:{}", last(verb), verb.about.replace(':', r"\:")))).collect();
    let cases: Vec<String> = below.iter().map(|verb| format!("({}) {} && ret=0 ;;", last(verb), name(verb))).collect();
    include_str!("verbs.zsh")
        .replace("%NAME%", &name(verb))
        .replace("%LINES%", &lines.join(" \\\n        "))
        .replace("%VERBS%", &described.join("\n            "))
        .replace("%CASES%", &cases.join("\n        "))
}

fn name(verb: &Verb) -> String {
    format!("_slipway_{}", verb.words.join("_").replace('-', "_"))
}

fn last(verb: &Verb) -> &str {
    verb.words.last().map_or("", String::as_str)
}

fn flag(flag: &Flag) -> String {
    let repeats = if flag.repeats { "*" } else { "" };
    let help = escaped(&flag.help);
    quoted(&match (&flag.value, flag.equals) {
        (None, _) => format!("{repeats}{}[{help}]", flag.name),
        (Some(value), true) => format!("{repeats}{}=-[{help}]::value:{}", flag.name, action(value)),
        (Some(value), false) => format!("{repeats}{}=[{help}]:{}:{}", flag.name, &flag.name[2..], action(value)),
    })
}

fn place(place: &Flag) -> String {
    let repeats = if place.repeats { "*" } else { "" };
    quoted(&format!("{repeats}:{}:{}", escaped(&place.help), place.value.as_ref().map_or(" ".to_owned(), action)))
}

fn escaped(help: &str) -> String {
    help.replace('\\', r"\\").replace('[', r"\[").replace(']', r"\]").replace(':', r"\:")
}

fn action(value: &Value) -> String {
    match value {
        Value::Words(words) => format!("({})", words.join(" ")),
        Value::Source => "_slipway_source".to_owned(),
        Value::Layout => "_slipway_layout".to_owned(),
        Value::Disk => "_slipway_disk".to_owned(),
        Value::DiskOrSource => "_slipway_disk_or_source".to_owned(),
        Value::File => "_files".to_owned(),
        Value::Directory => "_files -/".to_owned(),
        Value::Text => " ".to_owned(),
    }
}
