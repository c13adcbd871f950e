//! What the worker writes and what the supervisor has to say, as tracing events.
//!
//! They are written by a thread of their own. A subscriber may write to a terminal that someone
//! has paused or a pipe that nobody reads; the worker's pipes are drained all the same, and what
//! does not fit in memory meanwhile is counted and dropped.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, SystemTime};

use tracing::{Dispatch, Level};

use crate::lines::Line;
use crate::log_line::LogLine;
use crate::machine::NoteLevel;
use crate::ring::{LogEntry, Ring};

/// The most text of workers that waits to be written, in bytes.
const MAX_WAITING: usize = 8 * 1024 * 1024;
/// How long the last entries may take to be written once supervision is over.
const FLUSH_LIMIT: Duration = Duration::from_secs(1);

/// Where entries are left to be written.
#[derive(Debug, Clone)]
pub(crate) struct Journal {
    entries: mpsc::Sender<Entry>,
    load: Arc<Load>,
    ring: Ring,
}

/// How full the journal is.
#[derive(Debug, Default)]
struct Load {
    waiting: AtomicUsize,
    dropped: AtomicU64,
}

#[derive(Debug)]
enum Entry {
    Line {
        pid: u32,
        size: usize,
        written: Written,
    },
    Note {
        pid: Option<u32>,
        level: NoteLevel,
        text: String,
    },
}

/// What a worker wrote.
#[derive(Debug)]
pub(crate) enum Written {
    /// A log line.
    Log(LogLine),
    /// Anything else.
    Text(Line),
}

impl Written {
    fn level(&self) -> &'static str {
        match self {
            Self::Log(line) => match line.level {
                Level::TRACE => "trace",
                Level::DEBUG => "debug",
                Level::INFO => "info",
                Level::WARN => "warn",
                Level::ERROR => "error",
            },
            Self::Text(_) => "info",
        }
    }

    fn text(&self) -> String {
        match self {
            Self::Log(line) => match &line.fields {
                Some(fields) => format!("{} {fields}", line.message),
                None => line.message.clone(),
            },
            Self::Text(line) => line.text.clone(),
        }
    }
}

/// Tells when everything has been written.
#[derive(Debug)]
pub(crate) struct Flushed(mpsc::Receiver<()>);

impl Flushed {
    /// Waits until every [`Journal`] is dropped and all is written, but not for ever.
    pub(crate) fn wait(&self) {
        // Nothing is ever sent: either the writer is done or time is up.
        let _ = self.0.recv_timeout(FLUSH_LIMIT);
    }
}

impl Journal {
    /// Starts the writer for the worker called `name`.
    pub(crate) fn open(name: &str, dispatch: Dispatch, ring: Ring) -> io::Result<(Self, Flushed)> {
        let (entries, queue) = mpsc::channel();
        let (alive, flushed) = mpsc::channel();
        let load = Arc::new(Load::default());
        let (name, shared) = (name.to_owned(), Arc::clone(&load));
        thread::Builder::new()
            .name("worker-log".to_owned())
            .spawn(move || {
                let _alive: mpsc::Sender<()> = alive;
                tracing::dispatcher::with_default(&dispatch, || write_all(&name, &queue, &shared));
            })?;
        let journal = Self {
            entries,
            load,
            ring,
        };
        Ok((journal, Flushed(flushed)))
    }

    /// Leaves what the worker wrote to be written, or drops it if too much waits already.
    pub(crate) fn line(&self, pid: u32, size: usize, written: Written) {
        self.ring.push(LogEntry {
            at: SystemTime::now(),
            pid: Some(pid),
            level: written.level(),
            text: written.text(),
            supervisor: false,
        });
        if self.load.waiting.fetch_add(size, Relaxed) + size > MAX_WAITING {
            self.load.waiting.fetch_sub(size, Relaxed);
            self.load.dropped.fetch_add(1, Relaxed);
            return;
        }
        self.send(Entry::Line { pid, size, written });
    }

    /// Leaves a note of the supervisor's own, of which there are few.
    pub(crate) fn note(&self, pid: Option<u32>, level: NoteLevel, text: String) {
        self.ring.push(LogEntry {
            at: SystemTime::now(),
            pid,
            level: level.name(),
            text: text.clone(),
            supervisor: true,
        });
        self.send(Entry::Note { pid, level, text });
    }

    fn send(&self, entry: Entry) {
        // The writer ends only when its subscriber panics: then nobody is left to tell.
        let _ = self.entries.send(entry);
    }
}

fn write_all(name: &str, queue: &mpsc::Receiver<Entry>, load: &Load) {
    while let Ok(entry) = queue.recv() {
        let dropped = load.dropped.swap(0, Relaxed);
        if dropped > 0 {
            tracing::warn!(
                target: "omni_jev_supervisor",
                worker = name,
                dropped,
                "lines of the worker were dropped: it writes faster than the log takes them"
            );
        }
        match entry {
            Entry::Line { pid, size, written } => {
                load.waiting.fetch_sub(size, Relaxed);
                match written {
                    Written::Log(line) => write_log(name, pid, &line),
                    Written::Text(line) => write_text(name, pid, &line),
                }
            }
            Entry::Note { pid, level, text } => write_note(name, pid, level, &text),
        }
    }
}

fn write_log(name: &str, pid: u32, line: &LogLine) {
    // A level is part of what tracing fixes at compile time, hence one macro call for each.
    macro_rules! at {
        ($level:ident) => {
            tracing::event!(
                target: "worker",
                Level::$level,
                worker = name,
                pid,
                phase = line.phase.map(crate::Phase::name),
                fields = line.fields.as_ref().map(tracing::field::display),
                "{}",
                line.message
            )
        };
    }
    match line.level {
        Level::TRACE => at!(TRACE),
        Level::DEBUG => at!(DEBUG),
        Level::INFO => at!(INFO),
        Level::WARN => at!(WARN),
        Level::ERROR => at!(ERROR),
    }
}

fn write_text(name: &str, pid: u32, line: &Line) {
    let dropped = (line.dropped > 0).then_some(line.dropped);
    tracing::info!(
        target: "worker",
        worker = name,
        pid,
        dropped_bytes = dropped,
        "{}",
        line.text
    );
}

fn write_note(name: &str, pid: Option<u32>, level: NoteLevel, text: &str) {
    macro_rules! at {
        ($level:ident) => {
            tracing::event!(
                target: "omni_jev_supervisor",
                Level::$level,
                worker = name,
                pid,
                "{text}"
            )
        };
    }
    match level {
        NoteLevel::Info => at!(INFO),
        NoteLevel::Warn => at!(WARN),
        NoteLevel::Error => at!(ERROR),
    }
}
