//! The calls and messages of the .proto files, as Rust.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto");
    let files = protox::compile(["proto/slipway/node/v1/node.proto", "proto/machine/machine.proto"], ["proto"])?;
    tonic_prost_build::configure()
        .build_transport(false)
        .type_attribute(".", "#[derive(serde::Serialize)]")
        .type_attribute("slipway.node.v1.Event.what", "#[serde(rename_all = \"snake_case\")]")
        .field_attribute("slipway.node.v1.Event.what", "#[serde(flatten)]")
        .compile_fds(files)?;
    Ok(())
}
