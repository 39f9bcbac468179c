//! Progress on stderr: bars on a terminal, plain lines elsewhere (they end in the kernel log), JSON lines
//! on request. Nothing here ever fails or blocks the work: a closed stderr is ignored, and what a pipe has no room for
//! is dropped.

use std::{
    io::{IsTerminal, stderr},
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressStyle};

use super::output;
use crate::execute::Observer;
use slipway_core::units::approx;

/// How progress is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum ProgressMode {
    /// Bars on a terminal, else plain lines.
    Auto,
    /// Bars.
    Bars,
    /// One line a step, and one every few seconds within it.
    Plain,
    /// One JSON object a line: `seq` counts from 1, `event` is `phase`, `step`, `bytes` or `note`.
    Json,
    /// Nothing.
    None,
}

/// Shows progress.
pub struct Progress {
    mode: ProgressMode,
    bar: Option<ProgressBar>,
    seq: u64,
    /// Lines that stderr had no room for.
    dropped: u64,
    total: u64,
    done: u64,
    begun: Instant,
    said: Instant,
}

/// Time between two lines within a step.
const INTERVAL: Duration = Duration::from_secs(2);

impl Progress {
    /// Settle `auto`.
    pub fn new(mode: ProgressMode) -> Self {
        let mode = match mode {
            ProgressMode::Auto if stderr().is_terminal() => ProgressMode::Bars,
            ProgressMode::Auto => ProgressMode::Plain,
            other => other,
        };
        let now = Instant::now();
        Progress { mode, bar: None, seq: 0, dropped: 0, total: 0, done: 0, begun: now, said: now }
    }

    /// A phase outside a plan, such as checking the payload.
    pub fn phase(&mut self, sentence: &str, bytes: u64) {
        self.begin(sentence, bytes);
        self.json("phase", &[("text", sentence.into()), ("total_bytes", bytes.into())]);
    }

    /// A text of several lines, as it is.
    pub fn text(&mut self, text: &str) {
        self.finish_bar();
        match self.mode {
            ProgressMode::Json => self.json("note", &[("text", text.into())]),
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
                let bar = ProgressBar::new(bytes).with_message(sentence.to_owned());
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

    /// A line that the reader may miss, but must not stop an install: not by a closed stderr, not by a pipe that nobody
    /// empties. Whoever reads again is told how much there was.
    fn line(&mut self, text: &str) {
        if self.dropped > 0 && self.mode != ProgressMode::Json {
            let told = format!("note: {} lines had no room here and were dropped\n", self.dropped);
            if output::write(&stderr(), told.as_bytes(), Duration::ZERO).is_err() {
                self.dropped += 1;
                return;
            }
            self.dropped = 0;
        }
        match output::write(&stderr(), format!("{text}\n").as_bytes(), Duration::ZERO) {
            Err(e) if e.kind() == std::io::ErrorKind::TimedOut => self.dropped += 1,
            _ => {}
        }
    }

    fn finish_bar(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish();
        }
    }

    fn json(&mut self, event: &str, fields: &[(&str, serde_json::Value)]) {
        if self.mode != ProgressMode::Json {
            return;
        }
        self.seq += 1;
        let mut object = serde_json::Map::new();
        object.insert("seq".to_owned(), self.seq.into());
        object.insert("event".to_owned(), event.into());
        object.extend(fields.iter().map(|(k, v)| ((*k).to_owned(), v.clone())));
        self.line(&serde_json::Value::Object(object).to_string());
    }
}

impl Observer for Progress {
    fn step(&mut self, number: usize, of: usize, sentence: &str, bytes: u64) {
        self.begin(&format!("[{number:>2}/{of}] {sentence}"), bytes);
        self.json(
            "step",
            &[("step", number.into()), ("of", of.into()), ("text", sentence.into()), ("total_bytes", bytes.into())],
        );
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
        self.json("bytes", &[("done_bytes", self.done.into()), ("total_bytes", self.total.into())]);
    }

    fn note(&mut self, text: &str) {
        self.finish_bar();
        match self.mode {
            ProgressMode::Json => self.json("note", &[("text", text.into())]),
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
