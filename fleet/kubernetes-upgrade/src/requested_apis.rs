//! Which deprecated APIs somebody asks for, by the API server's own metrics. That an API is only served is no reason.

use slipway_core::payload::minor_version::MinorVersion;

/// The gauge that an API server has since 1.19.
const METRIC: &str = "apiserver_requested_deprecated_apis";

/// The APIs that somebody asks for and that this version does not have any more.
pub fn removed(metrics: &str, target: MinorVersion) -> Vec<String> {
    let mut found: Vec<String> = metrics.lines().filter_map(|line| of_line(line, target)).collect();
    found.sort();
    found.dedup();
    found
}

fn of_line(line: &str, target: MinorVersion) -> Option<String> {
    let (labels, value) = line.strip_prefix(METRIC)?.strip_prefix('{')?.rsplit_once('}')?;
    let value: f64 = value.trim().parse().ok()?;
    let label = |name: &str| {
        let of = labels.split(',').find_map(|label| label.strip_prefix(name)?.strip_prefix("=\""));
        of.and_then(|of| of.strip_suffix('"'))
    };
    // Without a version nobody has decided yet that it goes.
    let removed: MinorVersion = label("removed_release")?.parse().ok()?;
    let is_asked_for = value > 0.0 && removed <= target;
    let part = |name| label(name).unwrap_or_default();
    is_asked_for.then(|| format!("{}/{} {} (removed in {removed})", part("group"), part("version"), part("resource")))
}
