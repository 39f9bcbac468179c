//! Progress on stderr: bars on a terminal, plain lines elsewhere (machined copies them to the kernel log), JSON lines
//! on request. Showing progress never fails and never delays the work: a closed stderr is ignored, and lines that a
//! full pipe has no room for are dropped.

use std::{
    io::{IsTerminal, stderr},
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressStyle};

use super::output;
use slipway_core::{
    report::{Event, EventLine, Observer},
    text::printable_lines,
    units::approx,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum ProgressMode {
    /// Progress bars on a terminal, else plain lines.
    Auto,
    /// Progress bars.
    Bars,
    /// One line for each step, and one every few seconds while it runs.
    Plain,
    /// One JSON object on each line. `seq` counts from 1; `event` is `phase`, `step`, `bytes` or `note`.
    Json,
    /// No progress.
    None,
}

pub struct Progress {
    mode: ProgressMode,
    bar: Option<ProgressBar>,
    seq: u64,
    dropped: u64,
    total: u64,
    done: u64,
    begun: Instant,
    said: Instant,
}

/// Time between two lines while a step runs.
const INTERVAL: Duration = Duration::from_secs(2);

impl Progress {
    pub fn new(mode: ProgressMode) -> Self {
        let mode = match mode {
            ProgressMode::Auto if stderr().is_terminal() => ProgressMode::Bars,
            ProgressMode::Auto => ProgressMode::Plain,
            other => other,
        };
        let now = Instant::now();
        Progress { mode, bar: None, seq: 0, dropped: 0, total: 0, done: 0, begun: now, said: now }
    }

    /// Show a text of several lines unchanged.
    pub fn text(&mut self, text: &str) {
        self.finish_bar();
        match self.mode {
            ProgressMode::Json => self.json(Event::Note { text: text.to_owned() }),
            ProgressMode::None => {}
            _ => self.line(text.trim_end()),
        }
    }

    fn begin(&mut self, sentence: &str, bytes: u64) {
        self.finish_bar();
        (self.total, self.done, self.begun) = (bytes, 0, Instant::now());
        self.said = self.begun;
        match self.mode {
            ProgressMode::Plain => self.line(sentence),
            ProgressMode::Bars if bytes > 0 => {
                let bar = ProgressBar::new(bytes).with_message(printable_lines(sentence));
                let template = "{msg}\n  [{bar:40}] {binary_bytes}/{binary_total_bytes} {binary_bytes_per_sec} {eta}";
                if let Ok(style) = ProgressStyle::with_template(template) {
                    bar.set_style(style.progress_chars("=> "));
                }
                self.bar = Some(bar);
            }
            ProgressMode::Bars => self.line(sentence),
            _ => {}
        }
    }

    // The reader may miss a line. A closed stderr, or a pipe that nobody empties, must not stop an install. A reader
    // who comes back is told how many lines are missing.
    fn line(&mut self, text: &str) {
        if self.dropped > 0 && self.mode != ProgressMode::Json {
            let told = format!("note: {} lines were dropped, because nobody read them\n", self.dropped);
            if output::write(&stderr(), told.as_bytes(), Duration::ZERO).is_err() {
                self.dropped += 1;
                return;
            }
            self.dropped = 0;
        }
        let text = if self.mode == ProgressMode::Json { output::json(text) } else { output::human(text) };
        match output::write(&stderr(), text.as_bytes(), Duration::ZERO) {
            Err(e) if e.kind() == std::io::ErrorKind::TimedOut => self.dropped += 1,
            _ => {}
        }
    }

    fn finish_bar(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish();
        }
    }

    fn json(&mut self, event: Event) {
        if self.mode != ProgressMode::Json {
            return;
        }
        self.seq += 1;
        // Serialization cannot fail: the event has only strings and numbers.
        let line = serde_json::to_string(&EventLine { seq: self.seq, event }).unwrap_or_default();
        self.line(&line);
    }
}

impl Observer for Progress {
    fn phase(&mut self, text: &str, bytes: u64) {
        self.begin(text, bytes);
        self.json(Event::Phase { text: text.to_owned(), total_bytes: bytes });
    }

    fn step(&mut self, step: usize, of: usize, text: &str, bytes: u64) {
        self.begin(&format!("[{step:>2}/{of}] {text}"), bytes);
        self.json(Event::Step { step, of, text: text.to_owned(), total_bytes: bytes });
    }

    fn advance(&mut self, bytes: u64) {
        self.done += bytes;
        if let Some(bar) = &self.bar {
            bar.set_position(self.done);
        }
        if self.said.elapsed() < INTERVAL {
            return;
        }
        self.said = Instant::now();
        if self.mode == ProgressMode::Plain && self.total > 0 {
            let (done, total) = (self.done.max(1), self.total);
            let left = u128::from(total.saturating_sub(done)) * self.begun.elapsed().as_millis() / u128::from(done);
            self.line(&format!(
                "        {} of {} ({} %), about {} s left",
                approx(done),
                approx(total),
                done * 100 / total,
                left.div_ceil(1000)
            ));
        }
        self.json(Event::Bytes { done_bytes: self.done, total_bytes: self.total });
    }

    fn note(&mut self, text: &str) {
        self.finish_bar();
        match self.mode {
            ProgressMode::Json => self.json(Event::Note { text: text.to_owned() }),
            ProgressMode::None => {}
            _ => self.line(&format!("note: {text}")),
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.finish_bar();
    }
}
