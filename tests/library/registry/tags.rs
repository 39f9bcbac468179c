//! The list of tags, in pages.

use slipway_test_support::registry::{
    at, plain, registry, says,
    server::{Request, Server, reply},
};

/// The parameter `last` of a request.
fn last(request: &Request) -> Option<&str> {
    request.target.split(['?', '&']).find_map(|part| part.strip_prefix("last="))
}

#[test]
fn pages_follow_each_other() {
    let server = Server::new(|request, out| match last(request) {
        None => reply(
            out,
            200,
            &[("Link", "</v2/a/b/tags/list?last=2&n=2>; rel=\"next\"")],
            br#"{"name": "a/b", "tags": ["2", "1"]}"#,
        ),
        // Whatever the registry calls itself, no other host is asked.
        Some("2") => reply(
            out,
            200,
            &[("Link", "<https://elsewhere.example/v2/x/tags/list?n=2&last=4>; rel=next")],
            br#"{"tags": ["3", "4", ".hidden", "", "a b"]}"#,
        ),
        _ => reply(out, 200, &[("Link", "<x?last=9>; rel=\"prev\"")], br#"{"tags": ["4", "5"]}"#),
    });
    assert_eq!(at(server.port).tags().unwrap(), ["1", "2", "3", "4", "5"]);
    let asked: Vec<String> = server.requests().into_iter().map(|request| request.target).collect();
    let first = "/v2/a/b/tags/list";
    assert_eq!(asked, [first, "/v2/a/b/tags/list?last=2&n=2", "/v2/a/b/tags/list?n=2&last=4"]);
}

#[test]
fn a_repository_without_tags_has_none() {
    for body in [r#"{"name": "a/b", "tags": null}"#, r#"{"name": "a/b"}"#, r#"{"tags": []}"#] {
        let server = Server::new(|_, out| reply(out, 200, &[], body.as_bytes()));
        assert_eq!(at(server.port).tags().unwrap(), [""; 0], "{body}");
    }
}

#[test]
fn what_is_no_list_is_told() {
    let error = |status, body: &'static str| {
        let server = Server::new(move |_, out| reply(out, status, &[], body.as_bytes()));
        at(server.port).tags().unwrap_err()
    };
    let page = error(200, "<html>");
    assert_eq!(says(&page, &["the list of tags in docker://127.0.0.1:", "/a/b", "with a web page"]), "fetch");
    assert_eq!(says(&error(200, "{\"tags\": 1}"), &["sends no list of tags"]), "invalid");
    assert_eq!(says(&error(404, r#"{"errors": [{"code": "NAME_UNKNOWN"}]}"#), &["NAME_UNKNOWN"]), "not found");
    assert_eq!(says(&error(500, ""), &["500", "asked 5 times"]), "fetch");
}

#[test]
fn a_list_without_an_end_is_given_up() {
    let link = ("Link", "</v2/a/b/tags/list?last=1>; rel=\"next\"");
    let server = Server::new(move |_, out| reply(out, 200, &[link], br#"{"tags": []}"#));
    assert_eq!(says(&at(server.port).tags().unwrap_err(), &["without an end"]), "invalid");
    assert_eq!(server.requests().len(), 1);
}

/// A page that does not come is asked for again from the first one on, there or elsewhere: lists are not mixed.
#[test]
fn a_list_comes_from_one_endpoint() {
    let mirror = Server::new(|request, out| match last(request) {
        None => reply(out, 200, &[("Link", "<?last=1>; rel=\"next\"")], br#"{"tags": ["1", "only-here"]}"#),
        Some(_) => reply(out, 404, &[], b""),
    });
    let server = Server::new(|_, out| reply(out, 200, &[], br#"{"tags": ["1", "2"]}"#));
    let host = format!("127.0.0.1:{}", server.port);
    let mut options = plain();
    options.mirrors = vec![format!("{host}=http://127.0.0.1:{}", mirror.port).parse().unwrap()];
    assert_eq!(registry(&format!("{host}/a/b"), &options).tags().unwrap(), ["1", "2"]);
    assert_eq!(mirror.requests().len(), 2);
}
