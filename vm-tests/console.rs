//! The serial console of a running machine: wait for what it says, fail with what it said, switch the machine off.

use std::{
    io::{Read, Write as _},
    process::{Child, ChildStdin},
    sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    thread,
    time::{Duration, Instant},
};

use tempfile::{NamedTempFile, TempDir};

use crate::{debugger, firmware::Connection, times};

/// After what time a boot, or a job in a guest, hangs. A boot takes about ten seconds on an idle machine, and some tests
/// run beside each other.
pub const LIMIT: Duration = Duration::from_secs(900);
/// Lines of the serial console that a failure shows.
const TAIL_LINES: usize = 60;
/// After any of these nothing that a test may wait for comes any more.
const DEAD_ENDS: [&str; 10] = [
    "SLIPWAY-OK",
    "SLIPWAY-RUN",
    "SLIPWAY-FAIL",
    "SLIPWAY-STAY",
    "SLIPWAY-UNHEALTHY",
    "Kernel panic",
    "slipway: no slot can be booted",
    "grub>",
    "grub rescue>",
    "Interactive Shell",
];

/// Name of the socket for a debugger.
pub const SOCKET: &str = "gdb";

/// Send on what a pipe brings until it is closed.
fn forward(pipe: Option<impl Read + Send + 'static>, to: Sender<Vec<u8>>) {
    let mut pipe = pipe.expect("the pipe was asked for");
    thread::spawn(move || {
        let mut buf = [0; 4096];
        while let Ok(n @ 1..) = pipe.read(&mut buf) {
            if to.send(buf[..n].to_vec()).is_err() {
                break;
            }
        }
    });
}

/// The serial console of a running machine. The machine is killed when this is dropped.
pub struct Console {
    name: &'static str,
    child: Child,
    terminal: ChildStdin,
    output: Receiver<Vec<u8>>,
    log: Vec<u8>,
    /// Bytes of the log that have been looked at, up to the end of a line.
    seen: usize,
    started: Instant,
    _vars: Option<NamedTempFile>,
    debugger: Option<TempDir>,
    pub keyboard: Option<Connection>,
}

impl Console {
    /// Of a machine that has just been started, with what must live as long as it.
    pub fn new(name: &'static str, mut child: Child, vars: Option<NamedTempFile>, debugger: Option<TempDir>) -> Self {
        let (sender, output) = channel();
        forward(child.stdout.take(), sender.clone());
        forward(child.stderr.take(), sender);
        let terminal = child.stdin.take().expect("the pipe was asked for");
        let (log, seen, started) = (Vec::new(), 0, Instant::now());
        Console { name, child, terminal, output, log, seen, started, _vars: vars, debugger, keyboard: None }
    }

    /// Wait for a line with this text; the line. Fails when it cannot come any more.
    #[track_caller]
    pub fn wait_for(&mut self, text: &str) -> String {
        let deadline = Instant::now() + LIMIT;
        loop {
            while let Some(line) = self.next_line() {
                if line.contains(text) {
                    return line;
                }
                if let Some(end) = DEAD_ENDS.iter().find(|end| line.contains(*end)) {
                    self.fail(&format!("`{end}` instead of `{text}`"));
                }
            }
            // A prompt is the beginning of a line that never ends.
            let rest = plain(&self.log[self.seen..]);
            if let Some(prompt) = DEAD_ENDS.iter().find(|end| end.ends_with('>') && rest.contains(*end)) {
                self.fail(&format!("a prompt, `{prompt}`, instead of `{text}`"));
            }
            match self.output.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(bytes) => self.log.extend(bytes),
                Err(RecvTimeoutError::Timeout) => self.fail(&format!("no `{text}` within {} s", LIMIT.as_secs())),
                Err(RecvTimeoutError::Disconnected) => self.fail(&format!("the machine ended without `{text}`")),
            }
        }
    }

    /// Press these keys again and again until a text stands on the console. Fails when it cannot come any more.
    #[track_caller]
    pub fn press_until(&mut self, keys: &[&str], text: &str) {
        let deadline = Instant::now() + LIMIT;
        for (pressed, key) in keys.iter().cycle().enumerate() {
            let log = plain(&self.log);
            if log.contains(text) {
                return;
            }
            if let Some(end) = DEAD_ENDS.iter().find(|end| log.contains(*end)) {
                self.fail(&format!("`{end}` instead of `{text}`, although a key was pressed {pressed} times"));
            }
            let keyboard = self.keyboard.as_mut().expect("the machine was started with a keyboard");
            keyboard.say(&format!(
                r#"{{"execute":"send-key","arguments":{{"keys":[{{"type":"qcode","data":"{key}"}}],"hold-time":50}}}}"#
            ));
            match self.output.recv_timeout(Duration::from_millis(100)) {
                Ok(bytes) => self.log.extend(bytes),
                Err(RecvTimeoutError::Timeout) if Instant::now() < deadline => {}
                Err(_) => self.fail(&format!("no `{text}`")),
            }
        }
    }

    /// Wait for the beginning of a line that ends only with an answer.
    #[track_caller]
    pub fn wait_for_prompt(&mut self, text: &str) {
        let deadline = Instant::now() + LIMIT;
        loop {
            // Another program may have written behind it, and ended the line.
            while let Some(line) = self.next_line() {
                if line.contains(text) {
                    return;
                }
            }
            if plain(&self.log[self.seen..]).contains(text) {
                self.seen = self.log.len();
                return;
            }
            match self.output.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(bytes) => self.log.extend(bytes),
                Err(_) => self.fail(&format!("no prompt `{text}`")),
            }
        }
    }

    /// Type a line at this terminal.
    pub fn type_line(&mut self, line: &str) {
        let written = self.terminal.write_all(format!("{line}\n").as_bytes()).and_then(|()| self.terminal.flush());
        written.expect("QEMU reads what is typed");
    }

    /// Wait until the reference OS is up, and check what it says of itself.
    #[track_caller]
    pub fn expect_os(&mut self, version: &str, slot: char, tries: u8) {
        let line = self.wait_for("SLIPWAY-OK");
        let expected = format!("SLIPWAY-OK version={version} slot={slot} try={tries}");
        if line != expected {
            self.fail(&format!("`{line}` instead of `{expected}`"));
        }
        eprintln!("boot {} {:.1} s", self.name, self.started.elapsed().as_secs_f32());
        // A later boot of the same machine is counted from here.
        self.started = Instant::now();
    }

    /// Wait until the reference OS is up in memory, from this live medium.
    #[track_caller]
    pub fn expect_live(&mut self, version: &str, medium: &str) {
        let line = self.wait_for("SLIPWAY-OK");
        let expected = format!("SLIPWAY-OK version={version} slot=- try=0 medium={medium}");
        if line != expected {
            self.fail(&format!("`{line}` instead of `{expected}`"));
        }
        eprintln!("live boot {} {:.1} s", self.name, self.started.elapsed().as_secs_f32());
        self.started = Instant::now();
    }

    /// Wait until a live system has been told what to do, and has done it: with this exit code, and what comes next.
    #[track_caller]
    pub fn expect_unattended(&mut self, code: i32, then: &str) {
        let line = self.wait_for("SLIPWAY-UNATTENDED");
        if line != format!("SLIPWAY-UNATTENDED exit={code} then={then}") {
            self.fail(&format!("`{line}` instead of exit code {code}, then {then}"));
        }
        eprintln!("unattended {} {:.1} s", self.name, self.started.elapsed().as_secs_f32());
        self.started = Instant::now();
    }

    /// Wait until the job in a guest has ended; it must have succeeded.
    #[track_caller]
    pub fn expect_job(&mut self) {
        let line = self.wait_for("SLIPWAY-RUN");
        if line != "SLIPWAY-RUN exit=0" {
            self.fail(&format!("the job in the guest failed: `{line}`"));
        }
        eprintln!("job in a guest {:.1} s", self.started.elapsed().as_secs_f32());
    }

    /// Wait until the agent has done something, CONFIRM or UPGRADE, with this exit code.
    #[track_caller]
    pub fn expect_agent(&mut self, what: &str, code: i32) {
        let line = self.wait_for(&format!("SLIPWAY-{what}"));
        if line != format!("SLIPWAY-{what} exit={code}") {
            self.fail(&format!("`{line}` instead of exit code {code}"));
        }
    }

    /// Wait until the firmware has refused what it was to start, and has gone on: to another boot option, or to the word
    /// that there is none. What was refused would have printed one of these texts, and none stands on the console.
    #[track_caller]
    pub fn expect_refusal(&mut self, of: &str, never: &[&str]) {
        self.wait_for("Access Denied");
        // EDK2 says this before each option that it loads, and at the end.
        self.wait_for("BdsDxe: ");
        self.shows_none_of(of, never);
    }

    /// Fail if one of these texts stands on the console, any of which it would have printed.
    #[track_caller]
    pub fn shows_none_of(&self, of: &str, never: &[&str]) {
        if let Some(text) = never.iter().find(|text| self.shows(text)) {
            self.fail(&format!("{of} has started: it says `{text}`"));
        }
    }

    /// Wait until the machine has switched itself off.
    #[track_caller]
    pub fn expect_power_off(&mut self) {
        let deadline = Instant::now() + LIMIT;
        loop {
            match self.output.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(bytes) => self.log.extend(bytes),
                Err(RecvTimeoutError::Timeout) => self.fail("it does not switch itself off"),
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Hang the machine: see `debugger`.
    pub fn hang(&self) {
        let dir = self.debugger.as_ref().expect("the machine was started with a debugger");
        debugger::hang(&dir.path().join(SOCKET));
    }

    /// Whether a text stands on the console so far.
    pub fn shows(&self, text: &str) -> bool {
        plain(&self.log).contains(text)
    }

    /// Switch the machine off, in the middle of whatever it does. The end of its serial console, for the
    /// message of what is checked afterwards.
    pub fn switch_off(self) -> String {
        self.tail()
    }

    /// Fail with the end of the serial console.
    #[track_caller]
    pub fn fail(&self, why: &str) -> ! {
        let seconds = self.started.elapsed().as_secs_f32();
        panic!("{} machine, after {seconds:.1} s: {why}\n{}", self.name, self.tail());
    }

    fn tail(&self) -> String {
        let log = plain(&self.log);
        let lines: Vec<&str> = log.lines().collect();
        let tail = lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n    ");
        format!("  end of its serial console:\n    {tail}")
    }

    fn next_line(&mut self) -> Option<String> {
        let rest = &self.log[self.seen..];
        let end = rest.iter().position(|b| *b == b'\n')?;
        let line = plain(&rest[..end]);
        self.seen += end + 1;
        Some(line)
    }
}

/// Text without what moves the cursor or changes colours: firmware does much of both.
fn plain(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let mut pieces = text.split("\x1b[");
    let first = pieces.next().unwrap_or_default();
    // A sequence ends with its first letter (ECMA-48, 5.4).
    let rest = pieces.map(|piece| piece.trim_start_matches(|c: char| !c.is_alphabetic()).get(1..).unwrap_or_default());
    let text: String = std::iter::once(first).chain(rest).collect();
    text.replace(|c: char| c.is_control() && c != '\n', "")
}

impl Drop for Console {
    fn drop(&mut self) {
        times::count(self.child.id());
        // It may have ended by itself; either way it is gone after this.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
