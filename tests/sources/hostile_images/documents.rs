//! Indexes, manifests and configurations.

use slipway_test_support::images;

use super::*;

pub const ROWS: &[Row] = &[
    ("an index of indexes", INPUT, &["an index inside an index"], |c| {
        let inner = Image::new(vec![]).write_blobs(&c.layout);
        let inner = c.layout.nested(&[(&inner, "amd64")]);
        c.layout.tag("1", &c.layout.nested(&[(&inner, "amd64")]));
    }),
    ("an index that names itself", INPUT, &["SHA-256"], |c| {
        // Its own digest cannot stand in it: what it names is not what is there.
        let own = format!("sha256:{}", Sha256::of(b"loop"));
        let entry = json!({"mediaType": images::INDEX, "digest": own, "size": 300});
        let index =
            json!({"schemaVersion": 2, "mediaType": images::INDEX, "manifests": [entry], "pad": "x".repeat(300)});
        let mut bytes = index.to_string().into_bytes();
        bytes.truncate(300);
        c.layout.blob_as(&own, &bytes);
        c.layout.tag("1", &entry_of(&own));
    }),
    ("no image for this platform", INPUT, &["no image for linux/amd64", "linux/arm64", "for the architecture"], |c| {
        let image = Image::new(vec![]).write_blobs(&c.layout);
        c.layout.tag("1", &c.layout.nested(&[(&image, "arm64")]));
    }),
    (
        "an image for another platform",
        INPUT,
        &["is for linux/arm64, not for linux/amd64", "for the architecture"],
        |c| {
            let mut image = Image::new(vec![Layer::new(c.tar().end(), Pack::Gzip)]);
            image.arch = "arm64";
            image.write(&c.layout, "1");
        },
    ),
    ("an image for another system", INPUT, &["is for windows/amd64"], |c| {
        let mut image = Image::new(vec![Layer::new(c.tar().end(), Pack::Gzip)]);
        image.os = "windows";
        image.write(&c.layout, "1");
    }),
    ("an index.json of 100 MiB", INPUT, &["index.json", "larger than 4 MiB"], |c| {
        fs::write(c.layout.0.join("index.json"), vec![b' '; 100 << 20]).unwrap();
    }),
    ("a manifest of 100 MiB", INPUT, &["larger than 4 MiB"], |c| {
        let bytes = vec![b'['; 100 << 20];
        c.layout.blob(&bytes);
        c.layout.tag("1", &descriptor(images::MANIFEST, &bytes));
    }),
    ("a configuration of 100 MiB", INPUT, &["larger than 4 MiB"], |c| {
        let mut image = Image::new(vec![Layer::new(c.tar().end(), Pack::Gzip)]);
        image.edit_config = |config| config["author"] = json!("x".repeat(100 << 20));
        image.write(&c.layout, "1");
    }),
    ("a manifest nested ten thousand deep", INPUT, &["does not follow the OCI image specification"], |c| {
        let bytes = [vec![b'['; 10_000], vec![b']'; 10_000]].concat();
        c.layout.blob(&bytes);
        c.layout.tag("1", &descriptor(images::MANIFEST, &bytes));
    }),
    ("both an index and a manifest", INPUT, &["both an index and a manifest"], |c| {
        let mut image = Image::new(vec![]);
        image.edit_manifest = |m| m["manifests"] = json!([]);
        image.write(&c.layout, "1");
    }),
    ("a manifest announced as an index", INPUT, &["was announced as"], |c| {
        let mut descriptor = Image::new(vec![]).write_blobs(&c.layout);
        descriptor["mediaType"] = json!(images::INDEX);
        c.layout.tag("1", &descriptor);
    }),
    ("a configuration with a diff_id too many", INPUT, &["2 diff_ids for 1 layers"], |c| {
        let mut image = Image::new(vec![Layer::new(c.tar().end(), Pack::Gzip)]);
        image.edit_config = |config| config["rootfs"]["diff_ids"].as_array_mut().unwrap().push(json!("sha256:0"));
        image.write(&c.layout, "1");
    }),
    ("a configuration that is another one", INPUT, &["configuration sha256:", "SHA-256 of its content"], |c| {
        let descriptor = Image::new(vec![Layer::new(c.tar().end(), Pack::Gzip)]).write(&c.layout, "1");
        let config = config_of(&c.layout, &descriptor);
        let size = config["size"].as_u64().unwrap() as usize;
        c.layout.blob_as(config["digest"].as_str().unwrap(), &vec![b'x'; size]);
    }),
    ("an artifact", INPUT, &["an artifact, and no image", "application/vnd.oci.empty.v1+json"], |c| {
        let mut image = Image::new(vec![Layer::new(c.tar().end(), Pack::Gzip)]);
        image.edit_manifest = |m| {
            m["config"] = json!({"mediaType": "application/vnd.oci.empty.v1+json", "size": 2,
                "digest": "sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"});
        };
        c.layout.blob(b"{}");
        image.write(&c.layout, "1");
    }),
    ("only what is about an image", INPUT, &["no image in it", "with a subject", ":@0"], |c| {
        let mut image = Image::new(vec![Layer::new(c.tar().end(), Pack::Gzip)]);
        image.edit_manifest = |m| m["subject"] = m["config"].clone();
        let descriptor = image.write_blobs(&c.layout);
        c.layout.list(&descriptor);
    }),
    ("a layout of the future", INPUT, &["layout version \"9.0.0\""], |c| {
        fs::write(c.layout.0.join("oci-layout"), r#"{"imageLayoutVersion":"9.0.0"}"#).unwrap();
    }),
];

fn entry_of(digest: &str) -> serde_json::Value {
    json!({"mediaType": images::INDEX, "digest": digest, "size": 300})
}

/// The descriptor of an image's configuration.
fn config_of(layout: &Layout, manifest: &serde_json::Value) -> serde_json::Value {
    let bytes = fs::read(layout.path(manifest["digest"].as_str().unwrap())).unwrap();
    serde_json::from_slice::<serde_json::Value>(&bytes).unwrap()["config"].clone()
}
