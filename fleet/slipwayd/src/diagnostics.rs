//! This service's own log, on standard error.
//!
//! As text, each line begins with `<N>`, from which journald takes the level. Where the log was stopped with the other
//! services, standard error has no reader any more: what cannot be written is dropped, and the work goes on.

use std::{fmt, io};

use clap::ValueEnum;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::{
    filter::LevelFilter,
    fmt::{FmtContext, FormatEvent, FormatFields, FormattedFields, Subscriber as Fmt, format::Writer},
    registry::LookupSpan,
};

/// How lines are written.
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
    /// The failed output.
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

/// Write lines of this process from now on. Called twice, the first call counts.
pub fn init(format: LogFormat, level: LogLevel) {
    let builder = Fmt::builder().with_writer(io::stderr).with_max_level(level).log_internal_errors(false);
    let _ = match format {
        LogFormat::Text => tracing::subscriber::set_global_default(builder.event_format(Journald).finish()),
        LogFormat::Json => tracing::subscriber::set_global_default(builder.json().flatten_event(true).finish()),
    };
}

/// `<4>operation{id=… goal=Upgrade}: blocked: …`
struct Journald;

impl<S, N> FormatEvent<S, N> for Journald
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, context: &FmtContext<'_, S, N>, mut to: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        write!(to, "<{}>", priority(*event.metadata().level()))?;
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

    #[test]
    fn a_line_has_its_level_and_its_operation() {
        let buffer = Buffer::default();
        let to = buffer.clone();
        let subscriber = Fmt::builder()
            .with_writer(move || to.clone())
            .with_ansi(false)
            .with_max_level(LevelFilter::INFO)
            .event_format(Journald)
            .finish();
        tracing::subscriber::with_default(subscriber, || {
            tracing::error!("alone");
            let _span = tracing::info_span!("operation", id = 7, goal = ?"Upgrade").entered();
            tracing::warn!("blocked: {}", "the drain");
            tracing::debug!("left out");
        });
        let text = String::from_utf8(buffer.0.lock().unwrap().clone()).unwrap();
        assert_eq!(text, "<3>alone\n<4>operation{id=7 goal=\"Upgrade\"}: blocked: the drain\n");
    }
}
