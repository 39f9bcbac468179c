//! The calls and messages of the .proto files, as Rust; and for node.proto the code that enforces its maxima, made from
//! its comments. A string or list without a maximum does not build.

use std::{collections::BTreeMap, env, error::Error, fmt::Write as _, fs, path::Path};

use protox::prost_reflect::prost_types::{
    DescriptorProto, FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet,
    field_descriptor_proto::{Label, Type},
};

const NODE: &str = "slipway/node/v1/node.proto";
/// A message's number in its file, and a field's in its message, in the paths of source positions.
const MESSAGE: i32 = 4;
const FIELD: i32 = 2;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=proto");
    println!("cargo:rerun-if-changed=build.rs");
    let node = protox::compile([NODE], ["proto"])?;
    let bounds = bounds(file(&node, NODE)?)?;
    fs::write(Path::new(&env::var("OUT_DIR")?).join("bounds.rs"), bounds)?;
    let mut build = tonic_prost_build::configure()
        .build_transport(false)
        .codec_path("crate::codec::Bounded")
        .type_attribute(".", "#[derive(serde::Serialize)]")
        .type_attribute("slipway.node.v1.Event.what", "#[serde(rename_all = \"snake_case\")]")
        .field_attribute("slipway.node.v1.Event.what", "#[serde(flatten)]");
    for (path, attribute) in words(file(&node, NODE)?) {
        build = build.field_attribute(path, attribute);
    }
    build.compile_fds(node)?;
    tonic_prost_build::configure()
        .build_transport(false)
        .compile_fds(protox::compile(["machine/machine.proto"], ["proto"])?)?;
    Ok(())
}

fn file<'a>(set: &'a FileDescriptorSet, name: &str) -> Result<&'a FileDescriptorProto, String> {
    set.file.iter().find(|file| file.name() == name).ok_or_else(|| format!("{name} is not there"))
}

/// In JSON the fields that are enums are names.
fn words(file: &FileDescriptorProto) -> Vec<(String, String)> {
    let mut all = Vec::new();
    for message in &file.message_type {
        for field in message.field.iter().filter(|field| field.r#type() == Type::Enum) {
            let name = field.type_name().rsplit('.').next().unwrap_or_default();
            let of = if field.proto3_optional() { "optional" } else { "one" };
            let path = format!("{}.{}.{}", file.package(), message.name(), field.name());
            all.push((path, format!("#[serde(serialize_with = \"crate::enum_name::{of}::<{name}, _>\")]")));
        }
    }
    all
}

/// `impl Bound` for each message.
fn bounds(file: &FileDescriptorProto) -> Result<String, Box<dyn Error>> {
    let comments: BTreeMap<&[i32], &str> = file
        .source_code_info
        .iter()
        .flat_map(|info| &info.location)
        .map(|at| (at.path.as_slice(), at.leading_comments()))
        .collect();
    let mut code = String::new();
    for (number, message) in (0..).zip(&file.message_type) {
        let name = message.name();
        writeln!(code, "impl crate::bound::Bound for {name} {{")?;
        writeln!(code, "    const IS_REQUEST: bool = {};", name.ends_with("Request"))?;
        writeln!(code, "    fn visit(&mut self, to: &mut dyn crate::bound::Visitor) {{\n        let _ = &to;")?;
        for (at, field) in (0..).zip(&message.field) {
            let comment = comments.get([MESSAGE, number, FIELD, at].as_slice()).copied().unwrap_or_default();
            let numbers = maxima(comment);
            let line = visit(message, field, &numbers);
            code += &line.map_err(|what| format!("{name}.{}: its comment must say {what}", field.name()))?;
        }
        code += "    }\n}\n";
    }
    Ok(code)
}

/// The numbers N of "at most N bytes" and "at most N items".
fn maxima(comment: &str) -> BTreeMap<&'static str, usize> {
    let words: Vec<&str> = comment.split_whitespace().collect();
    let said = words.windows(4).filter(|four| four[0].eq_ignore_ascii_case("at") && four[1] == "most");
    let unit = |word: &str| ["bytes", "items"].into_iter().find(|unit| word.trim_end_matches(['.', ',', ';']) == *unit);
    said.filter_map(|four| Some((unit(four[3])?, four[2].parse().ok()?))).collect()
}

/// The name of a message as that of a module.
fn snake(camel: &str) -> String {
    camel.chars().enumerate().fold(String::new(), |mut snake, (at, c)| {
        if c.is_uppercase() && at > 0 {
            snake.push('_');
        }
        snake.extend(c.to_lowercase());
        snake
    })
}

/// The visitor of one field. The error says what its comment lacks.
fn visit(
    message: &DescriptorProto,
    field: &FieldDescriptorProto,
    max: &BTreeMap<&str, usize>,
) -> Result<String, String> {
    let name = field.name();
    let is_list = field.label() == Label::Repeated;
    let (is_text, is_message) = (field.r#type() == Type::String, field.r#type() == Type::Message);
    let lacks = |unit: &str| max.get(unit).copied().ok_or_else(|| format!("at most how many {unit}"));
    let path = format!("{}.{name}", message.name());
    let mut code = String::new();
    let each = match () {
        () if is_text => format!("to.text(\"{path}\", each, {});", lacks("bytes")?),
        () if field.r#type() == Type::Bytes => format!("to.bytes(\"{path}\", each, {});", lacks("bytes")?),
        () if is_message => "crate::bound::Bound::visit(each, to);".to_owned(),
        () if is_list => String::new(),
        () => return Ok(code),
    };
    if is_list {
        let items = lacks("items")?;
        code += &format!("        to.items(\"{path}\", self.{name}.len(), {items});\n");
        code += &format!("        self.{name}.truncate({items});\n");
        code += &format!("        for each in &mut self.{name} {{ {each} }}\n");
    } else if let (Some(at), false) = (field.oneof_index, field.proto3_optional()) {
        let oneof = message.oneof_decl[usize::try_from(at).unwrap_or_default()].name();
        let camel = |snake: &str| {
            let words = snake.split('_').map(|word| word[..1].to_uppercase() + &word[1..]);
            words.collect::<String>()
        };
        let module = snake(message.name());
        let variant = format!("{module}::{}::{}", camel(oneof), camel(name));
        code += &format!("        if let Some({variant}(each)) = &mut self.{oneof} {{ {each} }}\n");
    } else if is_message || field.proto3_optional() {
        code += &format!("        if let Some(each) = &mut self.{name} {{ {each} }}\n");
    } else {
        code += &format!("        {{ let each = &mut self.{name}; {each} }}\n");
    }
    Ok(code)
}
