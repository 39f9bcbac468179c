//! The init system's part: systemd's own tool, or commands for any other init.

use std::{
    io::Read,
    process::{Child, Command, ExitStatus, Stdio},
    sync::mpsc::{Receiver, channel},
    thread,
    time::{Duration, Instant},
};

use serde::Deserialize;

/// The longest time for one command. The step is tried again after it, until its own time is over.
const LONGEST: Duration = Duration::from_secs(60);
/// Stands for the unit in a command.
const UNIT: &str = "@unit@";
/// Characters that a message has of what a command said.
const SAID: usize = 500;

/// Which init system runs the node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Init {
    /// systemd.
    #[default]
    Systemd,
    /// Another one, by its commands.
    Commands(Commands),
}

/// A command, as program and arguments. There is no shell. `@unit@` is the name of the unit.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Commands {
    /// Stops a unit, and ends when it has stopped.
    stop: OfUnit,
    /// Ends with 0 if a unit is active.
    is_active: OfUnit,
    /// Starts the machine anew, and ends once the init system has taken that on.
    reboot: Argv,
}

/// A program and its arguments.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Vec<String>")]
struct Argv(Vec<String>);

/// A program and its arguments, one of which names the unit.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Vec<String>")]
struct OfUnit(Argv);

impl TryFrom<Vec<String>> for Argv {
    type Error = &'static str;

    fn try_from(words: Vec<String>) -> Result<Self, Self::Error> {
        match words.first() {
            Some(program) if program.is_empty() => Err("the program has no name"),
            Some(_) if words.iter().any(|word| word.contains(UNIT)) => Err("@unit@ has no place in this command"),
            Some(_) => Ok(Self(words)),
            None => Err("a command has at least a program"),
        }
    }
}

impl TryFrom<Vec<String>> for OfUnit {
    type Error = &'static str;

    fn try_from(words: Vec<String>) -> Result<Self, Self::Error> {
        match words.iter().position(|word| word.contains(UNIT)) {
            Some(_) if words[0].is_empty() => Err("the program has no name"),
            Some(0) => Err("@unit@ is an argument, not the program"),
            Some(_) => Ok(Self(Argv(words))),
            None => Err("the command needs @unit@ where the unit is named"),
        }
    }
}

impl OfUnit {
    fn for_unit(&self, unit: &str) -> Vec<String> {
        self.0.0.iter().map(|word| word.replace(UNIT, unit)).collect()
    }
}

impl Init {
    /// Stop this unit. One that does not exist is a mistake in the configuration, and an error.
    pub fn stop(&self, unit: &str) -> Result<(), String> {
        match self {
            Self::Systemd => run(&["systemctl", "stop", "--", unit]).map(drop),
            Self::Commands(commands) => run(&commands.stop.for_unit(unit)).map(drop),
        }
    }

    /// Fails if there is no such unit. Only systemd tells that; what cannot be looked at may be there.
    pub fn knows(&self, unit: &str) -> Result<(), String> {
        if *self != Self::Systemd {
            return Ok(());
        }
        let says = run(&["systemctl", "show", "--property=LoadState,ActiveState", "--value", "--", unit]);
        let says = says.unwrap_or_default();
        let is = |word: &str| says.split_whitespace().any(|said| said == word);
        // One that runs can be stopped, also without its file.
        if is("not-found") && is("inactive") {
            return Err(format!(
                "systemd knows no unit {unit}, which is to be stopped: does slipwayd.toml mean another one?"
            ));
        }
        Ok(())
    }

    /// The first of these units that is not active, and what it is instead.
    pub fn are_active(&self, units: &[String]) -> Result<(), String> {
        for unit in units {
            match self {
                Self::Systemd => is_active(unit)?,
                Self::Commands(commands) => {
                    run(&commands.is_active.for_unit(unit)).map_err(|why| format!("{unit} is not active: {why}"))?;
                }
            }
        }
        Ok(())
    }

    /// Start the machine anew. Answers once the init system has taken it on.
    pub fn reboot(&self) -> Result<(), String> {
        match self {
            Self::Systemd => run(&["systemctl", "reboot"]).map(drop),
            Self::Commands(commands) => run(&commands.reboot.0).map(drop),
        }
    }
}

/// systemd tells more than yes or no.
fn is_active(unit: &str) -> Result<(), String> {
    let state = run(&["systemctl", "show", "--property=ActiveState,SubState", "--value", "--", unit])?;
    let state = state.split_whitespace().collect::<Vec<_>>().join(", ");
    if state.starts_with("active") { Ok(()) } else { Err(format!("{unit} is {state}")) }
}

/// Run a command and return its standard output.
fn run(argv: &[impl AsRef<str>]) -> Result<String, String> {
    let words: Vec<&str> = argv.iter().map(AsRef::as_ref).collect();
    let shown = words.join(" ");
    let cannot = |e: &std::io::Error| format!("{shown} cannot be run: {e}");
    let (program, args) = words.split_first().ok_or_else(|| "a command has at least a program".to_owned())?;
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|e| cannot(&e))?;
    let (out, err) = (child.stdout.take().map(read_all), child.stderr.take().map(read_all));
    let Some(status) = wait(&mut child).map_err(|e| cannot(&e))? else {
        return Err(format!("{shown} did not end within {} s", LONGEST.as_secs()));
    };
    // A process that it left running may have its output open for ever.
    let said = |of: Option<Receiver<String>>| {
        of.and_then(|said| said.recv_timeout(Duration::from_secs(1)).ok()).unwrap_or_default()
    };
    let (out, err) = (said(out), said(err));
    if status.success() {
        return Ok(out);
    }
    let says = if err.trim().is_empty() { out } else { err };
    Err(format!("{shown} ended with {status}: {}", says.trim().chars().take(SAID).collect::<String>()))
}

/// Wait for its end. `None` if it takes too long; then it was killed.
fn wait(child: &mut Child) -> std::io::Result<Option<ExitStatus>> {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if start.elapsed() > LONGEST {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        thread::sleep(Duration::from_millis(20));
    }
}

/// All that comes, in the end.
fn read_all(mut from: impl Read + Send + 'static) -> Receiver<String> {
    let (tell, told) = channel();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = from.read_to_end(&mut bytes);
        let _ = tell.send(String::from_utf8_lossy(&bytes).into_owned());
    });
    told
}
