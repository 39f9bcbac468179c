//! Imager profiles.

use slipway_core::media::profile::Profile;

/// A profile.
pub fn profile(bytes: &[u8]) -> bool {
    let parsed = Profile::parse(bytes);
    if let Err(e) = &parsed {
        let lines = bytes.split(|b| matches!(b, b'\n' | b'\r')).count();
        assert!((1..=lines + 1).contains(&e.at.line) && e.at.column >= 1, "{e}, in {lines} lines");
    }
    // A comment in front says nothing; a byte order mark stands in front of everything.
    if !bytes.starts_with("\u{feff}".as_bytes()) {
        let commented = Profile::parse(&[b"# a comment\n", bytes].concat());
        assert_eq!(
            commented.ok().map(|(profile, _)| profile),
            parsed.as_ref().ok().map(|(profile, _)| profile.clone())
        );
    }
    let Ok((profile, _)) = parsed else { return false };
    // What is shown is the same profile.
    let shown = profile.to_string();
    assert_eq!(Profile::parse(shown.as_bytes()), Ok((profile.clone(), vec![])), "{shown}");
    assert!(super::is_plain(&profile.file_name()), "{}", profile.file_name());
    true
}
