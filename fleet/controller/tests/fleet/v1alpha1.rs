//! Objects of each version of the API, as the API server takes them and gives them back.

use std::{fs, path::Path};

use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::site::Site;

/// Whether all that `part` says is in `whole`, as it is there.
fn is_in(part: &Value, whole: &Value) -> bool {
    match (part, whole) {
        (Value::Object(part), Value::Object(whole)) => {
            part.iter().all(|(key, value)| whole.get(key).is_some_and(|there| is_in(value, there)))
        }
        (Value::Array(part), Value::Array(whole)) => {
            part.len() == whole.len() && part.iter().zip(whole).all(|(part, whole)| is_in(part, whole))
        }
        _ => part == whole,
    }
}

#[test]
fn what_was_written_in_v1alpha1_is_taken_without_loss() {
    let Some(site) = Site::new(0) else { return };
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../objects/tests/v1alpha1");
    let mut taken = 0;
    for file in fs::read_dir(dir).unwrap() {
        let text = fs::read_to_string(file.unwrap().path()).unwrap();
        for text in text.split("\n---\n") {
            let object: Value = serde_saphyr::from_str(text).unwrap();
            let new: DynamicObject = serde_json::from_value(object.clone()).unwrap();
            let (types, name) = (new.types.clone().unwrap(), new.metadata.name.clone().unwrap());
            let api = site.api_of(&types.api_version, &types.kind, None);
            let read = site.runtime.block_on(async {
                api.create(&PostParams::default(), &new).await.unwrap_or_else(|e| panic!("{object}: {e}"));
                if !object["status"].is_null() {
                    let status = Patch::Merge(json!({ "status": object["status"] }));
                    api.patch_status(&name, &PatchParams::default(), &status).await.unwrap();
                }
                serde_json::to_value(api.get(&name).await.unwrap()).unwrap()
            });
            for part in ["spec", "status"] {
                let (written, read) = (&object[part], &read[part]);
                assert!(written.is_null() || is_in(written, read), "{} {name}: {written}, {read}", types.kind);
            }
            taken += 1;
        }
    }
    assert_eq!(taken, 16, "the files are there");
}
