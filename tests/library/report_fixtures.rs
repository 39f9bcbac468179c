//! Every report that was ever released stays readable. tests/fixtures/reports has a directory for each version of the
//! schema, with real output of that version. A file is named after its kind, and after what it shows if there are
//! several. They are never written again: new ones are added.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use serde_json::Value;
use slipway_core::report::{Document, EventLine, Report, SCHEMA};
use slipway_test_support::project;

fn files(dir: &Path) -> Vec<PathBuf> {
    let mut files: Vec<_> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty(), "{}", dir.display());
    files
}

fn json(path: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn schema(name: &str) -> Value {
    json(&project().join("assets").join(name))
}

/// The documents of all versions, with their paths.
fn documents() -> Vec<(PathBuf, Value)> {
    let versions = files(&project().join("tests/fixtures/reports"));
    versions.iter().flat_map(|dir| files(dir)).map(|path| (path.clone(), json(&path))).collect()
}

/// Every line of every file of events.
fn events() -> Vec<Value> {
    let versions = files(&project().join("tests/fixtures/events"));
    let texts = versions.iter().flat_map(|dir| files(dir)).map(|path| fs::read_to_string(path).unwrap());
    texts.flat_map(|text| text.lines().map(|line| serde_json::from_str(line).unwrap()).collect::<Vec<_>>()).collect()
}

/// What of `old` is missing in `new`, or has another value there.
fn lost(old: &Value, new: &Value, at: &str) -> Vec<String> {
    match (old, new) {
        (Value::Object(old), Value::Object(new)) => old
            .iter()
            .flat_map(|(key, value)| lost(value, new.get(key).unwrap_or(&Value::Null), &format!("{at}.{key}")))
            .chain(old.keys().filter(|key| !new.contains_key(*key)).map(|key| format!("{at}.{key} is gone")))
            .collect(),
        (Value::Array(old), Value::Array(new)) if old.len() == new.len() => {
            let pairs = old.iter().zip(new).enumerate();
            pairs.flat_map(|(n, (old, new))| lost(old, new, &format!("{at}[{n}]"))).collect()
        }
        _ if old == new => vec![],
        _ => vec![format!("{at}: {old} became {new}")],
    }
}

/// A required key that comes, a key that goes, a value that is renamed: each breaks a reader.
#[test]
fn every_released_report_is_read_back() {
    for (path, old) in documents() {
        let read: Document =
            serde_json::from_value(old.clone()).unwrap_or_else(|e| panic!("{} is not readable: {e}", path.display()));
        let lost = lost(&old, &serde_json::to_value(read).unwrap(), "");
        assert!(lost.is_empty(), "{}: {lost:#?}", path.display());
        // Also without the version beside it, and as a whole text: numbers as keys are read in another way then.
        let text = fs::read_to_string(&path).unwrap();
        serde_json::from_str::<Report>(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        serde_json::from_str::<Document>(&text.replacen("\"schema\": 1,", "", 1)).unwrap();
    }
    for old in events() {
        let read: EventLine = serde_json::from_value(old.clone()).unwrap_or_else(|e| panic!("{old}: {e}"));
        assert_eq!(lost(&old, &serde_json::to_value(read).unwrap(), ""), Vec::<String>::new(), "{old}");
    }
}

#[test]
fn every_kind_of_report_has_a_fixture_that_says_its_version() {
    let kinds = schema("report.schema.json")["oneOf"].as_array().unwrap().clone();
    let kinds: BTreeSet<String> =
        kinds.iter().map(|kind| kind["properties"]["report"]["const"].as_str().unwrap().to_owned()).collect();
    let mut shown = BTreeSet::new();
    for (path, document) in documents() {
        let version = path.parent().unwrap().file_name().unwrap().to_str().unwrap();
        assert_eq!(document["schema"].to_string(), version, "{}", path.display());
        let kind = document["report"].as_str().unwrap();
        let stem = path.file_stem().unwrap().to_str().unwrap();
        assert!(stem == kind || stem.starts_with(&format!("{kind}-")), "{stem} is a report {kind}");
        if version == SCHEMA.to_string() {
            shown.insert(kind.to_owned());
        }
    }
    assert_eq!(shown, kinds, "add real output of the missing kind to tests/fixtures/reports/{SCHEMA}");
    let kinds: BTreeSet<String> = events().iter().map(|event| event["event"].as_str().unwrap().to_owned()).collect();
    assert!(["bytes", "note", "phase", "step"].iter().all(|kind| kinds.contains(*kind)), "{kinds:?}");
}

#[test]
fn every_fixture_is_what_the_schema_says() {
    let schema = schema("report.schema.json");
    for (path, document) in documents() {
        let wrong = Check { root: &schema }.wrong(&schema, &document, "");
        assert!(wrong.is_empty(), "{}: {wrong:#?}", path.display());
    }
    let schema = self::schema("event.schema.json");
    for event in events() {
        assert_eq!(Check { root: &schema }.wrong(&schema, &event, ""), Vec::<String>::new(), "{event}");
    }
}

/// The check itself finds what it is to find.
#[test]
fn what_the_schema_does_not_allow_is_found() {
    let schema = schema("report.schema.json");
    let wrong = |document: &Value| Check { root: &schema }.wrong(&schema, document, "");
    let failure = documents().into_iter().find(|(_, document)| document["report"] == "failure").unwrap().1;
    assert!(wrong(&failure).is_empty());
    for (key, value) in [("report", "frob"), ("exit_code", "7"), ("kind", "bad"), ("refusals", "none")] {
        let mut changed = failure.clone();
        changed[key] = value.into();
        assert!(!wrong(&changed).is_empty(), "{key} may be {value:?}");
        changed.as_object_mut().unwrap().remove(key);
        assert!(!wrong(&changed).is_empty(), "{key} may be missing");
    }
}

/// The part of JSON Schema 2020-12 that our schemas use. What it does not know is an error.
struct Check<'s> {
    root: &'s Value,
}

impl Check<'_> {
    fn wrong(&self, schema: &Value, value: &Value, at: &str) -> Vec<String> {
        let Value::Object(rules) = schema else { return vec![] };
        rules.iter().flat_map(|(rule, operand)| self.rule(rule, operand, schema, value, at)).collect()
    }

    fn rule(&self, rule: &str, operand: &Value, schema: &Value, value: &Value, at: &str) -> Vec<String> {
        let say = |good: bool| if good { vec![] } else { vec![format!("{at}: {value} against {rule} {operand}")] };
        let fits = |schema: &Value| self.wrong(schema, value, at).is_empty();
        let many = || operand.as_array().unwrap().iter();
        match rule {
            "$schema" | "$defs" | "title" | "description" | "format" | "default" => vec![],
            "$ref" => {
                let pointer = operand.as_str().unwrap().strip_prefix('#').unwrap();
                self.wrong(self.root.pointer(pointer).unwrap(), value, at)
            }
            "type" => say(many_or_one(operand).iter().any(|name| is(value, name))),
            "const" => say(value == operand),
            "enum" => say(many().any(|one| one == value)),
            "oneOf" => say(many().filter(|one| fits(one)).count() == 1),
            "anyOf" => say(many().any(fits)),
            "required" => say(many().all(|key| value.get(key.as_str().unwrap()).is_some())),
            "minimum" => say(value.as_f64().is_none_or(|n| n >= operand.as_f64().unwrap())),
            "maximum" => say(value.as_f64().is_none_or(|n| n <= operand.as_f64().unwrap())),
            "minItems" => say(value.as_array().is_none_or(|list| list.len() as u64 >= operand.as_u64().unwrap())),
            "maxItems" => say(value.as_array().is_none_or(|list| list.len() as u64 <= operand.as_u64().unwrap())),
            "items" => {
                let items = value.as_array().into_iter().flatten().enumerate();
                items.flat_map(|(n, item)| self.wrong(operand, item, &format!("{at}[{n}]"))).collect()
            }
            "properties" => {
                let known = operand.as_object().unwrap().iter();
                let given = known.filter_map(|(key, schema)| Some((key, schema, value.get(key)?)));
                given.flat_map(|(key, schema, value)| self.wrong(schema, value, &format!("{at}.{key}"))).collect()
            }
            "patternProperties" => {
                let [(pattern, schema)] = operand.as_object().unwrap().iter().collect::<Vec<_>>()[..] else {
                    panic!("this check knows one pattern: {operand}");
                };
                assert_eq!(pattern, NUMBER);
                let numbers = value.as_object().into_iter().flatten().filter(|(key, _)| is_number(key));
                numbers.flat_map(|(key, value)| self.wrong(schema, value, &format!("{at}.{key}"))).collect()
            }
            "additionalProperties" => {
                let named = |key: &str| schema.get("properties").is_some_and(|known| known.get(key).is_some());
                let number = |key: &str| schema.get("patternProperties").is_some() && is_number(key);
                let others = value.as_object().into_iter().flatten().filter(|(key, _)| !named(key) && !number(key));
                let wrong = others.flat_map(|(key, value)| match operand {
                    Value::Bool(false) => vec![format!("{at}.{key} is not allowed")],
                    schema => self.wrong(schema, value, &format!("{at}.{key}")),
                });
                wrong.collect()
            }
            other => panic!("this check knows no {other}: add it"),
        }
    }
}

/// Keys of a map with numbers for keys.
const NUMBER: &str = "^\\d+$";

fn is_number(key: &str) -> bool {
    !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_digit())
}

fn many_or_one(operand: &Value) -> Vec<&str> {
    operand
        .as_array()
        .map_or_else(|| vec![operand], |all| all.iter().collect())
        .iter()
        .map(|v| v.as_str().unwrap())
        .collect()
}

fn is(value: &Value, name: &str) -> bool {
    match name {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "string" => value.is_string(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("no such type: {other}"),
    }
}
