//! A service's own log, on standard error.
//!
//! As text, each line begins with its level: for journald as `<N>`, which journald takes off again, and elsewhere (in a pod,
//! under OpenRC) as a word. Where the log was stopped with the other services, standard error has no reader any more: what
//! cannot be written is dropped, and the work goes on.
//!
//! Only Slipway's own lines are written. What a library has to say comes back to its caller as an error, which is logged with
//! what was being done.

use std::{
    env, fmt,
    fs::File,
    io,
    os::{fd::AsFd as _, unix::fs::MetadataExt as _},
};

use clap::{Args, ValueEnum};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::{
    filter::{LevelFilter, Targets},
    fmt::{FmtContext, FormatEvent, FormatFields, FormattedFields, Subscriber as Fmt, format::Writer},
    layer::SubscriberExt as _,
    registry::LookupSpan,
};

/// The format of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For journald and people.
    Text,
    /// One JSON object a line.
    Json,
}

/// Least important lines that are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogLevel {
    /// The part that failed.
    Error,
    /// Also what blocks, and what is undone.
    Warn,
    /// Also each step.
    Info,
    /// Also how far a step is.
    Debug,
}

impl From<LogLevel> for LevelFilter {
    fn from(level: LogLevel) -> Self {
        match level {
            LogLevel::Error => Self::ERROR,
            LogLevel::Warn => Self::WARN,
            LogLevel::Info => Self::INFO,
            LogLevel::Debug => Self::DEBUG,
        }
    }
}

/// The flags of a service's log.
#[derive(Args, Clone, Copy, Debug)]
pub struct LogArgs {
    /// How lines of the log are written: for journald and people, or one JSON object a line
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    log_format: LogFormat,
    /// The least important lines of the log that are written
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    log_level: LogLevel,
}

/// Write lines of this process from now on. Called twice, the first call counts.
pub fn init(args: LogArgs) {
    let builder = Fmt::builder().with_writer(io::stderr).with_max_level(args.log_level).log_internal_errors(false);
    let own = own(args.log_level.into());
    let _ = match args.log_format {
        LogFormat::Text => tracing::subscriber::set_global_default(
            builder.event_format(Lines { for_journald: is_journald() }).finish().with(own),
        ),
        LogFormat::Json => {
            tracing::subscriber::set_global_default(builder.json().flatten_event(true).finish().with(own))
        }
    };
}

/// The lines of Slipway's crates: all of their names begin so.
fn own(level: LevelFilter) -> Targets {
    Targets::new().with_target("slipway", level)
}

/// True if journald reads standard error: systemd says in `JOURNAL_STREAM` which device and inode the stream to it has.
/// A process with another standard error may have inherited the variable.
fn is_journald() -> bool {
    let stream = io::stderr().as_fd().try_clone_to_owned().and_then(|fd| File::from(fd).metadata());
    stream.is_ok_and(|of| env::var("JOURNAL_STREAM").is_ok_and(|name| name == format!("{}:{}", of.dev(), of.ino())))
}

/// `<4>operation{id=… goal=Upgrade}: blocked: …` for journald, `WARN operation{…}: …` elsewhere.
struct Lines {
    for_journald: bool,
}

impl<S, N> FormatEvent<S, N> for Lines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, context: &FmtContext<'_, S, N>, mut to: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let level = *event.metadata().level();
        if self.for_journald {
            write!(to, "<{}>", priority(level))?;
        } else {
            write!(to, "{level} ")?;
        }
        for span in context.event_scope().into_iter().flat_map(|scope| scope.from_root()) {
            let extensions = span.extensions();
            let fields = extensions.get::<FormattedFields<N>>().map_or("", |fields| fields.fields.as_str());
            write!(to, "{}{{{fields}}}: ", span.name())?;
        }
        context.format_fields(to.by_ref(), event)?;
        writeln!(to)
    }
}

/// The level as syslog has it.
fn priority(level: Level) -> u8 {
    match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        _ => 7,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex, PoisonError};

    use super::*;

    #[derive(Clone, Default)]
    struct Buffer(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Buffer {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn written(for_journald: bool) -> String {
        let buffer = Buffer::default();
        let to = buffer.clone();
        let subscriber = Fmt::builder()
            .with_writer(move || to.clone())
            .with_ansi(false)
            .with_max_level(LevelFilter::INFO)
            .event_format(Lines { for_journald })
            .finish()
            .with(own(LevelFilter::INFO));
        tracing::subscriber::with_default(subscriber, || {
            tracing::error!("alone");
            let _span = tracing::info_span!("operation", id = 7, goal = ?"Upgrade").entered();
            tracing::warn!("blocked: {}", "the drain");
            tracing::debug!("left out");
            tracing::error!(target: "kube_client::client::builder", "failed with error client error (Connect)");
        });
        String::from_utf8(buffer.0.lock().unwrap().clone()).unwrap()
    }

    #[test]
    fn a_line_has_its_level_and_its_operation() {
        let operation = "operation{id=7 goal=\"Upgrade\"}: blocked: the drain\n";
        assert_eq!(written(true), format!("<3>alone\n<4>{operation}"));
        assert_eq!(written(false), format!("ERROR alone\nWARN {operation}"));
    }
}
