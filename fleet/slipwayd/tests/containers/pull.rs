//! Images that static pods will have come from Debian's docker-registry, by a real containerd's CRI.

use std::{fs, thread, time::Duration};

use slipway_node_server::node::Error;
use slipway_test_support::{
    images::{Image, Layout},
    port::free_port,
    registry::{Debian, run},
};
use slipwayd::{image_pulls::ImagePulls, machine::pull::pull};
use uuid::Uuid;

use crate::daemon::{Containerd, is_here, kill, layer, stop};

/// A registry with one image; its name by tag and digest, and by tag.
fn registry(containerd: &Containerd) -> (Debian, [String; 2]) {
    let dir = containerd.path("images");
    fs::create_dir(&dir).unwrap();
    let layout = Layout::new(&dir.join("layout"));
    let image = Image::new(vec![layer(&[("bin/kube-scheduler", b"a program")])]);
    let digest = image.write(&layout, "new")["digest"].as_str().unwrap().to_owned();
    let debian = Debian::empty(&dir, "", "");
    let name = format!("127.0.0.1:{}/kube-scheduler:v1.21.2", debian.port);
    let (from, to) = (format!("oci:{}:new", layout.0.display()), format!("docker://{name}"));
    let how = ["--insecure-policy", "copy", "--quiet", "--preserve-digests", "--dest-tls-verify=false"];
    run("skopeo", &[&how[..], &[&from, &to]].concat());
    (debian, [format!("{name}@{digest}"), name])
}

#[test]
fn images_are_pulled_by_tag_and_by_digest_and_what_is_there_is_not_fetched_again() {
    if !is_here() {
        return;
    }
    let containerd = Containerd::start();
    let (debian, images) = registry(&containerd);
    for image in &images {
        assert_eq!(pull(&containerd.socket(), std::slice::from_ref(image)), Ok(()));
    }
    let there = containerd.ctr("k8s.io", &["images", "ls", "--quiet"]);
    let by_digest = images[0].replace(":v1.21.2@", "@");
    assert!([&by_digest, &images[1]].iter().all(|image| there.lines().any(|line| line == **image)), "{there}");
    drop(debian);
    assert_eq!(pull(&containerd.socket(), &images), Ok(()), "the registry is gone");
}

#[test]
fn an_image_that_cannot_be_pulled_is_named_with_the_registrys_words() {
    if !is_here() {
        return;
    }
    let mut containerd = Containerd::start();
    let (_debian, images) = registry(&containerd);
    let [by_digest, by_tag] = &images;
    let (name, _) = by_digest.split_once('@').unwrap();
    for (image, why) in [
        (by_tag.replace("v1.21.2", "v1.21.3"), "not found"),
        (format!("{name}@sha256:{}", "4".repeat(64)), "not found"),
        (format!("127.0.0.1:{}/kube-scheduler:v1.21.2", free_port()), "connection refused"),
    ] {
        let refused = pull(&containerd.socket(), &[by_tag.clone(), image.clone()]).unwrap_err();
        assert!(refused.starts_with(&format!("{image}: containerd: ")) && refused.contains(why), "{refused}");
    }
    containerd.stop();
    let refused = pull(&containerd.socket(), &images).unwrap_err();
    assert!(refused.starts_with("containerd"), "{refused}");
}

#[test]
fn a_node_says_what_became_of_a_pull() {
    if !is_here() {
        return;
    }
    let none = ImagePulls::new(None);
    assert!(none.impossible().unwrap().contains("no [containerd]") && none.last().is_none());
    assert!(matches!(none.pull(Uuid::new_v4(), Vec::new()), Err(Error::NotHere(_))));
    let mut containerd = Containerd::start();
    let (_debian, images) = registry(&containerd);
    let pulls = ImagePulls::new(Some(containerd.socket()));
    assert_eq!(pulls.impossible(), None);
    let ended = |images: &[String]| {
        let id = Uuid::new_v4();
        // The same request may come twice.
        assert!((0..2).all(|_| pulls.pull(id, images.to_vec()).is_ok()));
        loop {
            let last = pulls.last().unwrap();
            assert_eq!((last.id, &last.images[..]), (id.to_string(), images));
            if last.done || last.failed.is_some() {
                return last.failed;
            }
            thread::sleep(Duration::from_millis(50));
        }
    };
    assert_eq!(ended(&images), None);
    let other = images[1].replace("v1.21.2", "v1.21.3");
    assert!(ended(std::slice::from_ref(&other)).unwrap().starts_with(&other));
    // It takes the connection, and gives no answer.
    stop(containerd.pid());
    assert!(pulls.impossible().unwrap().starts_with("containerd does not answer within "));
    kill("-CONT", containerd.pid());
    assert_eq!(pulls.impossible(), None);
    containerd.stop();
    let why = pulls.impossible().unwrap();
    assert!(
        why.starts_with("containerd: ") && why.ends_with(&format!(" ({})", containerd.socket().display())),
        "{why}"
    );
}
