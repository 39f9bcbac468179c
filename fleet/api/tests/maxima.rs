//! Size: quick
//!
//! Every text and every list of the protocol: filled with too much of the worst, it comes through the wire cut and clean.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use prost::Message;
use prost_reflect::{Cardinality, DescriptorPool, DynamicMessage, FieldDescriptor, Kind, MessageDescriptor, Value};
use slipway_node_api::{
    bound::{Bound, check, cut},
    text::is_clean,
    v1,
};

/// The text of a liar: it clears a terminal, forges a line of a log, turns text around, and is long.
fn worst(bytes: usize) -> String {
    "\x1b[2J\nerror: forged\r\u{202e}\u{2066}é".repeat(bytes / 24)
}

const ITEMS: usize = 100;

fn message(name: &str) -> MessageDescriptor {
    let set = protox::compile(["slipway/node/v1/node.proto"], ["proto"]).unwrap();
    let pool = DescriptorPool::from_file_descriptor_set(set).unwrap();
    pool.get_message_by_name(&format!("slipway.node.v1.{name}")).unwrap()
}

/// A value for one field, without the list around it.
fn value(field: &FieldDescriptor, text: &str) -> Value {
    match field.kind() {
        Kind::String => Value::String(text.to_owned()),
        Kind::Bytes => Value::Bytes(vec![0x1b; 1 << 20].into()),
        Kind::Message(of) => Value::Message(filled(&of, text)),
        Kind::Enum(_) => Value::EnumNumber(99),
        Kind::Bool => Value::Bool(true),
        Kind::Int64 => Value::I64(i64::MIN),
        Kind::Uint32 => Value::U32(u32::MAX),
        Kind::Uint64 => Value::U64(u64::MAX),
        other => panic!("{}: the test knows no value of {other:?}", field.full_name()),
    }
}

/// A message with all its fields; of a oneof, the last.
fn filled(of: &MessageDescriptor, text: &str) -> DynamicMessage {
    let mut message = DynamicMessage::new(of.clone());
    for field in of.fields() {
        let one = value(&field, text);
        let value = if field.cardinality() == Cardinality::Repeated { Value::List(vec![one; ITEMS]) } else { one };
        message.set_field(&field, value);
    }
    message
}

/// The faults in the texts and lists of a message.
fn wrong(message: &DynamicMessage, found: &mut Vec<String>) {
    let look = |name: &str, value: &Value, found: &mut Vec<String>| match value {
        Value::String(text) if text.len() > 4096 || !is_clean(text) => {
            found.push(format!("{name}: {} bytes, clean: {}", text.len(), is_clean(text)));
        }
        Value::Bytes(bytes) if bytes.len() > 65536 => found.push(format!("{name}: {} bytes", bytes.len())),
        Value::Message(of) => wrong(of, found),
        _ => {}
    };
    for (field, value) in message.fields() {
        match value {
            Value::List(items) => {
                items.iter().for_each(|item| look(field.full_name(), item, found));
                if items.len() > 32 {
                    found.push(format!("{}: {} items", field.full_name(), items.len()));
                }
            }
            one => look(field.full_name(), one, found),
        }
    }
}

/// An answer that a liar filled, as the other side believes it: its size, and its faults.
fn believed<M: Message + Bound + Default>(name: &str, text: &str) -> (usize, Vec<String>) {
    let descriptor = message(name);
    let mut received = M::decode(filled(&descriptor, text).encode_to_vec().as_slice()).unwrap();
    cut(&mut received);
    let bytes = received.encode_to_vec();
    let mut found = Vec::new();
    wrong(&DynamicMessage::decode(descriptor, bytes.as_slice()).unwrap(), &mut found);
    (bytes.len(), found)
}

#[test]
fn answers_of_a_liar_are_cut_and_clean() {
    for (name, (bytes, found)) in [
        ("StatusResponse", believed::<v1::StatusResponse>("StatusResponse", &worst(1 << 16))),
        ("PlanResponse", believed::<v1::PlanResponse>("PlanResponse", &worst(1 << 16))),
        ("AskResponse", believed::<v1::AskResponse>("AskResponse", &worst(2 << 20))),
        ("LogsResponse", believed::<v1::LogsResponse>("LogsResponse", "")),
    ] {
        assert_eq!(found, [""; 0], "{name}");
        // The client's limit for a whole message.
        assert!(bytes <= 512 << 10, "{name}: {bytes} bytes");
    }
}

#[test]
fn events_of_a_liar_are_cut_and_clean() {
    let descriptor = message("Event");
    for field in descriptor.fields().filter(|field| field.containing_oneof().is_some()) {
        let mut event = DynamicMessage::new(descriptor.clone());
        event.set_field(&field, value(&field, &worst(1 << 20)));
        let mut received = v1::Event::decode(event.encode_to_vec().as_slice()).unwrap();
        cut(&mut received);
        let bytes = received.encode_to_vec();
        let mut found = Vec::new();
        wrong(&DynamicMessage::decode(descriptor.clone(), bytes.as_slice()).unwrap(), &mut found);
        assert_eq!(found, [""; 0], "{}", field.name());
        assert!(bytes.len() < 8 << 10, "{}: {} bytes", field.name(), bytes.len());
    }
}

/// Every text of every request, one at a time: too long, or with a character that is not shown.
fn refused<M: Message + Bound + Default>(name: &str) -> usize {
    let descriptor = message(name);
    let texts = descriptor.fields().filter(|field| field.kind() == Kind::String);
    let tried = |field: FieldDescriptor| {
        for text in ["x".repeat(5000), "a\x1bb".to_owned(), "a\u{202e}b".to_owned(), "a\nb".to_owned()] {
            let mut request = DynamicMessage::new(descriptor.clone());
            request.set_field(&field, Value::String(text.clone()));
            let mut request = M::decode(request.encode_to_vec().as_slice()).unwrap();
            let why = check(&mut request).unwrap_err().to_string();
            assert!(why.starts_with(&format!("{name}.{} has ", field.name())), "{why}");
        }
    };
    texts.map(tried).count()
}

#[test]
fn a_request_that_exceeds_a_maximum_is_refused_and_its_field_is_named() {
    let count = refused::<v1::StageRequest>("StageRequest")
        + refused::<v1::UpgradeRequest>("UpgradeRequest")
        + refused::<v1::RollbackRequest>("RollbackRequest")
        + refused::<v1::RebootRequest>("RebootRequest")
        + refused::<v1::AbortRequest>("AbortRequest")
        + refused::<v1::LogsRequest>("LogsRequest");
    assert_eq!(count, 11);
    let inner = v1::StageRequest { source: "x".repeat(4097), ..Default::default() };
    let mut plan = v1::PlanRequest { goal: Some(v1::plan_request::Goal::Stage(inner)) };
    assert_eq!(check(&mut plan).unwrap_err().to_string(), "StageRequest.source has 4097 bytes, and may have 4096");
    let after = Some(v1::Position { epoch: "x".repeat(37), seq: 1 });
    check(&mut v1::WatchRequest { after }).unwrap_err();
    check(&mut v1::UpgradeRequest { source: "docker://registry.example/os:2".to_owned(), ..Default::default() })
        .unwrap();
}
