//! The calls and messages of proto/slipway/node/v1/node.proto, as Rust.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let proto = "proto/slipway/node/v1/node.proto";
    println!("cargo:rerun-if-changed={proto}");
    let files = protox::compile([proto], ["proto"])?;
    tonic_prost_build::configure()
        .build_transport(false)
        .type_attribute(".", "#[derive(serde::Serialize)]")
        .type_attribute("slipway.node.v1.Event.what", "#[serde(rename_all = \"snake_case\")]")
        .field_attribute("slipway.node.v1.Event.what", "#[serde(flatten)]")
        .compile_fds(files)?;
    Ok(())
}
