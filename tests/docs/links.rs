//! Links, anchors, and paths of the source tree in the documents.

use std::path::{Component, Path, PathBuf};

use super::{text, top};

/// Whether a path of the source tree is there.
pub fn exists(path: &str) -> bool {
    top().join(path).exists()
}

/// The targets that a document names and that are not there.
pub fn wrong(document: &str, text: &str) -> Vec<String> {
    let prose = without_blocks(text);
    let links = targets(&prose).filter_map(|target| broken(document, target));
    let paths = spans(&prose).filter_map(source_path).filter(|path| !exists(path)).map(str::to_owned);
    links.chain(paths).map(|target| format!("{document}: {target} is not there")).collect()
}

fn broken(document: &str, target: &str) -> Option<String> {
    if target.contains("://") {
        return None;
    }
    let (path, anchor) = target.split_once('#').map_or((target, None), |(path, anchor)| (path, Some(anchor)));
    let file = if path.is_empty() { document.to_owned() } else { resolved(document, path) };
    let found = exists(&file) && anchor.is_none_or(|anchor| anchors(&self::text(&file)).iter().any(|a| a == anchor));
    (!found).then(|| target.to_owned())
}

fn resolved(document: &str, path: &str) -> String {
    let mut out = PathBuf::new();
    for part in Path::new(document).parent().unwrap().join(path).components() {
        match part {
            Component::ParentDir => drop(out.pop()),
            other => out.push(other),
        }
    }
    out.to_str().unwrap().to_owned()
}

/// As GitHub makes them of headings.
fn anchors(text: &str) -> Vec<String> {
    let prose = without_blocks(text);
    let headings = prose.lines().filter(|line| line.starts_with('#')).map(|line| line.trim_start_matches('#').trim());
    let slug = |heading: &str| {
        let kept = heading.to_lowercase();
        let kept = kept.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    headings.map(slug).collect()
}

/// The targets in `](…)`.
fn targets(prose: &str) -> impl Iterator<Item = &str> {
    prose.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target)
}

/// The texts between backticks.
pub fn spans(prose: &str) -> impl Iterator<Item = &str> {
    prose.lines().flat_map(|line| line.split('`').skip(1).step_by(2))
}

/// The path of a span that begins with one.
fn source_path(span: &str) -> Option<&str> {
    let word = span.split(' ').next()?;
    let roots = ["src/", "core/", "fleet/", "tests/", "vm-tests/", "hack/", "assets/report", "assets/grub/", "docs/"];
    roots.iter().any(|root| word.starts_with(root)).then_some(word)
}

pub fn without_blocks(text: &str) -> String {
    let parts = text.split("```").step_by(2);
    parts.collect::<Vec<_>>().join("\n")
}
