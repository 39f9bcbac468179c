//! A page for people, to read and nothing else: each pool with its rollout, its waves, and who waits for what. It is one HTML
//! document without scripts, made once in each round.
//!
//! Nodes, registries and people write much of its text. So all text is escaped, cut, freed of what a terminal or a browser acts
//! on, and of passwords; and there are so many rows at most. The page loads nothing, and the headers forbid a browser to.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    sync::{Arc, Mutex, PoisonError},
};

use jiff::Timestamp;
use slipway_core::redact::redact;
use slipway_fleet_objects::{rollout::FINISHED, upgrade::NodeUpgradeStatus};
use slipway_rollout::{
    blocked::Blocked,
    ledger::{Grant, KubernetesClaim, Ledger, Node},
};

use crate::{
    nodes::Answer,
    observed_node::NodeReading,
    pools::Members,
    report,
    round::{PoolRound, Round},
    sentences::counted,
};

/// Nodes with a row of their own, in all pools together.
const ROWS: usize = 500;
/// Pools, and waves of each, with a row of their own.
const MOST: usize = 100;
/// The longest text, characters.
const LONGEST: usize = 400;

/// Where the page begins, below its head.
const MAIN: &str = "<main>\n";
/// The head before there was a round.
const FIRST: &str = "<header><h1>Slipway</h1></header>\n";

/// Forbids a browser to load, run or send anything, and others to show the page within theirs.
pub const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; \
                          frame-ancestors 'none'";

/// The page of the last round.
#[derive(Debug, Default)]
pub struct Page(Mutex<Shown>);

#[derive(Debug, Default)]
struct Shown {
    /// Of the last round that came to its end.
    round: Arc<str>,
    /// The same, with why the rounds after it failed.
    page: Arc<str>,
}

impl Page {
    /// As it was made last; empty before the first round.
    pub fn get(&self) -> Arc<str> {
        Arc::clone(&self.0.lock().unwrap_or_else(PoisonError::into_inner).page)
    }

    pub(crate) fn set(&self, page: String) {
        let round: Arc<str> = page.into();
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Shown { page: Arc::clone(&round), round };
    }

    /// A round failed: what is shown is older, and the page says so.
    pub(crate) fn fail(&self, why: &str, now: Timestamp) {
        let mut shown = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (before, after) = shown.round.split_once(MAIN).unwrap_or((FIRST, "</main>\n</html>\n"));
        let mut html = Html(String::with_capacity(before.len() + after.len() + LONGEST));
        if shown.round.is_empty() {
            html.raw(HEAD);
        }
        html.0.push_str(before);
        html.raw(MAIN);
        html.raw("<section><p class=\"bad\">");
        html.text(&format!("The last round failed, at {now:.0}; what is below is older: {why}"));
        html.raw("</p></section>\n");
        html.0.push_str(after);
        shown.page = html.0.into();
    }
}

/// The page of this round; `answers` has what came of requests by node, `refused` what could not be written by pool.
pub fn page(
    round: &Round,
    members: &Members<'_>,
    readings: &BTreeMap<String, NodeReading>,
    (answers, refused): (&BTreeMap<String, Answer>, &BTreeMap<String, String>),
    now: Timestamp,
) -> String {
    let mut html = Html(String::with_capacity(16 << 10));
    html.raw(HEAD);
    html.raw("<header><h1>Slipway</h1><p>As of <time>");
    html.text(&format!("{now:.0}"));
    let grants = round.ledger.grants.len();
    html.raw("</time>. ");
    html.text(&format!("{} held. This page changes nothing.", counted(grants, "grant")));
    html.raw("</p></header>\n");
    html.raw(MAIN);
    if round.pools.is_empty() {
        html.raw("<p>There is no NodePool: no node is upgraded.</p>\n");
    }
    homeless(&mut html, round, members);
    let mut rows = ROWS;
    for (name, pool_round) in round.pools.iter().take(MOST) {
        html.raw("<section>");
        match pool_round {
            Ok(pool_round) => {
                pool(&mut html, name, pool_round, refused.get(name).map(String::as_str), now);
                waves(&mut html, pool_round);
                let nodes = report::nodes(pool_round, readings, answers);
                nodes_of(&mut html, pool_round, &nodes, &mut rows);
            }
            Err(problem) => {
                heading(&mut html, name, "Invalid");
                html.element("p", &format!("{problem}. {} wait.", counted(members.in_pool(name).len(), "node")));
            }
        }
        html.raw("</section>\n");
    }
    if round.pools.len() > MOST {
        html.element("p", &format!("{} more pools are not shown.", round.pools.len() - MOST));
    }
    html.raw("</main>\n</html>\n");
    html.0
}

/// What the ledger holds and no pool has a row for. It keeps others waiting all the same.
fn homeless(html: &mut Html, round: &Round, members: &Members<'_>) {
    let Ledger { grants, kubernetes, .. } = &round.ledger;
    let claim = kubernetes.iter().map(|KubernetesClaim { token, version, since }| {
        let how = "If no run goes on with it: slipwayctl kubernetes unblock --reason WHY";
        format!("Kubernetes is upgraded to {version}, with the claim {token}, since {since:.0}: no node begins. {how}")
    });
    let gone = grants.iter().filter(|grant| members.pool_of(&grant.node.uid).is_none());
    let gone = gone.map(|Grant { node: Node { name, pool, .. }, token, since, .. }| {
        let how = format!("If it does not end: slipwayctl fleet unblock {name} --reason WHY");
        format!(
            "{name}, of the pool {pool}, holds the grant {token} since {since:.0}, and is in no pool any more. {how}"
        )
    });
    let all: Vec<String> = claim.chain(gone).collect();
    all.iter().take(MOST).for_each(|held| html.element("p", held));
    if all.len() > MOST {
        html.element("p", &format!("{} more are not shown: slipwayctl fleet status", all.len() - MOST));
    }
}

fn heading(html: &mut Html, name: &str, state: &str) {
    html.raw("<h2>");
    html.text(name);
    html.raw(" <span class=\"");
    html.raw(kind(state));
    html.raw("\">");
    html.text(state);
    html.raw("</span></h2>\n");
}

fn pool(html: &mut Html, name: &str, pool_round: &PoolRound, refused: Option<&str>, now: Timestamp) {
    let status = report::pool(pool_round, refused, now);
    heading(html, name, &status.state);
    html.element("p", &status.message);
    progress(html, status.done as usize, status.nodes as usize);
    html.raw("<dl>");
    let mut entry = |of: &str, is: &str| {
        html.element("dt", of);
        html.element("dd", is);
    };
    if let Some(rollout) = &status.rollout {
        entry("Rollout", rollout);
    }
    entry("Image", &pool_round.desired.image);
    entry("Payload", &pool_round.facts.plan.payload.to_string());
    let limits = &pool_round.decision.limits;
    let held = pool_round.facts.ledger.grants.iter().filter(|grant| grant.node.pool == *name).count();
    entry("At work", &format!("{held} of {} at once", limits.max_unavailable.unavailable(limits.size)));
    html.raw("</dl>\n");
}

fn progress(html: &mut Html, done: usize, all: usize) {
    let _ = write!(html.0, "<p class=\"bar\"><progress max=\"{}\" value=\"{done}\"></progress> ", all.max(1));
    html.text(&format!("{done} of {} done", counted(all, "node")));
    html.raw("</p>\n");
}

/// The progress of each wave, and the reason why the first that is not over waits.
fn waves(html: &mut Html, pool_round: &PoolRound) {
    let (plan, blocked) = (&pool_round.facts.plan, pool_round.blocked());
    if plan.waves.len() < 2 {
        return;
    }
    let facts = &pool_round.facts;
    let held = [(facts.denied.as_ref(), "denied"), (facts.aborted.as_ref(), "aborted"), (facts.pause(), "paused")];
    let held = held.into_iter().find(|(why, _)| why.is_some()).map(|(_, state)| state);
    html.raw("<table><caption>Waves</caption><thead><tr><th>Wave<th>Nodes<th>State</thead><tbody>\n");
    for (n, wave) in plan.waves.iter().enumerate().take(MOST) {
        let left = wave.nodes.iter().filter(|node| blocked.contains_key(node.uid.as_str())).count();
        let awaits = |of: &&slipway_rollout::decide::BlockedNode| matches!(&of.why, Blocked::Approval { wave, .. } if *wave == n + 1);
        let state = match (n.cmp(&pool_round.decision.passed), pool_round.decision.soaks) {
            (std::cmp::Ordering::Less, _) => "over".to_owned(),
            (std::cmp::Ordering::Equal, _) if held.is_some() => held.unwrap_or_default().to_owned(),
            (std::cmp::Ordering::Equal, Some(until)) => format!("soaks until {until:.0}"),
            _ if pool_round.decision.blocked.iter().any(|of| awaits(&of)) => "waits for approval".to_owned(),
            (std::cmp::Ordering::Equal, None) => "goes on".to_owned(),
            (std::cmp::Ordering::Greater, _) => "waits".to_owned(),
        };
        html.raw("<tr>");
        html.element("td", &(n + 1).to_string());
        html.element("td", &format!("{} of {}", wave.nodes.len() - left, wave.nodes.len()));
        html.element("td", &state);
    }
    html.raw("</tbody></table>\n");
    if plan.waves.len() > MOST {
        html.element("p", &format!("{} more waves are not shown.", plan.waves.len() - MOST));
    }
}

/// The nodes that are not done, those first with which something is wrong.
fn nodes_of(html: &mut Html, pool_round: &PoolRound, nodes: &BTreeMap<&str, NodeUpgradeStatus>, rows: &mut usize) {
    let named = pool_round.facts.nodes.iter().filter_map(|observed| {
        let status = nodes.get(observed.node.uid.as_str()).filter(|status| status.reason != "Done")?;
        Some((observed.node.name.as_str(), status))
    });
    let mut waiting: Vec<(&str, &NodeUpgradeStatus)> = named.collect();
    if waiting.is_empty() {
        return;
    }
    waiting.sort_by_key(|(name, status)| (rank(&status.reason), status.wave, *name));
    html.raw("<table class=\"nodes\"><caption>Nodes that are not done</caption>");
    html.raw("<thead><tr><th>Node<th>Wave<th>State<th>Why</thead><tbody>\n");
    let shown = waiting.len().min(*rows);
    for (name, status) in waiting.iter().take(shown) {
        html.raw("<tr>");
        html.element("th", name);
        html.element("td", &status.wave.map(|wave| wave.to_string()).unwrap_or_default());
        html.raw("<td><span class=\"");
        html.raw(kind(&status.reason));
        html.raw("\">");
        html.text(&status.reason);
        html.raw("</span>");
        let step = status.step.as_ref().map(|step| format!("{step}: ")).unwrap_or_default();
        html.element("td", &(step + &status.message));
    }
    html.raw("</tbody></table>\n");
    *rows -= shown;
    if waiting.len() > shown {
        let left = counted(waiting.len() - shown, "more node");
        html.element("p", &format!("{left} not shown: kubectl get nodeupgrades"));
    }
}

/// The name of a class: good, bad, at work, or waiting.
fn kind(state: &str) -> &'static str {
    match rank(state) {
        0 => "bad",
        1 => "busy",
        _ if matches!(state, "UpToDate" | FINISHED) => "good",
        _ => "waits",
    }
}

fn rank(state: &str) -> u8 {
    match state {
        "Denied" | "Incomplete" | "Invalid" | "Failed" | "KeepsDenied" | "StrandsMember" | "KubeletSkew"
        | "TokenAhead" | "Silent" | "SilentWithGrant" | "GoneWithGrant" | "Overtaken" | "AbortedWithGrant"
        | "ForeignGrant" | "NotWell" | "NotReplaced" | "LocalVolumes" | "NoMachines" | "NoSuccessor"
        | "SuccessorElsewhere" | "SuccessorNotWell" | "SuccessorDiffers" | "Unwritten" | "PlanChanged"
        | "LedgerFull" | "LedgerSpent" => 0,
        "Running" | "UnderWay" | "Begins" | "Granted" | "Returns" | "Aborts" | "Staging" | "Rebooting" | "Deletes"
        | "MachineGoes" | "SuccessorJoins" | "Busy" => 1,
        _ => 2,
    }
}

/// A document as it grows.
struct Html(String);

impl Html {
    /// Of this program alone.
    fn raw(&mut self, html: &'static str) {
        self.0.push_str(html);
    }

    fn element(&mut self, name: &'static str, text: &str) {
        let _ = write!(self.0, "<{name}>");
        self.text(text);
        let _ = write!(self.0, "</{name}>");
    }

    /// Of others, so it is escaped.
    fn text(&mut self, text: &str) {
        // Room to find a secret as a whole, before the text is cut to its length.
        let some: String = text.chars().take(4 * LONGEST).collect();
        let clean = redact(&some);
        let mut rest = clean.chars();
        for c in rest.by_ref().take(LONGEST) {
            match c {
                '&' => self.0.push_str("&amp;"),
                '<' => self.0.push_str("&lt;"),
                '>' => self.0.push_str("&gt;"),
                '"' => self.0.push_str("&quot;"),
                '\'' => self.0.push_str("&#39;"),
                c if c.is_control() || turns(c) => self.0.push('\u{fffd}'),
                c => self.0.push(c),
            }
        }
        if rest.next().is_some() {
            self.0.push('…');
        }
    }
}

/// It changes the direction of what follows, or hides in it.
fn turns(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{061c}')
}

const HEAD: &str = r#"<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="refresh" content="10">
<meta name="color-scheme" content="light dark">
<title>Slipway: rollouts</title>
<style>
:root { color-scheme: light dark; --text: #1c2024; --soft: #5b6570; --line: #d5dae0; --back: #f6f7f9; --card: #fff;
  --good: #146c2e; --bad: #b3261e; --busy: #0b57a8; --waits: #5b6570 }
@media (prefers-color-scheme: dark) { :root { --text: #e6e9ed; --soft: #a3adb8; --line: #3a424c; --back: #14171b;
  --card: #1d2126; --good: #7bd694; --bad: #ff9a90; --busy: #8fc1ff; --waits: #a3adb8 } }
* { box-sizing: border-box }
body { margin: 0 auto; padding: 1rem; max-width: 70rem; background: var(--back); color: var(--text);
  font: 1rem/1.5 system-ui, sans-serif; overflow-wrap: anywhere }
h1 { margin: 0; font-size: 1.4rem }
h2 { margin: 0; font-size: 1.2rem }
p { margin: .5rem 0 }
header p, caption, dt { color: var(--soft) }
section { margin: 1rem 0; padding: 1rem; background: var(--card); border: 1px solid var(--line); border-radius: .5rem }
span { display: inline-block; padding: 0 .5rem; border: 1px solid; border-radius: 1rem; font-size: .85rem;
  font-weight: 600; overflow-wrap: normal }
.good { color: var(--good) } .bad { color: var(--bad) } .busy { color: var(--busy) } .waits { color: var(--waits) }
progress { width: 100%; max-width: 20rem; vertical-align: middle; accent-color: var(--busy) }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .1rem 1rem; margin: .5rem 0; font-size: .9rem }
dd { margin: 0 }
table { width: 100%; border-collapse: collapse; margin: .75rem 0; font-size: .9rem }
caption { text-align: left; font-weight: 600 }
th, td { text-align: left; vertical-align: top; padding: .35rem .75rem .35rem 0; border-top: 1px solid var(--line);
  font-weight: normal }
thead th { color: var(--soft); border: 0; white-space: nowrap }
tbody th { font-weight: 600 }
td:last-child { min-width: 40% }
@media (max-width: 40rem) { body { padding: .5rem } section { padding: .75rem } th, td { padding-right: .4rem }
  table { font-size: .85rem } dl { grid-template-columns: 1fr } dd { margin-bottom: .3rem }
  .nodes thead { display: none } .nodes tr { display: grid; grid-template-columns: 1fr max-content max-content;
    padding: .35rem 0; border-top: 1px solid var(--line) } .nodes th, .nodes td { padding: 0 .4rem .1rem 0; border: 0 }
  .nodes td:last-child { grid-column: 1 / -1 } .nodes th + td:not(:empty)::before { content: "wave " } }
</style>
"#;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_that_is_older_than_the_last_round_says_so() {
        let (page, now) = (Page::default(), "2026-06-01T12:00:00Z".parse().unwrap());
        let told = "The last round failed, at 2026-06-01T12:00:00Z; what is below is older: the ledger: &lt;no&gt;";
        page.fail("the ledger: <no>", now);
        let first = page.get();
        assert!(first.starts_with(HEAD) && first.contains(told) && first.ends_with("</html>\n"), "{first}");
        page.set(format!("{HEAD}<header></header>\n{MAIN}pools</main>\n</html>\n"));
        assert!(!page.get().contains("failed"));
        // However many fail, it is said once.
        (0..3).for_each(|_| page.fail("the ledger: <no>", now));
        let older = page.get();
        assert_eq!((older.matches(told).count(), older.matches("pools</main>").count()), (1, 1), "{older}");
        page.set("new".to_owned());
        assert_eq!(&*page.get(), "new");
    }
}
