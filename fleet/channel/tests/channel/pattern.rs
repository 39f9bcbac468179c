//! Patterns of tags.

use slipway_channel::pattern::Pattern;

fn pattern(text: &str) -> Pattern {
    Pattern::try_from(text.to_owned()).unwrap()
}

#[test]
fn a_star_is_any_text() {
    for (text, like, unlike) in [
        ("stable", &["stable"][..], &["stable-1", "unstable", ""][..]),
        ("stable-*", &["stable-", "stable-1.2"], &["stable", "unstable-1"]),
        ("*", &["", "a"], &[]),
        ("v*-rc*", &["v1-rc1", "v-rc", "v1-rc2-rc3"], &["v1", "1-rc1", "v1-r"]),
        // The end of a name is not matched twice.
        ("a*a", &["aa", "aba"], &["a"]),
        ("1.*.*-a", &["1.2.3-a", "1..-a"], &["1.2-a", "1.2.3"]),
    ] {
        let pattern = pattern(text);
        like.iter().for_each(|tag| assert!(pattern.matches(tag), "{text} {tag}"));
        unlike.iter().for_each(|tag| assert!(!pattern.matches(tag), "{text} {tag}"));
    }
}

#[test]
fn what_no_tag_can_be_like_is_refused() {
    for text in ["", "a b", "a/b", "[0-9]", "a?"] {
        assert!(Pattern::try_from(text.to_owned()).is_err(), "{text:?}");
    }
}
