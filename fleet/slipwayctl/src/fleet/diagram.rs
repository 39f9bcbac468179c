//! The progress of rollouts, for people: a picture on a terminal, and plain lines elsewhere, one for each pool, wave and node.

use std::fmt::Write as _;

use super::status_report::{Member, MovedBytes, NodeStatus, Pool, Report, Stage, Wave};
use slipway_core::units::approx;
use slipway_fleet_objects::rollout::{FINISHED, INCOMPLETE};
use slipway_node_api::text::clean;

/// The abilities of the terminal.
#[derive(Clone, Copy, Debug)]
pub struct Style {
    /// Its columns.
    pub width: usize,
    /// True if colours are wanted.
    pub colours: bool,
}

/// Where nothing is to be shown.
const NO_POOL: &str = "There is no NodePool: no node is upgraded. `kubectl explain npool.spec` says what one has.";
/// Nodes, and grants, that are named one by one; of more it is said how many.
const NAMED: usize = 20;
/// The width of the names of waves, with their stage and the space behind.
const MARGIN: usize = 22;

const GREEN: &str = "32";
const YELLOW: &str = "33";
const RED: &str = "31";
const BOLD: &str = "1";
const DIM: &str = "2";

/// Each status, its sign, its colour, and what it means.
const SIGNS: [(NodeStatus, char, &str, &str); 8] = [
    (NodeStatus::Done, '#', GREEN, "done"),
    (NodeStatus::UnderWay, '>', YELLOW, "under way"),
    (NodeStatus::Waits, '.', DIM, "waits"),
    (NodeStatus::Failed, 'x', RED, "failed"),
    (NodeStatus::Ill, '!', RED, "not well"),
    (NodeStatus::Silent, '?', RED, "does not answer"),
    (NodeStatus::LeftOut, '-', DIM, "left out"),
    (NodeStatus::Gone, '_', DIM, "gone"),
];

fn sign(status: NodeStatus) -> (char, &'static str) {
    SIGNS.iter().find(|(of, ..)| *of == status).map_or((' ', DIM), |(_, sign, colour, _)| (*sign, *colour))
}

fn meaning(status: NodeStatus) -> &'static str {
    SIGNS.iter().find(|(of, ..)| *of == status).map_or("", |(.., means)| *means)
}

fn stage(wave: &Wave, pool: &Pool) -> &'static str {
    match wave.stage {
        Stage::Over => "over",
        Stage::Waits => "waits",
        Stage::GoesOn if wave.nodes.iter().all(|node| node.status == NodeStatus::Failed) => "failed",
        Stage::GoesOn => held(pool).unwrap_or("goes on"),
        Stage::Soaks => held(pool).unwrap_or("soaks"),
    }
}

/// Why no wave of a pool goes on, if none does.
fn held(pool: &Pool) -> Option<&'static str> {
    let rollout = pool.rollout.as_ref()?;
    let is_paused = pool.paused.is_some() || pool.state == "Paused";
    let held = [(rollout.denied.is_some(), "denied"), (rollout.aborted.is_some(), "aborted"), (is_paused, "paused")];
    held.into_iter().find(|(holds, _)| *holds).map(|(_, word)| word)
}

/// Plain lines, whatever their length: nothing is left out. Wide ones have more columns: image and payload, the status of
/// each node in one word, and its grant.
pub fn lines(report: &Report, is_wide: bool) -> String {
    let mut text = String::new();
    if report.pools.is_empty() {
        let _ = writeln!(text, "{}", no_pool(report));
    }
    report.not_understood.iter().for_each(|of| _ = writeln!(text, "{}", clean(&of.line())));
    report.kubernetes.iter().for_each(|of| _ = writeln!(text, "{}", clean(&of.line())));
    for pool in &report.pools {
        let (name, state, rollout) = (&pool.name, &pool.state, pool.rollout.as_ref());
        // Writing to a String does not fail.
        let _ = writeln!(text, "{name}  {state}  {} of {} done: {}", pool.done, pool.nodes, clean(&pool.message));
        rollout.iter().for_each(|of| _ = writeln!(text, "{name}  rollout {}, plan {}", clean(&of.name), of.plan));
        if let Some(of) = rollout.filter(|_| is_wide) {
            let _ = writeln!(text, "{name}  image {}, payload {}", clean(&of.image), of.payload);
        }
        remarks(pool).iter().for_each(|remark| _ = writeln!(text, "{name}  {}", clean(remark)));
        for wave in rollout.iter().flat_map(|of| &of.waves) {
            let number = wave.number;
            let soak = wave.soak.map(|soak| format!(", soak {soak}")).unwrap_or_default();
            let _ = writeln!(text, "{name}  wave {number}  {}{soak}", stage(wave, pool));
            wave.nodes.iter().for_each(|node| _ = writeln!(text, "{name}  wave {number}  {}", line(node, is_wide)));
        }
        pool.others.iter().for_each(|node| _ = writeln!(text, "{name}  no wave  {}", line(node, is_wide)));
    }
    report.held.iter().for_each(|held| _ = writeln!(text, "held  {}", clean(&held.line())));
    text
}

/// Why there is nothing to show.
fn no_pool(report: &Report) -> String {
    let Some(labels) = &report.selector else { return NO_POOL.to_owned() };
    clean(&format!("No NodePool has the labels {labels}: leave --selector out to see all."))
}

fn line(node: &Member, is_wide: bool) -> String {
    let means = meaning(node.status);
    let grant = node.token.map_or_else(|| "no grant".to_owned(), |token| format!("grant {token}"));
    let more = if is_wide { format!("  {means}  {grant}") } else { String::new() };
    clean(&format!("{}  {}{more}  {}", node.name, node.reason, message_of(node)))
}

/// The reason why it does not go, with its present step.
fn message_of(node: &Member) -> String {
    node.step.as_ref().map_or_else(|| node.message.clone(), |step| format!("{step}: {}", node.message))
}

/// The notes about a pool beside its state.
fn remarks(pool: &Pool) -> Vec<String> {
    let behind = pool.behind.then(|| "no controller has looked since the pool was changed".to_owned());
    let unattended = pool.unattended_since.map(|since| {
        format!(
            "no controller has looked since {since:.0}, so this may not be so any more: `kubectl --namespace slipway-fleet get \
             pods` shows whether one runs"
        )
    });
    let paused = pool.paused.as_ref().filter(|_| pool.state != "Paused").map(|word| format!("paused by {word}"));
    let skip = pool.skip.iter().map(|skip| format!("{} is left out by {}", skip.node, skip.word));
    let now = pool.run_now.as_ref().map(|now| format!("no window holds it back until {:.0}: {}", now.until, now.word));
    let MovedBytes { fetched, reused, written } = pool.moved;
    let [from_registry, from_slots, written] = [fetched, reused, written].map(approx);
    let said = || {
        format!("{from_registry} came from the registry, {from_slots} from the nodes' slots; {written} were written")
    };
    let moved = (fetched > 0).then(said);
    unattended.into_iter().chain(behind).chain(paused).chain(now).chain(skip).chain(moved).collect()
}

/// A picture: a sign for each node, and in words whatever is not as it should be.
pub fn picture(report: &Report, style: Style) -> String {
    let mut text = String::new();
    if report.pools.is_empty() {
        style.wrap(&no_pool(report), 0, &mut text);
    }
    report.not_understood.iter().for_each(|of| style.wrap(&clean(&of.line()), 0, &mut text));
    if let Some(of) = &report.kubernetes {
        style.wrap(&clean(&of.line()), 0, &mut text);
        text.push('\n');
    }
    for pool in &report.pools {
        style.pool(pool, &mut text);
        text.push('\n');
    }
    style.held(report, &mut text);
    let nodes = || report.pools.iter().flat_map(all);
    let used = SIGNS.iter().filter(|(status, ..)| nodes().any(|node| node.status == *status));
    let legend: Vec<String> = used.map(|(_, sign, _, means)| format!("{sign} {means}")).collect();
    style.wrap(&legend.join("   "), 0, &mut text);
    text
}

/// All nodes of a pool.
fn all(pool: &Pool) -> impl Iterator<Item = &Member> {
    let waves = pool.rollout.iter().flat_map(|of| &of.waves).flat_map(|wave| &wave.nodes);
    waves.chain(&pool.others)
}

impl Style {
    fn paint(self, text: &str, colour: &str) -> String {
        if self.colours { format!("\x1b[{colour}m{text}\x1b[0m") } else { text.to_owned() }
    }

    fn pool(self, pool: &Pool, text: &mut String) {
        let colour = match pool.state.as_str() {
            "UpToDate" | FINISHED => GREEN,
            "Denied" | "Aborted" | "Invalid" | INCOMPLETE => RED,
            _ => YELLOW,
        };
        let (name, state) = (clean(&pool.name), clean(&pool.state));
        let counts = format!("{} of {} nodes done", pool.done, pool.nodes);
        let _ = writeln!(text, "{}  {}  {counts}", self.paint(&name, BOLD), self.paint(&state, colour));
        if let Some(of) = &pool.rollout {
            self.wrap(&format!("rollout {}, plan {}", of.name, of.plan), 2, text);
            self.wrap(&format!("image {}", of.image), 2, text);
        }
        self.wrap(&pool.message, 2, text);
        remarks(pool).iter().for_each(|remark| self.wrap(remark, 2, text));
        for wave in pool.rollout.iter().flat_map(|of| &of.waves) {
            let soak = wave.soak.map(|soak| format!(" ({soak})")).filter(|_| wave.stage == Stage::Soaks);
            let title = format!("wave {}  {}{}", wave.number, stage(wave, pool), soak.unwrap_or_default());
            self.row(&title, &wave.nodes, text);
        }
        if !pool.others.is_empty() {
            self.row("not in the plan", &pool.others, text);
        }
        self.reasons(pool, text);
    }

    /// What the ledger holds.
    fn held(self, report: &Report, text: &mut String) {
        report.held.iter().take(NAMED).for_each(|held| self.wrap(&format!("held  {}", held.line()), 0, text));
        if let Some(left) = report.held.len().checked_sub(NAMED).filter(|left| *left > 0) {
            let _ = writeln!(text, "and {left} more are held; without a terminal each has its line");
        }
        if !report.held.is_empty() {
            text.push('\n');
        }
    }

    /// A sign for each node, in as many lines as that takes.
    fn row(self, title: &str, nodes: &[Member], text: &mut String) {
        let room = self.width.saturating_sub(MARGIN + 2).max(10);
        let mut title = title.to_owned();
        for some in nodes.chunks(room) {
            let _ = write!(text, "  {title:<MARGIN$}");
            // One colour for neighbours of one kind.
            for same in some.chunk_by(|a, b| a.status == b.status) {
                let (sign, colour) = same.first().map_or((' ', DIM), |node| sign(node.status));
                text.push_str(&self.paint(&sign.to_string().repeat(same.len()), colour));
            }
            text.push('\n');
            title.clear();
        }
    }

    /// Why nodes are not done: each that needs a person's eye, and the others by their reason.
    fn reasons(self, pool: &Pool, text: &mut String) {
        let mut groups: Vec<(Vec<&Member>, String)> = Vec::new();
        for node in all(pool).filter(|node| !matches!(node.status, NodeStatus::Done | NodeStatus::Gone)) {
            let says = message_of(node);
            match groups.iter_mut().find(|(nodes, of)| *of == says && nodes.iter().all(|of| of.status == node.status)) {
                Some((nodes, _)) => nodes.push(node),
                None => groups.push((vec![node], says)),
            }
        }
        // Faults come first, then nodes under way, then nodes that wait.
        let weight = |status: NodeStatus| match status {
            NodeStatus::Failed | NodeStatus::Ill | NodeStatus::Silent => 0,
            NodeStatus::UnderWay => 1,
            _ => 2,
        };
        groups.sort_by_key(|(nodes, _)| nodes.first().map_or(3, |node| weight(node.status)));
        let left: usize = groups.iter().skip(NAMED).map(|(nodes, _)| nodes.len()).sum();
        for (nodes, says) in groups.iter().take(NAMED) {
            let Some(first) = nodes.first() else { continue };
            let (sign, colour) = sign(first.status);
            let name = match nodes.len() {
                1 => first.name.clone(),
                many => format!("{} and {} more", first.name, many - 1),
            };
            let before = text.len();
            self.wrap(&format!("{sign} {name}: {says}"), 2, text);
            let painted = self.paint(&sign.to_string(), colour);
            text.replace_range(before + 2..before + 3, &painted);
        }
        if left > 0 {
            let _ = writeln!(text, "    and {left} more nodes; without a terminal each has its line");
        }
    }

    /// A sentence in lines that fit; all but the first stand further to the right.
    fn wrap(self, sentence: &str, margin: usize, text: &mut String) {
        let room = self.width.max(20);
        let (mut line, mut width) = (" ".repeat(margin), margin);
        let mut is_empty = true;
        let sentence = clean(sentence);
        for word in sentence.split(' ') {
            let long = word.chars().count();
            if !is_empty && width + 1 + long > room {
                let _ = writeln!(text, "{line}");
                (line, width, is_empty) = (" ".repeat(margin + 2), margin + 2, true);
            }
            if !is_empty {
                line.push(' ');
                width += 1;
            }
            line.push_str(word);
            (width, is_empty) = (width + long, false);
        }
        let _ = writeln!(text, "{line}");
    }
}

#[cfg(test)]
mod tests {
    use slipway_core::digest::Sha256;

    use super::{
        super::{
            cluster_wide::{Held, Purpose},
            status_report::Followed,
        },
        *,
    };

    fn node(name: &str, status: NodeStatus, reason: &str, message: &str) -> Member {
        let (name, reason, message) = (name.to_owned(), reason.to_owned(), message.to_owned());
        Member { name, status, reason, message, step: None, token: None }
    }

    fn wave(number: u32, stage: Stage, nodes: Vec<Member>) -> Wave {
        Wave { number, stage, soak: None, nodes }
    }

    fn report() -> Report {
        let done = |name: &str| node(name, NodeStatus::Done, "Done", "it runs the payload, and is well");
        let waits = |name: &str| node(name, NodeStatus::Waits, "After", "n4 is before it, and cannot go yet");
        let mut under_way = node("n4", NodeStatus::UnderWay, "UnderWay", "it is being upgraded, with the grant 6");
        under_way.step = Some("drain".to_owned());
        let second = vec![done("n2"), done("n3"), under_way, waits("n5"), waits("n6"), waits("n7")];
        let third = vec![node("n8", NodeStatus::Failed, "Failed", "it failed: no\x1b[2J boot")];
        let waves =
            vec![wave(1, Stage::Over, vec![done("n1")]), wave(2, Stage::GoesOn, second), wave(3, Stage::Waits, third)];
        let rollout = Followed {
            name: "workers-1".to_owned(),
            image: "docker://registry.example/os:2".to_owned(),
            payload: Sha256([1; 32]),
            plan: Sha256([2; 32]),
            denied: None,
            aborted: None,
            approvals: Vec::new(),
            waves,
        };
        let pool = Pool {
            name: "workers".to_owned(),
            state: "Running".to_owned(),
            message: "n4: it is being upgraded, with the grant 6".to_owned(),
            nodes: 8,
            done: 3,
            behind: true,
            unattended_since: None,
            paused: None,
            run_now: None,
            skip: Vec::new(),
            moved: MovedBytes { fetched: 40 << 20, reused: 900 << 20, written: 300 << 20 },
            rollout: Some(rollout),
            others: Vec::new(),
        };
        Report {
            schema: 1,
            kind: "FleetStatus",
            pools: vec![pool],
            held: Vec::new(),
            not_understood: Vec::new(),
            selector: None,
            kubernetes: None,
        }
    }

    #[test]
    fn a_rollout_as_a_picture() {
        let expected = "\
workers  Running  3 of 8 nodes done
  rollout workers-1, plan
    0202020202020202020202020202020202020202020202020202020202020202
  image docker://registry.example/os:2
  n4: it is being upgraded, with the grant 6
  no controller has looked since the pool was changed
  40 MiB came from the registry, 900 MiB from the nodes' slots; 300
    MiB were written
  wave 1  over          #
  wave 2  goes on       ##>...
  wave 3  waits         x
  x n8: it failed: no [2J boot
  > n4: drain: it is being upgraded, with the grant 6
  . n5 and 2 more: n4 is before it, and cannot go yet

# done   > under way   . waits   x failed
";
        assert_eq!(picture(&report(), Style { width: 70, colours: false }), expected);
    }

    #[test]
    fn what_is_held_is_shown_also_where_no_pool_is() {
        let held = |token: u64| Held {
            purpose: Purpose::Upgrade,
            token,
            node: Some("c1".to_owned()),
            pool: Some("control".to_owned()),
            since: "2026-06-01T11:00:00Z".parse().unwrap(),
            message: "its Node is gone".to_owned(),
            command: String::new(),
        };
        let mut report = Report { pools: Vec::new(), held: (1..24).map(held).collect(), ..report() };
        let text = lines(&report, false);
        assert!(text.starts_with(&format!("{NO_POOL}\nheld  grant 1  c1 of the pool control, since 2026-")), "{text}");
        assert_eq!(text.lines().count(), 24);
        let text = picture(&report, Style { width: 100, colours: false });
        assert!(text.contains("\nheld  grant 20 ") && text.contains("\nand 3 more are held; "), "{text}");
        // Whose labels choose no pool is not told that there is none.
        report.selector = Some("team=\x1b[2Jweb".to_owned());
        let wanted = "No NodePool has the labels team= [2Jweb: leave --selector out to see all.\n";
        assert!(lines(&report, false).starts_with(wanted));
        assert!(picture(&report, Style { width: 100, colours: false }).starts_with(wanted));
    }

    #[test]
    fn no_line_is_wider_than_the_terminal() {
        let mut report = report();
        let many = (0..150).map(|n| node(&format!("m{n}"), NodeStatus::Done, "Done", "")).collect();
        report.pools[0].rollout.as_mut().unwrap().waves.push(wave(4, Stage::Waits, many));
        for width in [40, 80, 200] {
            let text = picture(&report, Style { width, colours: false });
            let fits = |line: &&str| line.chars().count() <= width || line.trim_start().len() == 64;
            assert!(text.lines().all(|line| fits(&line)), "{width}: {text}");
            assert_eq!(text.matches('#').count(), 154, "each node, and the legend");
        }
    }

    #[test]
    fn colours_change_nothing_but_colours() {
        let style = Style { width: 70, colours: true };
        let painted = picture(&report(), style);
        assert!(painted.contains("\x1b[31mx\x1b[0m n8") && painted.contains("\x1b[32m##\x1b[0m"), "{painted:?}");
        let mut bare = painted.clone();
        for colour in [GREEN, YELLOW, RED, BOLD, DIM, "0"] {
            bare = bare.replace(&format!("\x1b[{colour}m"), "");
        }
        assert_eq!(bare, picture(&report(), Style { colours: false, ..style }));
        // A node's own text does not: it has no escape of its own.
        assert!(!bare.contains('\x1b'), "{bare:?}");
    }

    #[test]
    fn lines_leave_nothing_out() {
        let text = lines(&report(), false);
        let plan = "02".repeat(32);
        let first = "workers  Running  3 of 8 done: n4: it is being upgraded, with the grant 6\n";
        assert!(text.starts_with(&format!("{first}workers  rollout workers-1, plan {plan}\n")), "{text}");
        assert!(text.contains("\nworkers  wave 2  goes on\n"), "{text}");
        assert!(text.contains("\nworkers  wave 2  n4  UnderWay  drain: it is being upgraded"), "{text}");
        assert_eq!(text.lines().count(), 1 + 1 + 2 + 3 + 8);
        let mut report = report();
        report.pools[0].rollout.as_mut().unwrap().waves[1].nodes[2].token = Some(6);
        let wide = lines(&report, true);
        assert!(wide.contains("\nworkers  image docker://registry.example/os:2, payload 0101"), "{wide}");
        assert!(wide.contains("\nworkers  wave 2  n4  UnderWay  under way  grant 6  drain: it is"), "{wide}");
        assert!(wide.contains("\nworkers  wave 3  n8  Failed  failed  no grant  it failed: no [2J boot\n"), "{wide}");
    }

    #[test]
    fn no_wave_goes_on_in_a_pool_where_nothing_does() {
        type Hold = fn(&mut Pool);
        let holds: [(&str, Hold); 4] = [
            ("goes on", |_| ()),
            ("paused", |pool| pool.state = "Paused".to_owned()),
            ("aborted", |pool| pool.rollout.as_mut().unwrap().aborted = Some("eve: the wrong image".to_owned())),
            ("denied", |pool| pool.rollout.as_mut().unwrap().denied = Some("n1: no boot".to_owned())),
        ];
        let mut report = report();
        for (word, hold) in holds {
            hold(&mut report.pools[0]);
            let text = lines(&report, false);
            assert!(text.contains(&format!("\nworkers  wave 2  {word}\n")), "{word}: {text}");
            assert!(
                text.contains("\nworkers  wave 1  over\n") && text.contains("\nworkers  wave 3  waits\n"),
                "{text}"
            );
        }
    }
}
