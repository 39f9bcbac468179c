//! The script for bash.

use super::{Flag, Value, Verb, quoted};

pub fn script(verbs: &[Verb]) -> String {
    let cases: String = verbs.iter().map(case).collect();
    include_str!("head.bash").replace("    # THE TABLE\n", &cases)
}

fn case(verb: &Verb) -> String {
    let flags: Vec<String> = verb.flags.iter().map(|flag| quoted(&entry(flag))).collect();
    let mut places: Vec<String> = verb.places.iter().map(|place| quoted(&kind(place))).collect();
    if verb.places.last().is_some_and(|place| place.repeats) {
        places.push(quoted("*"));
    }
    format!(
        "    {})\n        verbs={}\n        flags=({})\n        places=({})\n        ;;\n",
        quoted(&verb.words.join(" ")),
        quoted(&verb.verbs.join(" ")),
        flags.join(" "),
        places.join(" ")
    )
}

fn entry(flag: &Flag) -> String {
    let equals = if flag.equals { "=" } else { "" };
    match flag.value {
        Some(_) => format!("{}{equals}:{}", flag.name, kind(flag)),
        None => flag.name.clone(),
    }
}

fn kind(flag: &Flag) -> String {
    match &flag.value {
        Some(Value::Words(words)) => format!("words:{}", words.join(" ")),
        Some(Value::Source) => "source".to_owned(),
        Some(Value::Layout) => "layout".to_owned(),
        Some(Value::Disk) => "disk".to_owned(),
        Some(Value::DiskOrSource) => "disk-or-source".to_owned(),
        Some(Value::File) => "file".to_owned(),
        Some(Value::Directory) => "directory".to_owned(),
        Some(Value::Text) | None => "text".to_owned(),
    }
}
