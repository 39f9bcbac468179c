//! Comparing what a document shows with what came: what differs from run to run is made equal, nothing else.

/// A line of `…` stands for any lines. GUIDs, digests and times are equal to one another, and white space at the end of a
/// line is none.
pub fn compare(shown: &[String], came: &str) -> Result<(), String> {
    if shown.is_empty() {
        return Ok(());
    }
    let shown: Vec<String> = shown.iter().map(|line| settled(line)).collect();
    let came: Vec<String> = came.lines().map(settled).collect();
    if matches(&shown, &came) {
        return Ok(());
    }
    let missing: Vec<&String> = shown.iter().filter(|line| *line != "…" && !came.contains(line)).collect();
    Err(format!("the document shows something else; these lines of it did not come (in this order): {missing:#?}"))
}

fn matches(shown: &[String], came: &[String]) -> bool {
    match shown.split_first() {
        None => came.is_empty(),
        Some((first, rest)) if first == "…" => (0..=came.len()).any(|skip| matches(rest, &came[skip..])),
        Some((first, rest)) => came.split_first().is_some_and(|(line, after)| line == first && matches(rest, after)),
    }
}

fn settled(line: &str) -> String {
    let is_word = |c: char| c.is_ascii_alphanumeric() || "-:".contains(c);
    let mut out = String::new();
    let mut rest = line.trim_end();
    while let Some(c) = rest.chars().next() {
        let len = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
        let (word, after) = rest.split_at(if len == 0 { c.len_utf8() } else { len });
        out.push_str(kind(word).unwrap_or(word));
        rest = after;
    }
    out
}

fn kind(word: &str) -> Option<&'static str> {
    let shape: String = word.chars().map(|c| if c.is_ascii_hexdigit() { 'x' } else { c }).collect();
    let groups: Vec<usize> =
        shape.split('-').map(|group| if group.bytes().all(|b| b == b'x') { group.len() } else { 0 }).collect();
    match groups.as_slice() {
        [64] => Some("<digest>"),
        [8, 4, 4, 4, 12] => Some("<guid>"),
        _ if shape == "xxxx-xx-xxTxx:xx:xxZ" => Some("<time>"),
        [4, 2, 2] => Some("<date>"),
        _ if shape == "xx:xx" => Some("<time of day>"),
        _ => None,
    }
}

#[test]
fn what_is_compared() {
    let same = |shown: &str, came: &str| {
        let shown: Vec<String> = shown.lines().map(str::to_owned).collect();
        compare(&shown, came).is_ok()
    };
    let (one, other) = ("03870bed-8f5d-4452-ae4c-9a5d59f0350d", "6e525e27-ffe6-4a62-a755-ba3833f80141");
    assert!(same(&format!("disk {one})"), &format!("disk {other})")));
    assert!(same(&"0a".repeat(32), &"1b".repeat(32)) && !same(&"0a".repeat(32), &"1b".repeat(31)));
    assert!(same("since 2026-11-22T04:44:33Z, good", "since 1999-01-01T00:00:00Z, good"));
    assert!(same("2026-11-22 04:44  install", "1999-01-01 00:00  install"));
    assert!(same("a\n…\nd", "a\nb\nc\nd") && same("a\n…", "a") && same("", "anything"));
    for (shown, came) in
        [("a", "a\nb"), ("a\nb", "a"), ("b\na", "a\nb"), ("…\na", "a\nb"), ("4 GiB", "5 GiB"), ("a…", "ab")]
    {
        assert!(!same(shown, came), "{shown:?} and {came:?}");
    }
}
