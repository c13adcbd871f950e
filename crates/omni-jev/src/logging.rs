//! The log: one event a line on standard error, as text or JSON.
//!
//! An access line is written for every request, so it has a way of its own: [`mod@line`] makes it without the general
//! formatter's detours, and [`sink`] writes many of them at once. It reads as the general formatter would write it.
//! Whoever has something to say never waits for whoever reads it.

mod line;
mod sink;

use std::fs::File;
use std::io::{IsTerminal as _, Write};
use std::os::fd::AsFd as _;
use std::sync::LazyLock;
use std::time::Duration;

use omni_jev_frontend::Registry;
use prometheus_client::metrics::counter::Counter;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::{self, JsonFields};

use self::line::{Form, Lines};
use self::sink::{Rank, Sink, Writers};
use crate::settings::{LogFilter, LogFormat};

/// The target of the access log's events; the frontend's page names it.
const ACCESS: &str = "omni_jev::access";

/// The target of what workers write; the supervisor names it.
const WORKER: &str = "worker";

/// How long the process's end waits for its last lines to be taken.
const LAST_LINES: Duration = Duration::from_secs(1);

/// How long a panic's message waits for the lines before it.
const BEFORE_A_PANIC: Duration = Duration::from_millis(200);

static STANDARD_ERROR: LazyLock<Sink> = LazyLock::new(|| Sink::new(standard_error(), say_dropped));

static DROPPED: LazyLock<Counter> = LazyLock::new(Counter::default);

/// Writes, when dropped, what the log still holds back.
#[must_use = "dropped at once, it does nothing at the process's end"]
pub(crate) struct Flush;

/// Sends every event of this process and its worker to standard error from now on.
pub(crate) fn start(filter: &LogFilter, format: LogFormat) -> Flush {
    STANDARD_ERROR.start();
    write_before_a_panics_message();
    let builder = tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new(&filter.0))
        .with_writer(Writers(&STANDARD_ERROR))
        .with_ansi(std::io::stderr().is_terminal());
    match format {
        LogFormat::Text => builder
            .event_format(Lines::new(Form::Text, format::format()))
            .init(),
        LogFormat::Json => builder
            .fmt_fields(JsonFields::new())
            .event_format(Lines::new(
                Form::Json,
                format::format().json().flatten_event(true),
            ))
            .init(),
    }
    Flush
}

/// Counts the lines that nobody took among the metrics.
pub(crate) fn register(registry: &mut Registry) {
    registry.register(
        "omni_jev_log_lines_dropped",
        "Lines left out of the log because whoever reads it did not take them",
        DROPPED.clone(),
    );
}

/// Writes one line that is no event, after all others, and waits a moment for it to be taken.
pub(crate) fn last_line(line: &str) {
    STANDARD_ERROR.start();
    STANDARD_ERROR.push(format!("{line}\n").as_bytes(), Rank::Warning);
    STANDARD_ERROR.flush(LAST_LINES);
}

/// Standard error without its lock: a writer that hangs must not keep others from it.
fn standard_error() -> Box<dyn Write + Send> {
    let standard_error = std::io::stderr();
    match standard_error.as_fd().try_clone_to_owned() {
        Ok(descriptor) => Box::new(File::from(descriptor)),
        // The process may have no more descriptors.
        Err(_) => Box::new(standard_error),
    }
}

fn say_dropped(lines: u64) {
    DROPPED.inc_by(lines);
    tracing::warn!(
        lines,
        "lines are missing here: the log was not taken as fast as it was written"
    );
}

fn write_before_a_panics_message() {
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        match STANDARD_ERROR.flush_unless_busy(BEFORE_A_PANIC) {
            // The message would wait for the same reader, and whoever panics with it.
            Some(false) => tracing::error!("{panic}"),
            Some(true) | None => print(panic),
        }
    }));
}

// === impl Flush ===

impl Drop for Flush {
    fn drop(&mut self) {
        STANDARD_ERROR.flush(LAST_LINES);
    }
}
