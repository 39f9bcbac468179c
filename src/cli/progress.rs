//! Progress on stderr: bars on a terminal, plain lines elsewhere (machined copies them to the kernel log), JSON lines
//! on request. Showing progress never fails and never delays the work: a closed stderr is ignored, and lines that a
//! full pipe has no room for are dropped.

use std::{
    io::{ErrorKind, IsTerminal, stderr},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant, SystemTime},
};

use console::{Term, measure_text_width};

use super::{
    colour, output,
    pace::{Pace, in_words},
    terminal::{columns, cut, is_dumb},
};
use slipway_core::{
    report::{EVENT_SCHEMA, Event, EventLine, Observer, WriterProgress},
    text::{printable_lines, wrap},
    units::approx,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum ProgressMode {
    /// Progress bars on a terminal, else plain lines.
    Auto,
    /// The same as `auto`.
    Bars,
    /// One line for each step, and one every few seconds while it runs.
    Plain,
    /// One JSON object on each line. `seq` counts from 1; `event` is `begin`, `phase`, `step`, `bytes`, `note`, `wait`,
    /// `done` or `failed`. Lines that do not begin with `{` are for people: the `error: ` of a failed run.
    Json,
    /// No progress, but notes.
    None,
}

pub struct Progress {
    lines: Lines,
    total: u64,
    done: u64,
    // Bytes that were fetched, and that were reused.
    moved: Option<(u64, u64)>,
    begun: Instant,
    said: Instant,
    pace: Pace,
    // Of the plan that is carried out, if one is.
    plan: Option<Whole>,
    // A bar stands on the line of the cursor.
    drawn: bool,
}

/// All steps of a plan together: one bar shows them.
struct Whole {
    total: u64,
    /// Of the steps before the one that runs.
    before: u64,
    begun: Instant,
    pace: Pace,
}

/// Where the lines go. The thread that waits for signals has a copy, for the last one.
#[derive(Clone)]
pub struct Lines {
    mode: ProgressMode,
    seq: Arc<AtomicU64>,
    dropped: Arc<AtomicU64>,
}

/// Time between two lines while a step runs.
const INTERVAL: Duration = Duration::from_secs(2);
/// Time between two pictures of a bar.
const FRAME: Duration = Duration::from_millis(100);

impl Progress {
    pub fn new(mode: ProgressMode) -> Self {
        let mode = match mode {
            ProgressMode::Auto | ProgressMode::Bars if stderr().is_terminal() && !is_dumb() => ProgressMode::Bars,
            ProgressMode::Auto | ProgressMode::Bars => ProgressMode::Plain,
            other => other,
        };
        let now = Instant::now();
        let lines = Lines { mode, seq: Arc::default(), dropped: Arc::default() };
        Progress {
            lines,
            total: 0,
            done: 0,
            moved: None,
            begun: now,
            said: now,
            pace: Pace::default(),
            plan: None,
            drawn: false,
        }
    }

    pub fn lines(&self) -> Lines {
        self.lines.clone()
    }

    /// Show a text of several lines unchanged.
    pub fn text(&mut self, text: &str) {
        self.take_bar_away();
        self.lines.json(|| Event::Note { text: text.to_owned() });
        if self.lines.is_for_people() {
            self.lines.line(text.trim_end());
        }
    }

    pub fn begin_run(&self, verb: &str) {
        let version = env!("CARGO_PKG_VERSION").to_owned();
        self.lines.json(|| Event::Begin { schema: EVENT_SCHEMA, verb: verb.to_owned(), version });
    }

    pub fn end_run(&mut self, event: Event) {
        self.finish_bar();
        self.lines.json(|| event);
    }

    fn begin(&mut self, sentence: &str, bytes: u64) {
        if let Some(plan) = &mut self.plan {
            plan.before += self.total;
            self.take_bar_away();
        } else {
            self.finish_bar();
        }
        (self.total, self.done, self.moved, self.begun) = (bytes, 0, None, Instant::now());
        (self.said, self.pace) = (self.begun, Pace::default());
        match self.lines.mode {
            ProgressMode::Plain => self.lines.line(sentence),
            ProgressMode::Bars => {
                self.lines.line(&cut(&printable_lines(sentence), width()));
                self.draw();
            }
            _ => {}
        }
    }

    fn draw(&mut self) {
        let (done, total, pace) = match &self.plan {
            Some(plan) => (plan.before + self.done.min(self.total), plan.total, &plan.pace),
            None => (self.done, self.total, &self.pace),
        };
        if self.lines.mode == ProgressMode::Bars && total > 0 {
            let width = width();
            self.lines.bytes(&format!("\r{:<width$}", bar(width, done, total, self.moved, pace)));
            self.drawn = true;
        }
    }

    /// It stays where it is.
    fn finish_bar(&mut self) {
        if self.drawn {
            self.draw();
            self.lines.bytes("\n");
            self.drawn = false;
        }
    }

    /// A line comes in its place. No escape is needed for that, so every terminal can show it.
    fn take_bar_away(&mut self) {
        if self.drawn {
            self.lines.bytes(&format!("\r{:width$}\r", "", width = width()));
            self.drawn = false;
        }
    }

    fn say(&mut self, text: &str) {
        let drawn = self.drawn;
        self.take_bar_away();
        match self.lines.mode {
            ProgressMode::Plain => self.lines.line(text),
            ProgressMode::Bars => self.lines.line(&wrap("", &printable_lines(text), width(), 2).join("\n")),
            _ => {}
        }
        if drawn {
            self.draw();
        }
    }
}

// A terminal that is written to in its last column may go on to the next line.
fn width() -> usize {
    usize::from(columns(&Term::stderr()).unwrap_or(80).max(2) - 1)
}

/// `  [====>     ] 12.3 MiB of 118.4 MiB, 3.1 MiB/s, 2 min 10 s left`, with as much of it as there is room for.
fn bar(width: usize, done: u64, total: u64, moved: Option<(u64, u64)>, pace: &Pace) -> String {
    const LEAST: usize = "  [>    ] ".len();
    const LONGEST: usize = 40;
    let percent = format!("{} %", WriterProgress::percent(done, total).unwrap_or_default());
    let sizes = format!("{} of {}", approx(done), approx(total));
    let rate = pace.rate().map(|rate| format!("{}/s", approx(rate)));
    let left = pace.left(total).filter(|_| done < total).map(|left| format!("{} left", in_words(left)));
    let texts = [
        [Some(sizes.clone()), moved.map(in_parts).or_else(|| rate.clone()), left.clone()],
        [Some(sizes.clone()), rate, left.clone()],
        [Some(sizes), left.clone(), None],
        [Some(percent.clone()), left, None],
        [Some(percent.clone()), None, None],
    ];
    let texts = texts.map(|parts| parts.into_iter().flatten().collect::<Vec<_>>().join(", "));
    let Some(text) = texts.into_iter().find(|text| LEAST + measure_text_width(text) <= width) else {
        return cut(&percent, width);
    };
    let inside = (width - measure_text_width(&text) - "  [] ".len()).min(LONGEST);
    let filled = (u128::from(done.min(total)) * inside as u128 / u128::from(total.max(1))) as usize;
    let head = if filled < inside { ">" } else { "" };
    format!("  [{:<inside$}] {text}", format!("{}{head}", "=".repeat(filled)))
}

/// `11.1 MiB fetched and 213.0 MiB reused`.
fn in_parts((fetched, reused): (u64, u64)) -> String {
    format!("{} fetched and {} reused", approx(fetched), approx(reused))
}

impl Lines {
    fn is_for_people(&self) -> bool {
        matches!(self.mode, ProgressMode::Plain | ProgressMode::Bars)
    }

    /// The last event of all, from another thread.
    pub fn interrupted(&self, event: Event) {
        if self.mode == ProgressMode::Bars {
            self.bytes("\n");
        }
        self.json(|| event);
    }

    // The reader may miss a line. A closed stderr, or a pipe without a reader, must not stop an install. A reader who comes
    // back is told how many lines are missing.
    fn line(&self, text: &str) {
        let dropped = self.dropped.load(Ordering::SeqCst);
        if dropped > 0 && self.mode != ProgressMode::Json {
            let told = format!("note: {dropped} lines were dropped, because they were not read\n");
            if output::write(&stderr(), told.as_bytes(), Duration::ZERO).is_err() {
                self.dropped.fetch_add(1, Ordering::SeqCst);
                return;
            }
            self.dropped.store(0, Ordering::SeqCst);
        }
        let text =
            if self.mode == ProgressMode::Json { output::json(text) } else { colour::stderr(output::human(text)) };
        match output::write(&stderr(), text.as_bytes(), Duration::ZERO) {
            Err(e) if e.kind() == ErrorKind::TimedOut => {
                self.dropped.fetch_add(1, Ordering::SeqCst);
            }
            _ => {}
        }
    }

    fn bytes(&self, text: &str) {
        let _ = output::write(&stderr(), text.as_bytes(), Duration::ZERO);
    }

    fn json(&self, event: impl FnOnce() -> Event) {
        if self.mode != ProgressMode::Json {
            return;
        }
        let seq = self.seq.fetch_add(1, Ordering::SeqCst) + 1;
        let time = Some(humantime::format_rfc3339_millis(SystemTime::now()).to_string());
        // Serialization cannot fail: the event has only strings and numbers.
        let line = serde_json::to_string(&EventLine { seq, time, event: event() }).unwrap_or_default();
        self.line(&line);
    }
}

impl Observer for Progress {
    fn plan(&mut self, bytes: u64) {
        self.finish_bar();
        (self.total, self.done) = (0, 0);
        self.plan = Some(Whole { total: bytes, before: 0, begun: Instant::now(), pace: Pace::default() });
    }

    fn phase(&mut self, text: &str, bytes: u64) {
        if self.plan.is_some() {
            self.finish_bar();
            self.plan = None;
        }
        self.begin(text, bytes);
        self.lines.json(|| Event::Phase { text: text.to_owned(), total_bytes: bytes });
    }

    fn step(&mut self, step: usize, of: usize, text: &str, bytes: u64) {
        self.begin(&format!("[{step:>2}/{of}] {text}"), bytes);
        self.lines.json(|| Event::Step { step, of, text: text.to_owned(), total_bytes: bytes });
    }

    fn advance(&mut self, bytes: u64) {
        self.done = WriterProgress::done(self.done + bytes, self.total);
        self.pace.at(self.begun.elapsed(), self.done);
        if let Some(plan) = &mut self.plan {
            plan.pace.at(plan.begun.elapsed(), plan.before + self.done.min(self.total));
        }
        let due = if self.lines.mode == ProgressMode::Bars { FRAME } else { INTERVAL };
        if self.said.elapsed() < due {
            return;
        }
        self.said = Instant::now();
        self.draw();
        let (done, total) = (self.done, self.total);
        if self.lines.mode == ProgressMode::Plain
            && let Some(percent) = WriterProgress::percent(done, total)
        {
            let left =
                self.pace.left(total).map_or_else(String::new, |left| format!(", about {} left", in_words(left)));
            let parts = self.moved.map_or_else(String::new, |moved| format!(", {}", in_parts(moved)));
            self.lines.line(&format!("        {} of {} ({percent} %){parts}{left}", approx(done), approx(total)));
        }
        let (fetched_bytes, reused_bytes) = self.moved.unzip();
        self.lines.json(|| Event::Bytes { done_bytes: done, total_bytes: total, fetched_bytes, reused_bytes });
    }

    fn moved(&mut self, fetched: u64, reused: u64) {
        self.moved = Some((fetched, reused));
    }

    fn note(&mut self, text: &str) {
        self.lines.json(|| Event::Note { text: text.to_owned() });
        match self.lines.mode {
            // It is no progress: who wants none is warned all the same.
            ProgressMode::None => self.lines.line(&format!("note: {text}")),
            _ => self.say(&format!("note: {text}")),
        }
    }

    fn waits(&mut self, text: &str) {
        self.lines.json(|| Event::Wait { text: text.to_owned() });
        self.say(text);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.finish_bar();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_bar_fits_and_tells_what_there_is_room_for() {
        let mut pace = Pace::default();
        pace.at(Duration::from_secs(5), 50 * MIB);
        let at = |width| bar(width, 50 * MIB, 1350 * MIB, None, &pace);
        assert_eq!(
            at(99),
            format!("  [={}] 50 MiB of 1350 MiB, 10 MiB/s, 2 min 10 s left", format_args!(">{:38}", ""))
        );
        let in_parts = bar(99, 50 * MIB, 1350 * MIB, Some((MIB, 48 * MIB)), &pace);
        assert!(
            in_parts.ends_with("] 50 MiB of 1350 MiB, 1 MiB fetched and 48 MiB reused, 2 min 10 s left"),
            "{in_parts}"
        );
        assert_eq!(at(79), "  [=>                           ] 50 MiB of 1350 MiB, 10 MiB/s, 2 min 10 s left");
        assert_eq!(at(39), "  [>             ] 3 %, 2 min 10 s left");
        assert_eq!(at(15), "  [>      ] 3 %");
        assert_eq!(at(5), "3 %");
        for width in 1..200 {
            for (done, total) in [(0, 1), (50 * MIB, 50 * MIB), (60 * MIB, 50 * MIB), (1, u64::MAX)] {
                for moved in [None, Some((done, total))] {
                    let text = bar(width, done, total, moved, &pace);
                    assert!(measure_text_width(&text) <= width, "{text:?} in {width}");
                }
            }
        }
        assert_eq!(bar(30, 7, 7, None, &Pace::default()), "  [=======] 7 bytes of 7 bytes");
    }
}
