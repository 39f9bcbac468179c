//! Size: quick
//!
//! The protocol as it was released: `tests/v1/protocol.txt` has each call, each field with its number and type, and each word of
//! an enum. A node and its clients are of different versions while a fleet is upgraded, so a line is only ever added.
//! `SLIPWAY_UPDATE_GOLDEN=1` adds what is new.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::{collections::BTreeSet, env, fs, path::Path};

use prost_reflect::{Cardinality, DescriptorPool, FieldDescriptor, Kind};

fn pool() -> DescriptorPool {
    let set = protox::compile(["slipway/node/v1/node.proto"], ["proto"]).unwrap();
    DescriptorPool::from_file_descriptor_set(set).unwrap()
}

/// The value of a field on the wire.
fn line_of(field: &FieldDescriptor) -> String {
    let kind = match field.kind() {
        Kind::Message(of) => of.full_name().to_owned(),
        Kind::Enum(of) => of.full_name().to_owned(),
        simple => format!("{simple:?}").to_lowercase(),
    };
    let many = if field.cardinality() == Cardinality::Repeated { "repeated " } else { "" };
    format!("{} = {} {many}{kind}", field.full_name(), field.number())
}

fn lines_of(pool: &DescriptorPool) -> BTreeSet<String> {
    let fields = pool.all_messages().flat_map(|message| message.fields().map(|f| line_of(&f)).collect::<Vec<_>>());
    let words = pool.all_enums().flat_map(|of| {
        let name = of.full_name().to_owned();
        of.values().map(|value| format!("{name}.{} = {}", value.name(), value.number())).collect::<Vec<_>>()
    });
    let stream = |is: bool| if is { "stream " } else { "" };
    let calls = pool.services().flat_map(|service| {
        let method = |call: prost_reflect::MethodDescriptor| {
            let (from, to) = (stream(call.is_client_streaming()), stream(call.is_server_streaming()));
            let (input, output) = (call.input(), call.output());
            format!("{}({from}{}) {to}{}", call.full_name(), input.full_name(), output.full_name())
        };
        service.methods().map(method).collect::<Vec<_>>()
    });
    fields.chain(words).chain(calls).collect()
}

/// The parts of the released protocol that are gone, or mean something else.
fn lost(released: &str, today: &BTreeSet<String>) -> Vec<String> {
    released.lines().filter(|line| !today.contains(*line)).map(str::to_owned).collect()
}

#[test]
fn what_was_released_stays_and_what_is_new_is_written_down() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/v1/protocol.txt");
    let released = fs::read_to_string(&path).unwrap_or_default();
    let today = lines_of(&pool());
    let gone = lost(&released, &today);
    assert!(
        gone.is_empty(),
        "nodes and clients of a released version have these, which are gone or changed: {gone:#?}"
    );
    let written: BTreeSet<String> = released.lines().map(str::to_owned).collect();
    let new: Vec<_> = today.difference(&written).collect();
    if env::var_os("SLIPWAY_UPDATE_GOLDEN").is_some() {
        fs::write(&path, today.iter().map(|line| format!("{line}\n")).collect::<String>()).unwrap();
        return;
    }
    assert!(new.is_empty(), "the next release has these: SLIPWAY_UPDATE_GOLDEN=1 writes them down: {new:#?}");
}

/// Another number, another type, a field, a word or a call that goes: each is found.
#[test]
fn a_change_of_what_was_released_is_found() {
    let today = lines_of(&pool());
    let released: String = today.iter().map(|line| format!("{line}\n")).collect();
    assert_eq!(lost(&released, &today), Vec::<String>::new());
    let some = ["= 1 string", "repeated ", "(", "= 0"];
    for part in some {
        let line = today.iter().find(|line| line.contains(part)).unwrap_or_else(|| panic!("no line has {part}"));
        for changed in [None, Some(line.replacen(part, "= 99 bytes", 1))] {
            let mut other = today.clone();
            other.remove(line);
            other.extend(changed);
            assert_eq!(lost(&released, &other), std::slice::from_ref(line));
        }
    }
}
