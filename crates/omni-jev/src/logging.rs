//! The log: one event a line on standard error, as text or JSON.
//!
//! An access line is written for every request, so it has a way of its own: [`line`] makes it without the general
//! formatter's detours, and [`sink`] writes many of them at once. It reads as the general formatter would write it.

mod line;
mod sink;

use std::io::IsTerminal as _;
use std::sync::LazyLock;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::{self, JsonFields};

use self::line::{Form, Lines};
use self::sink::{Output, Sink};
use crate::settings::{LogFilter, LogFormat};

/// The target of the access log's events; the frontend's page names it.
const ACCESS: &str = "omni_jev::access";

static STANDARD_ERROR: LazyLock<Sink> = LazyLock::new(|| Sink::new(Box::new(std::io::stderr())));

/// Writes, when dropped, what the log still holds back.
#[must_use = "dropped at once, it does nothing at the process's end"]
pub(crate) struct Flush;

/// Sends every event of this process and its worker to standard error from now on.
pub(crate) fn start(filter: &LogFilter, format: LogFormat) -> Flush {
    STANDARD_ERROR.start();
    write_before_a_panics_message();
    let builder = tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new(&filter.0))
        .with_writer(Output(&STANDARD_ERROR))
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

/// Writes what the log holds back, so that what is printed next comes after it.
pub(crate) fn flush() {
    STANDARD_ERROR.flush();
}

fn write_before_a_panics_message() {
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        STANDARD_ERROR.flush_unless_busy();
        print(panic);
    }));
}

// === impl Flush ===

impl Drop for Flush {
    fn drop(&mut self) {
        flush();
    }
}
