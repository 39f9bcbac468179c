//! Looks into Debian's docker-registry, which skopeo has filled.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde_json::{Value, json};
use slipway_channel::{
    candidate::{Candidate, ImageLabels},
    choose::choose,
    discover::{self, DiscoverError, Limits, Repository},
    lookup::{lookup, resume_lookup},
    payload::payload,
    refusal::Refusal,
    signature_demand::Signatures,
    spec::{Deny, Select, Spec},
};
use slipway_core::{digest::Sha256, kernel::arch::Arch};
use slipway_payload::registry::Options;
use slipway_test_support::{
    images::{Layout, Tar},
    registry::{
        Debian, Image, plain, run,
        server::{Server, head, reply},
    },
    signing::{Kind, Signer, tag_of},
    world::noise,
};
use tempfile::TempDir;

use crate::{holding_proxy::Proxy, hour, signatures, stable};

fn labelled(labels: Value, annotations: Value) -> Image {
    Image::new().labelled(labels, annotations)
}

fn discover(
    spec: &Spec,
    options: &Options,
    limits: Limits,
    known: &[Candidate],
    now: Timestamp,
) -> Result<Vec<Candidate>, DiscoverError> {
    discover::discover(spec, &Repository::for_channel(spec, options)?, limits, known, now)
}

struct Site {
    dir: TempDir,
    debian: Debian,
}

impl Site {
    /// A registry with an image that has no labels, `a/b:1`.
    fn new() -> Self {
        let dir = TempDir::new().unwrap();
        let debian = Debian::new(dir.path(), &Image::new(), "", "", &["--dest-tls-verify=false"]);
        Self { dir, debian }
    }

    fn repository(&self) -> String {
        format!("127.0.0.1:{}/a/b", self.debian.port)
    }

    fn push(&self, image: &Image, tag: &str) {
        self.debian.push(self.dir.path(), image, tag);
    }

    fn signer(&self, name: &str) -> Signer {
        Signer::new(self.dir.path(), name, Kind::P256)
    }

    /// One signature, by this key.
    fn demand(&self, signer: &Signer) -> Signatures {
        signatures(&[&std::fs::read_to_string(signer.public()).unwrap()], 1).unwrap()
    }

    /// In place of the earlier signer.
    fn sign(&self, image: &Image, signer: &Signer) {
        self.sign_digest(image.name(), signer);
    }

    fn sign_digest(&self, digest: Sha256, signer: &Signer) {
        let layout = Layout::new(&self.dir.path().join("signatures"));
        let digest = format!("sha256:{digest}");
        signer.sign_image(&layout, &digest);
        let tag = tag_of(&digest);
        let (from, to) = (format!("{}:{tag}", layout.source()), format!("docker://{}:{tag}", self.repository()));
        let how = ["--insecure-policy", "copy", "--quiet", "--preserve-digests", "--dest-tls-verify=false"];
        run("skopeo", &[&how[..], &[&from, &to]].concat());
    }

    fn spec(&self, select: &Select) -> Spec {
        Spec { repository: self.repository(), select: select.clone(), ..stable() }
    }

    fn lookup(&self, select: &Select, known: &[Candidate], now: i64) -> Vec<Candidate> {
        self.look_for(Arch::Amd64, select, known, now)
    }

    fn look_for(&self, arch: Arch, select: &Select, known: &[Candidate], now: i64) -> Vec<Candidate> {
        let spec = Spec { arch, ..self.spec(select) };
        discover(&spec, &plain(), Limits::default(), known, hour(now)).unwrap()
    }
}

fn tags(candidate: &Candidate) -> Vec<&str> {
    candidate.tags.iter().map(String::as_str).collect()
}

fn found(all: &[Candidate], of: &Image) -> Candidate {
    all.iter().find(|candidate| candidate.digest == of.name()).unwrap().clone()
}

#[test]
fn images_are_found_with_their_labels_and_read_once() {
    let site = Site::new();
    let version = |text: &str| json!({ "org.opencontainers.image.version": text, "dev.slipway.channel": "beta" });
    let old = labelled(version("1.0.0"), json!({ "dev.slipway.channel": "stable" }));
    let new = labelled(version("v2.0.0"), json!({}));
    site.push(&old, "1.0.0");
    site.push(&old, "stable");
    site.push(&new, "2.0.0");
    let label = Select::Label("stable".to_owned());
    let all = site.lookup(&label, &[], 0);
    assert_eq!(all.len(), 3, "{all:?}");
    let of_old = found(&all, &old);
    // An annotation of the index comes before a label.
    let labels = of_old.labels.clone().unwrap();
    assert_eq!((labels.channels.len(), labels.channels.contains("stable")), (1, true));
    assert_eq!(labels.created.as_deref(), Some("2025-01-01T00:00:00Z"));
    assert_eq!((tags(&of_old), of_old.first_seen), (vec!["1.0.0", "stable"], hour(0)));
    assert_eq!(found(&all, &new).version().unwrap().to_string(), "2.0.0");
    let bare = ImageLabels { manifest: Some(Sha256::of(&Image::new().manifest)), ..ImageLabels::default() };
    assert_eq!(found(&all, &Image::new()).labels, Ok(bare));
    let choice = choose(&stable(), &all, None, hour(1));
    assert_eq!(choice.chosen.unwrap().digest, old.name());

    // Later a tag has moved. Nothing is read that is known: for another architecture, none of it could be.
    site.push(&new, "stable");
    let again = site.look_for(Arch::Arm64, &label, &all, 5);
    assert!(again.iter().all(|candidate| candidate.labels.is_ok()), "{again:?}");
    assert_eq!((tags(&found(&again, &old)), tags(&found(&again, &new))), (vec!["1.0.0"], vec!["2.0.0", "stable"]));
    assert!(again.iter().all(|candidate| candidate.first_seen == hour(0)));
    // Images that came since are new.
    let newer = labelled(version("3.0.0"), json!({}));
    site.push(&newer, "3.0.0");
    assert_eq!(found(&site.lookup(&label, &again, 9), &newer).first_seen, hour(9));
}

#[test]
fn an_index_says_which_manifest_is_in_it() {
    let site = Site::new();
    let labels = json!({ "org.opencontainers.image.version": "1.0.0", "dev.slipway.channel": "stable" });
    let image = labelled(labels, json!({}));
    site.push(&image, "1.0.0");
    let manifest = Sha256::of(&image.manifest);
    let to = |name: &str| format!("docker://{}{name}", site.repository());
    let how = ["--insecure-policy", "copy", "--quiet", "--preserve-digests", "--src-tls-verify=false"];
    let (from, part) = (to(&format!("@sha256:{manifest}")), to(":1.0.0-amd64"));
    run("skopeo", &[&how[..], &["--dest-tls-verify=false", &from, &part]].concat());
    let stable = Select::Label("stable".to_owned());
    let all = site.lookup(&stable, &[], 0);
    let found: Vec<_> = all.iter().filter(|of| of.manifest() == manifest).map(|of| (of.digest, tags(of))).collect();
    assert_eq!(found.len(), 2, "{all:?}");
    let choice = choose(&site.spec(&stable), &all, None, hour(1));
    assert_eq!(choice.chosen.map(|of| of.digest), Some(image.name()));
    // Its tag is taken away, and that of the manifest is left: it is denied all the same.
    site.push(&Image::new(), "1.0.0");
    let spec = Spec { deny: vec![Deny::Digest(image.name())], ..site.spec(&stable) };
    let all = discover(&spec, &plain(), Limits::default(), &all, hour(2)).unwrap();
    let choice = choose(&spec, &all, None, hour(2));
    assert_eq!((choice.chosen, &choice.refused[&manifest]), (None, &Refusal::Denied(spec.deny[0].clone())));
}

#[test]
fn only_tags_that_are_wanted_are_looked_at() {
    let site = Site::new();
    let image = labelled(json!({}), json!({}));
    site.push(&image, "v1.2.3");
    // As tools put a signature beside an image.
    site.push(&labelled(json!({ "a": "b" }), json!({})), &format!("sha256-{}.sig", image.name()));
    let pattern = Select::Tags("v*".to_owned().try_into().unwrap());
    let all = site.lookup(&pattern, &[], 0);
    assert_eq!(
        (all.len(), tags(&all[0]), all[0].version().unwrap().to_string()),
        (1, vec!["v1.2.3"], "1.2.3".to_owned())
    );
    assert_eq!(site.lookup(&Select::Label("x".to_owned()), &[], 0).len(), 2);
}

#[test]
fn an_image_that_cannot_be_read_is_one_all_the_same_and_is_tried_again() {
    let site = Site::new();
    let all = site.look_for(Arch::Arm64, &Select::Label("x".to_owned()), &[], 0);
    let why = all[0].labels.clone().unwrap_err();
    assert!(why.contains("no image for linux/arm64"), "{why}");
    let again = site.lookup(&Select::Label("x".to_owned()), &all, 3);
    assert_eq!((again[0].labels.is_ok(), again[0].first_seen), (true, hour(0)));
}

#[test]
fn a_registry_that_does_not_answer_is_an_error_and_no_empty_list() {
    let site = Site::new();
    let failure = |repository: &str| {
        let select = Select::Label("x".to_owned());
        let spec = Spec { repository: repository.to_owned(), ..site.spec(&select) };
        discover(&spec, &plain(), Limits::default(), &[], hour(0)).unwrap_err()
    };
    let missing = failure(&format!("127.0.0.1:{}/a/c", site.debian.port));
    assert!(missing.to_string().contains("NAME_UNKNOWN"), "{missing}");
    assert_eq!(missing.reason(), "RepositoryMissing");
    assert!(matches!(failure("registry.example/A"), DiscoverError::Name { .. }));
    // Also where nothing but a tag could be meant by the colon.
    for tagged in [&format!("{}:1", site.repository()), "os:2"] {
        assert!(matches!(failure(tagged), DiscoverError::Tagged(_)), "{tagged}");
    }
    // Certificates and mirrors are the installer's business: what it refuses is refused here.
    let select = Select::Label("x".to_owned());
    let tls = Options { plain_http: false, ..plain() };
    let refused = discover(&site.spec(&select), &tls, Limits::default(), &[], hour(0)).unwrap_err();
    assert!(refused.to_string().contains("does not speak TLS"), "{refused}");
    assert_eq!(refused.reason(), "RegistryFails");
}

#[test]
fn a_look_costs_no_more_than_was_said() {
    let site = Site::new();
    site.push(&labelled(json!({}), json!({})), "2");
    let spec = site.spec(&Select::Label("x".to_owned()));
    let found = |tags| discover(&spec, &plain(), Limits { tags, ..Limits::default() }, &[], hour(0));
    assert_eq!(found(2).unwrap().len(), 2);
    let refused = found(1).unwrap_err();
    assert_eq!(
        (refused.reason(), matches!(refused, DiscoverError::TooMany { tags: 2, limit: 1 })),
        ("TooManyTags", true)
    );
    // Tags that match no pattern do not count.
    let one = Spec { select: Select::Tags("2*".to_owned().try_into().unwrap()), ..spec.clone() };
    let limits = Limits { tags: 1, ..Limits::default() };
    assert_eq!(discover(&one, &plain(), limits, &[], hour(0)).unwrap().len(), 1);
}

#[test]
fn the_payload_of_what_is_chosen_is_read_from_its_checksums() {
    let site = Site::new();
    let (old, old_payload) = Image::release("1.0.0", "stable", "one");
    let (new, new_payload) = Image::release("2.0.0", "stable", "two");
    site.push(&old, "1.0.0");
    site.push(&new, "2.0.0");
    let spec = site.spec(&Select::Label("stable".to_owned()));
    let at = |spec: &Spec, limits, known: &[Candidate]| lookup(spec, &plain(), limits, known, None, hour(0)).unwrap();
    let all = at(&spec, Limits::default(), &[]);
    assert_eq!(found(&all, &new).payload, Some(new_payload), "{all:?}");
    assert_eq!(found(&all, &old).payload, None, "it is not needed");
    // With a floor a node that runs it must be known.
    let floors = vec!["1.0.0".parse().unwrap()];
    let with_floor = at(&Spec { floors, ..spec.clone() }, Limits::default(), &all);
    assert_eq!(found(&with_floor, &old).payload, Some(old_payload));
    // An image with unknown content is not chosen, and is tried again.
    let bare = Image::of(&Tar::new().file("etc/large", &noise(0, 3 << 20)).end());
    site.push(&bare.labelled(stable_label("3.0.0"), json!({})), "3.0.0");
    let all = at(&spec, Limits { payload_bytes: 1 << 20, ..Limits::default() }, &all);
    let choice = choose(&spec, &all, None, hour(0));
    assert_eq!(choice.chosen.unwrap().digest, new.name());
    let why = choice.refused.values().find(|why| why.reason() == "Unreadable").unwrap().to_string();
    assert!(why.contains("is not known after 1 MiB"), "{why}");
    let whole = at(&spec, Limits::default(), &all);
    let why = whole.iter().find_map(|of| of.labels.clone().err()).unwrap();
    assert!(why.contains("vmlinuz: missing"), "it was read to its end: {why}");
}

/// Also where its labels are known from an earlier look, and the payload alone is read.
#[test]
fn a_mirror_with_wrong_bytes_is_given_up() {
    let site = Site::new();
    let (image, payload) = Image::release("1.0.0", "stable", "one");
    site.push(&image, "1.0.0");
    let spec = site.spec(&Select::Label("stable".to_owned()));
    let look = |options: &Options, known: &[Candidate]| {
        lookup(&spec, options, Limits::default(), known, None, hour(0)).unwrap()
    };
    let mut known = look(&plain(), &[]);
    known.iter_mut().for_each(|of| of.payload = None);
    for blob in [&image.config, &image.layer] {
        let (wrong, name) = (noise(7, blob.len()), format!("/blobs/sha256:{}", Sha256::of(blob)));
        let mirror = Server::new(move |request, out| match request.target.ends_with(&name) {
            true => reply(out, 200, &[], &wrong),
            false => reply(out, 404, &[], b""),
        });
        let host = format!("127.0.0.1:{}", site.debian.port);
        let url = format!("{host}=http://127.0.0.1:{}", mirror.port);
        let options = Options { mirrors: vec![url.parse().unwrap()], ..plain() };
        for known in [&[][..], &known] {
            let all = look(&options, known);
            assert_eq!(found(&all, &image).payload, Some(payload), "{all:?}");
        }
        assert!(!mirror.requests().is_empty());
    }
}

/// The registry itself is away.
#[test]
fn a_mirror_with_wrong_bytes_is_named_unless_another_one_has_the_right_ones() {
    let site = Site::new();
    let (image, known) = Image::release("1.0.0", "stable", "one");
    site.push(&image, "1.0.0");
    let name = |bytes: &[u8]| format!("sha256:{}", Sha256::of(bytes));
    let wrong = (name(&image.layer), noise(7, image.layer.len()));
    let parts = [image.index.clone(), image.manifest.clone(), image.config.clone()].map(|part| (name(&part), part));
    let parts: Vec<_> = parts.into_iter().chain([wrong]).collect();
    let mirror = Server::new(move |request, out| match parts.iter().find(|(name, _)| request.target.ends_with(name)) {
        Some((_, bytes)) => reply(out, 200, &[], bytes),
        None => reply(out, 404, &[], b""),
    });
    let read = |ports: &[u16]| {
        let mirrors = ports.iter().map(|port| format!("127.0.0.1:1=http://127.0.0.1:{port}").parse().unwrap());
        let options = Options { mirrors: mirrors.collect(), ..plain() };
        let select = Select::Label("stable".to_owned());
        let spec = Spec { repository: "127.0.0.1:1/a/b".to_owned(), ..site.spec(&select) };
        payload(&Repository::for_channel(&spec, &options).unwrap(), image.name(), Limits::default())
    };
    let why = read(&[mirror.port]).unwrap_err();
    assert!(why.contains(&format!("as the mirror http://127.0.0.1:{}", mirror.port)), "{why}");
    assert_eq!(read(&[mirror.port, site.debian.port]), Ok(known));
}

/// Releases are signed after they were pushed, by openssl, and the signatures lie where cosign puts them.
#[test]
fn what_nobody_has_signed_is_not_taken_until_it_is() {
    let site = Site::new();
    let (one, other) = (site.signer("one"), site.signer("other"));
    let (old, old_payload) = Image::release("1.0.0", "stable", "one");
    let (new, new_payload) = Image::release("2.0.0", "stable", "two");
    site.push(&old, "1.0.0");
    site.push(&new, "2.0.0");
    let demand = site.demand(&one);
    let spec = Spec { signatures: Some(demand.clone()), ..site.spec(&Select::Label("stable".to_owned())) };
    let at = |known: &[Candidate]| lookup(&spec, &plain(), Limits::default(), known, None, hour(0)).unwrap();
    let chosen = |all: &[Candidate]| choose(&spec, all, None, hour(0)).chosen.map(|image| image.digest);
    let why = |all: &[Candidate], of: &Image| choose(&spec, all, None, hour(0)).refused[&of.name()].to_string();

    let all = at(&[]);
    assert_eq!(chosen(&all), None);
    assert!(why(&all, &new).contains("no signature, and the channel demands one"), "{}", why(&all, &new));
    site.sign(&old, &one);
    let all = at(&all);
    assert_eq!((chosen(&all), found(&all, &old).payload), (Some(old.name()), Some(old_payload)));
    assert_eq!(found(&all, &new).payload, None, "it is not needed");
    // A signature by another key is none.
    site.sign(&new, &other);
    let all = at(&all);
    assert_eq!(chosen(&all), Some(old.name()));
    assert!(why(&all, &new).contains("none of the trusted keys made it"), "{}", why(&all, &new));
    site.sign(&new, &one);
    let all = at(&all);
    assert_eq!((chosen(&all), found(&all, &new).payload), (Some(new.name()), Some(new_payload)));
    // The look remembers a signature that it has verified, and asks again only for another key.
    let theirs = Spec { signatures: Some(site.demand(&other)), ..spec.clone() };
    let again = lookup(&theirs, &plain(), Limits::default(), &all, None, hour(0)).unwrap();
    assert_eq!(choose(&theirs, &again, None, hour(0)).chosen, None);
    let signed = found(&again, &new).signed.unwrap();
    assert!(signed.by.is_empty() && signed.missing.is_some(), "{signed:?}");
}

/// A person who may only push cannot have a signed image taken as another version, or into another channel, by an index of
/// their own: there stands what the channel goes by.
#[test]
fn what_was_signed_counts_in_no_other_index() {
    let site = Site::new();
    let one = site.signer("one");
    let labels = json!({ "org.opencontainers.image.version": "1.0.0", "dev.slipway.channel": "beta" });
    let old = labelled(labels.clone(), json!({}));
    let forged = labelled(labels, stable_label("9.9.9"));
    assert_eq!(old.manifest, forged.manifest);
    site.push(&old, "1.0.0");
    site.push(&forged, "9.9.9");
    site.sign_digest(Sha256::of(&old.manifest), &one);
    let spec = site.spec(&Select::Label("stable".to_owned()));
    let spec = Spec { signatures: Some(site.demand(&one)), ..spec };
    let all = lookup(&spec, &plain(), Limits::default(), &[], None, hour(0)).unwrap();
    let choice = choose(&spec, &all, None, hour(0));
    let why = choice.refused.get(&forged.name()).map(ToString::to_string);
    assert_eq!(choice.chosen, None);
    assert!(why.as_ref().is_some_and(|why| why.contains("it is for another image")), "{why:?}");
}

fn stable_label(version: &str) -> Value {
    json!({ "org.opencontainers.image.version": version, "dev.slipway.channel": "stable" })
}

#[test]
fn one_connection_serves_all_tags_and_all_images() {
    let site = Site::new();
    for n in 0..8 {
        let (image, _) = Image::release(&format!("1.{n}.0"), "stable", &n.to_string());
        site.push(&image, &n.to_string());
    }
    let proxy = Proxy::to(site.debian.port);
    let floors = vec!["1.1.0".parse().unwrap()];
    let spec = Spec { repository: format!("127.0.0.1:{}/a/b", proxy.port), floors, ..stable() };
    let all = lookup(&spec, &plain(), Limits::default(), &[], None, hour(0)).unwrap();
    let read = all.iter().filter(|candidate| candidate.payload.is_some()).count();
    assert_eq!((all.len(), read), (8, 8), "{all:?}");
    // A layer that is not read to its end takes its connection with it.
    let connections = proxy.connections();
    assert!(connections <= 1 + read, "{connections} connections");
    let again = lookup(&spec, &plain(), Limits::default(), &all, None, hour(1)).unwrap();
    assert_eq!((again == all, proxy.connections() - connections), (true, 1), "eight tags, one connection");
}

/// A list of tags, and then nothing: or a byte now and then, for ever.
#[test]
fn a_look_has_an_end_whatever_the_registry_does() {
    let sends: [fn(&mut dyn std::io::Write) -> std::io::Result<()>; 2] = [
        |_| {
            std::thread::sleep(Duration::from_secs(20));
            Ok(())
        },
        |out| {
            head(out, 200, &[("Content-Length", "1000000")])?;
            (0..200).try_for_each(|_| {
                std::thread::sleep(Duration::from_millis(100));
                out.write_all(b"{").and_then(|()| out.flush())
            })
        },
    ];
    for send in sends {
        let server = Server::new(move |request, out| {
            let is_list = request.target.ends_with("/tags/list");
            if is_list { reply(out, 200, &[], br#"{"tags": ["1", "2"]}"#) } else { send(out) }
        });
        let spec = Spec { repository: format!("127.0.0.1:{}/a/b", server.port), ..stable() };
        let deadline = Instant::now() + Duration::from_secs(2);
        let options = Options { deadline: Some(deadline), ..plain() };
        let error = lookup(&spec, &options, Limits::default(), &[], None, hour(0)).unwrap_err();
        assert_eq!(error.reason(), "TooLong", "{error}");
        let late = deadline.elapsed();
        assert!(late < Duration::from_secs(2), "{late:?} after its time");
    }
}

#[test]
fn what_was_read_in_time_is_not_lost_with_the_look() {
    let site = Site::new();
    let (image, _) = Image::release("1.0.0", "stable", "one");
    site.push(&image, "1.0.0");
    let slow = labelled(json!({}), json!({}));
    site.push(&slow, "2");
    // Of one image nothing comes.
    let name = format!("/manifests/sha256:{}", slow.name());
    let proxy = Proxy::that_holds(site.debian.port, &name);
    let spec = Spec { repository: format!("127.0.0.1:{}/a/b", proxy.port), ..stable() };
    let options = Options { deadline: Some(Instant::now() + Duration::from_secs(3)), ..plain() };
    let error = lookup(&spec, &options, Limits::default(), &[], None, hour(0)).unwrap_err();
    let DiscoverError::TooLong { read, .. } = &error else { panic!("{error}") };
    // Images are read in the order of their digests.
    let before = [&image, &Image::new()].into_iter().filter(|of| of.name() < slow.name()).count();
    assert_eq!(read.len(), before, "{read:?}");
    assert!(read.iter().all(|candidate| candidate.labels.is_ok()));
}

/// With so many unsigned images that they take longer than a look.
#[test]
fn whose_signatures_were_looked_for_in_vain_is_known_to_the_next_look() {
    let site = Site::new();
    let (old, _) = Image::release("1.0.0", "stable", "one");
    let (new, _) = Image::release("2.0.0", "stable", "two");
    site.push(&old, "1.0.0");
    site.push(&new, "2.0.0");
    let signer = site.signer("one");
    let demand = site.demand(&signer);
    // A look through a proxy that holds the signature of one image.
    let through = |holds: &Image, seconds, read: &[Candidate]| {
        let proxy = Proxy::that_holds(site.debian.port, &format!("sha256-{}.sig", holds.name()));
        let repository = format!("127.0.0.1:{}/a/b", proxy.port);
        let spec = Spec { repository, signatures: Some(demand.clone()), ..stable() };
        let options = Options { deadline: Some(Instant::now() + Duration::from_secs(seconds)), ..plain() };
        resume_lookup(&spec, &options, Limits::default(), (read, read), None, hour(0))
    };
    let error = through(&old, 3, &[]).unwrap_err();
    let DiscoverError::TooLong { why, read } = error else { panic!("{error}") };
    assert!(why.contains("the signatures of 1 images were looked for"), "{why}");
    let all = through(&new, 60, &read).unwrap();
    let is_known = |of| found(&all, of).signed.is_some_and(|signed| signed.missing.is_some());
    assert!(is_known(&old) && is_known(&new), "{all:?}");
    // That is the end of it: all are looked for again, because they may be signed now.
    site.sign(&new, &signer);
    let spec = Spec { signatures: Some(demand.clone()), ..site.spec(&Select::Label("stable".to_owned())) };
    let all = lookup(&spec, &plain(), Limits::default(), &all, None, hour(0)).unwrap();
    assert!(found(&all, &new).signed.is_some_and(|signed| signed.missing.is_none()));
}
