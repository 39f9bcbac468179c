//! Certificates: the clients that are let in, and changes of the files.

use rustls::pki_types::{CertificateDer, pem::PemObject as _};
use slipway_node_api::{
    reason::Reason,
    v1::{CertificateUse, StatusRequest, WatchRequest, event::What},
};

use crate::{
    certificates::{Ca, Days, NOW, Pair},
    site::Site,
};

const ADMIN: Option<&str> = Some("slipway:admin");

#[tokio::test]
async fn who_is_not_known_ends_at_the_handshake() {
    let site = Site::new().await;
    let (ca, other) = (&site.ca, Ca::new("another CA"));
    // Of the same name, but not the same.
    let forged = Ca::new("CA 1");
    let revoked = ca.client("mallory", ADMIN, 66);
    site.replace("revoked.pem", &ca.revoke(&[&revoked], NOW));
    let cases = [
        ("no certificate", None, "CertificateRequired"),
        ("another CA", Some(other.client("a", ADMIN, 2)), "UnknownCA"),
        ("a CA of the same name", Some(forged.client("a", ADMIN, 2)), "DecryptError"),
        ("expired", Some(ca.client_for("a", ADMIN, 2, Days(-9, -1))), "CertificateExpired"),
        ("not valid yet", Some(ca.client_for("a", ADMIN, 2, Days(1, 9))), "CertificateExpired"),
        ("revoked", Some(revoked), "CertificateRevoked"),
        ("a server's", Some(ca.server(2)), "UnsupportedCertificate"),
    ];
    for (what, pair, alert) in cases {
        let failed = site.shake(ca, pair.as_ref()).await.unwrap_err();
        assert!(failed.contains(alert), "{what}: {failed}");
    }
    site.shake(ca, Some(&site.admin())).await.unwrap();
    assert_eq!(site.node.calls(), [""; 0]);
}

#[tokio::test]
async fn who_is_revoked_is_out_on_open_connections_too() {
    let site = Site::new().await;
    let (alice, bob) = (site.admin(), site.ca.client("bob", ADMIN, 11));
    let (mut of_alice, mut of_bob) = (site.client(&alice).await, site.client(&bob).await);
    of_alice.status(StatusRequest {}).await.unwrap();
    site.log.push(What::notice("before"));
    let mut watch = of_alice.watch(WatchRequest::default()).await.unwrap().into_inner();
    watch.message().await.unwrap().unwrap();
    site.replace("revoked.pem", &site.ca.revoke(&[&alice], NOW));

    let refused = of_alice.status(StatusRequest {}).await.unwrap_err();
    assert_eq!(Reason::of(&refused), Some(Reason::Distrusted), "{refused:?}");
    site.log.push(What::notice("after"));
    assert_eq!(Reason::of(&watch.message().await.unwrap_err()), Some(Reason::Distrusted));
    assert!(site.shake(&site.ca, Some(&alice)).await.unwrap_err().contains("CertificateRevoked"));
    of_bob.status(StatusRequest {}).await.unwrap();
}

#[tokio::test]
async fn a_list_that_was_not_renewed_locks_nobody_out_and_still_revokes() {
    let site = Site::new().await;
    let revoked = site.ca.client("mallory", ADMIN, 66);
    site.replace("revoked.pem", &site.ca.revoke(&[&revoked], Days(-9, -1)));
    assert!(site.shake(&site.ca, Some(&revoked)).await.unwrap_err().contains("CertificateRevoked"));
    site.shake(&site.ca, Some(&site.admin())).await.unwrap();
}

/// The certificate that the server shows to a new connection.
async fn shown(site: &Site) -> CertificateDer<'static> {
    let tls = site.shake(&site.ca, Some(&site.admin())).await.unwrap();
    tls.get_ref().1.peer_certificates().unwrap()[0].clone().into_owned()
}

fn der(pair: &Pair) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(pair.certificate.as_bytes()).unwrap()
}

/// The events of the service itself.
async fn notices(site: &Site) -> Vec<String> {
    let log = site.log.clone();
    log.push(What::notice("end"));
    let mut reader = log.read(None).unwrap();
    let mut texts = Vec::new();
    loop {
        match reader.next().await.unwrap().what {
            Some(What::Notice(notice)) if notice.text == "end" => return texts,
            Some(What::Notice(notice)) => texts.push(notice.text),
            other => panic!("{other:?}"),
        }
    }
}

/// A kubelet has its certificate and the key in one file, to which a link leads, and renews both at once.
#[tokio::test]
async fn a_certificate_and_its_key_may_be_one_file_that_a_link_leads_to() {
    let site = Site::new().await;
    let at = |name: &str| site.dir.path().join(name);
    let link = |name: &str, to: &str| {
        std::os::unix::fs::symlink(at(to), at("new")).unwrap();
        std::fs::rename(at("new"), at(name)).unwrap();
    };
    let pairs = [site.ca.server(2), site.ca.server(3)];
    for (n, Pair { certificate, key, .. }) in pairs.iter().enumerate() {
        std::fs::write(at(&format!("kubelet-server-{n}.pem")), format!("{certificate}{key}")).unwrap();
    }
    link("kubelet-server-current.pem", "kubelet-server-0.pem");
    link("node.key", "kubelet-server-current.pem");
    link("node.crt", "kubelet-server-current.pem");
    assert_eq!(shown(&site).await, der(&pairs[0]));
    link("kubelet-server-current.pem", "kubelet-server-1.pem");
    assert_eq!(shown(&site).await, der(&pairs[1]));
    assert_eq!(notices(&site).await, [""; 0]);
}

#[tokio::test]
async fn a_new_certificate_of_the_server_is_for_new_connections() {
    let site = Site::new().await;
    let mut open = site.client(&site.admin()).await;
    let (old, new) = (shown(&site).await, site.ca.server(2));
    // Between the two files, they do not fit each other.
    site.replace("node.key", &new.key);
    assert_eq!(shown(&site).await, old);
    assert_eq!(shown(&site).await, old);
    site.replace("node.crt", &new.certificate);
    assert_eq!(shown(&site).await, der(&new));
    open.status(StatusRequest {}).await.unwrap();
    let told = notices(&site).await;
    assert!(told.len() == 1 && told[0].contains("node.crt") && told[0].contains("stay in use"), "{told:?}");
}

#[tokio::test]
async fn one_ca_replaces_another_while_both_are_trusted() {
    let site = Site::new().await;
    let next = Ca::new("CA 2");
    let (old, new) = (site.admin(), next.client("alice", ADMIN, 10));
    let mut open = site.client(&old).await;
    assert!(site.shake(&site.ca, Some(&new)).await.unwrap_err().contains("UnknownCA"));

    site.replace("ca.crt", &format!("{}{}", site.ca.certificate, next.certificate));
    // The serial number is revoked in the old CA, not in the new one.
    let revoked = site.ca.client("mallory", ADMIN, 10 + 1);
    site.replace("revoked.pem", &site.ca.revoke(&[&revoked], NOW));
    site.shake(&site.ca, Some(&next.client("carol", ADMIN, 11))).await.unwrap();
    for pair in [&old, &new] {
        site.shake(&site.ca, Some(pair)).await.unwrap();
    }
    assert!(site.shake(&site.ca, Some(&revoked)).await.unwrap_err().contains("CertificateRevoked"));

    // Lists of both, in one file.
    let carol = next.client("carol", ADMIN, 11);
    site.replace("revoked.pem", &format!("{}{}", site.ca.revoke(&[&revoked], NOW), next.revoke(&[&carol], NOW)));
    for pair in [&revoked, &carol] {
        assert!(site.shake(&site.ca, Some(pair)).await.unwrap_err().contains("CertificateRevoked"));
    }

    open.status(StatusRequest {}).await.unwrap();
    site.replace("ca.crt", &next.certificate);
    site.shake(&site.ca, Some(&new)).await.unwrap();
    assert!(site.shake(&site.ca, Some(&old)).await.unwrap_err().contains("UnknownCA"));
    let refused = open.status(StatusRequest {}).await.unwrap_err();
    assert_eq!(Reason::of(&refused), Some(Reason::Distrusted), "{refused:?}");
}

/// Of files that were joined where a line break was missing, or begin with the mark of an editor. A list that is passed over would
/// let in who is revoked.
#[tokio::test]
async fn no_list_and_no_ca_of_a_file_is_left_out() {
    let site = Site::new().await;
    let next = Ca::new("CA 2");
    let [mallory, carol] = [site.ca.client("mallory", ADMIN, 66), next.client("carol", ADMIN, 67)];
    let [one, two] = [site.ca.revoke(&[&mallory], NOW), next.revoke(&[&carol], NOW)];
    let joins: [fn(&str, &str) -> String; 3] = [
        |one, two| format!("{}{two}", one.trim_end()),
        |one, two| format!("\u{feff}{one}\u{feff}{two}"),
        |one, two| format!("{}\u{feff}{two}", one.trim_end()),
    ];
    for join in joins {
        site.replace("ca.crt", &join(&site.ca.certificate, &next.certificate));
        site.replace("revoked.pem", &join(&one, &two));
        for pair in [&site.admin(), &next.client("dave", ADMIN, 68)] {
            site.shake(&site.ca, Some(pair)).await.unwrap();
        }
        for pair in [&mallory, &carol] {
            assert!(site.shake(&site.ca, Some(pair)).await.unwrap_err().contains("CertificateRevoked"));
        }
    }
    assert_eq!(notices(&site).await, [""; 0]);
}

#[tokio::test]
async fn files_that_are_broken_change_nothing_and_are_told_once() {
    let site = Site::new().await;
    let revoked = site.ca.client("mallory", ADMIN, 66);
    site.replace("revoked.pem", &site.ca.revoke(&[&revoked], NOW));
    site.shake(&site.ca, Some(&site.admin())).await.unwrap();
    let other = site.ca.server(3);
    for (name, broken) in
        [("revoked.pem", "what is this\n"), ("ca.crt", ""), ("node.key", ""), ("node.crt", other.certificate.as_str())]
    {
        let before = std::fs::read_to_string(site.dir.path().join(name)).unwrap();
        site.replace(name, broken);
        for _ in 0..2 {
            site.shake(&site.ca, Some(&site.admin())).await.unwrap();
            assert!(site.shake(&site.ca, Some(&revoked)).await.unwrap_err().contains("CertificateRevoked"));
        }
        site.replace(name, &before);
        site.shake(&site.ca, Some(&site.admin())).await.unwrap();
    }
    std::fs::remove_file(site.dir.path().join("revoked.pem")).unwrap();
    assert!(site.shake(&site.ca, Some(&revoked)).await.unwrap_err().contains("CertificateRevoked"));
    site.shake(&site.ca, Some(&site.admin())).await.unwrap();
    let told = notices(&site).await;
    assert_eq!(told.len(), 5, "{told:#?}");
    for (notice, name) in told.iter().zip(["revoked.pem", "ca.crt", "node.key", "node.crt", "revoked.pem"]) {
        assert!(notice.contains(name), "{notice}");
    }
    assert!(told[3].contains("node.crt: it is the certificate of another key"), "{told:#?}");
}

#[tokio::test]
async fn the_end_of_a_certificate_is_told_before_it_comes() {
    let site = Site::new().await;
    let mut client = site.client(&site.admin()).await;
    let mut certificates = client.status(StatusRequest {}).await.unwrap().into_inner().certificates;
    assert_eq!(certificates.iter().map(|of| of.name.as_str()).collect::<Vec<_>>(), ["node-1", "CA 1"]);
    let before = certificates.remove(0);
    assert_eq!(before.r#use(), CertificateUse::Server);
    // Renewed while the service runs: the next status has the new one.
    let Pair { certificate, key, .. } = site.ca.server_for(7, Days(-1, 700));
    site.replace("node.key", &key);
    site.replace("node.crt", &certificate);
    let after = client.status(StatusRequest {}).await.unwrap().into_inner().certificates.remove(0);
    // In days: the second one was made a little later.
    assert_eq!((after.expires - before.expires) / 86_400, 335);
}
