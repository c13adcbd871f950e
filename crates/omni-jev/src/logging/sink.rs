//! Where lines go: into a bounded queue, which a thread of its own writes.
//!
//! Nobody else ever waits for whoever reads the log. A terminal may be paused, a pipe may have a reader that hangs, a
//! disk may be full: requests are answered all the same, and a signal still stops the process. What does not fit into
//! the queue meanwhile is counted and left out.

use std::io::{self, ErrorKind, Write};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread;
use std::time::Duration;

use tracing::{Level, Metadata};
use tracing_subscriber::fmt::MakeWriter;

use super::ACCESS;

/// The longest that an access line waits for others.
const LONGEST_WAIT: Duration = Duration::from_millis(100);

/// As many bytes are written without waiting for more.
const MOST_HELD: usize = 64 * 1024;

/// The most that waits to be written, in bytes.
const MOST_WAITING: usize = 4 * 1024 * 1024;

/// So much more may wait of warnings and errors, so that a flood of other lines leaves them room.
const KEPT_FOR_WARNINGS: usize = 256 * 1024;

/// A buffer that once had to be larger is given back.
const USUAL_SIZE: usize = 1024 * 1024;

/// Between two tries to write to what takes nothing at the moment and cannot be waited for.
const PAUSE: Duration = Duration::from_millis(20);

/// Keeps the order of all lines.
pub(super) struct Sink {
    state: Mutex<State>,
    /// Said when there is more to do for the thread that writes.
    work: Condvar,
    /// Said when it has done some.
    done: Condvar,
    /// Told how many lines were left out, once lines can be written again.
    tell: fn(u64),
}

struct State {
    /// Here until the thread that writes has it. Without one every line is written at once.
    output: Option<Output>,
    lines: Vec<u8>,
    due: Due,
    /// Bytes ever taken, and those of them written or lost.
    taken: u64,
    settled: u64,
    /// Lines left out and not told of.
    dropped: u64,
}

type Output = Box<dyn Write + Send>;

/// When what waits is to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    /// Nothing waits.
    Never,
    /// Together with what comes within [`LONGEST_WAIT`].
    Soon,
    Now,
}

/// What a line is owed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rank {
    /// It may wait for others: one of the many of the access log.
    Access,
    Usual,
    /// A warning or an error, for which some room is kept.
    Warning,
}

// === impl Sink ===

impl Sink {
    pub(super) fn new(output: Output, tell: fn(u64)) -> Self {
        Self {
            state: Mutex::new(State {
                output: Some(output),
                lines: Vec::new(),
                due: Due::Never,
                taken: 0,
                settled: 0,
                dropped: 0,
            }),
            work: Condvar::new(),
            done: Condvar::new(),
            tell,
        }
    }

    /// Starts the thread that writes, if there is none. If the system gives none, every line is written by whoever
    /// has it.
    pub(super) fn start(&'static self) {
        let Some(output) = self.lock().output.take() else {
            return;
        };
        let (hand_over, handed_over) = std::sync::mpsc::sync_channel(1);
        let writer = thread::Builder::new().name("log".to_owned());
        let started = writer.spawn(move || {
            if let Ok(output) = handed_over.recv() {
                self.write_when_due(output);
            }
        });
        if started.is_ok() {
            // The thread waits for it.
            let _ = hand_over.send(output);
        } else {
            self.lock().output = Some(output);
        }
    }

    /// Takes a whole line, or leaves it out. Returns whether it took it.
    pub(super) fn push(&self, line: &[u8], rank: Rank) -> bool {
        let mut state = self.lock();
        if let Some(output) = &mut state.output {
            return output.write_all(line).is_ok();
        }
        let room = match rank {
            Rank::Access | Rank::Usual => MOST_WAITING,
            Rank::Warning => MOST_WAITING + KEPT_FOR_WARNINGS,
        };
        if state.lines.len() + line.len() > room {
            state.dropped += 1;
            return false;
        }
        state.lines.extend_from_slice(line);
        state.taken += as_u64(line.len());
        let due = if rank == Rank::Access && state.lines.len() < MOST_HELD {
            Due::Soon
        } else {
            Due::Now
        };
        if due > state.due {
            state.due = due;
            self.work.notify_one();
        }
        true
    }

    /// Waits until all lines so far are written or lost, but no longer than `limit`. Returns whether they are.
    pub(super) fn flush(&self, limit: Duration) -> bool {
        self.settle(self.lock(), limit)
    }

    /// For a panic, which may have come in the midst of a line: none if the queue is in use.
    pub(super) fn flush_unless_busy(&self, limit: Duration) -> Option<bool> {
        match self.state.try_lock() {
            Ok(state) => Some(self.settle(state, limit)),
            Err(TryLockError::Poisoned(state)) => Some(self.settle(state.into_inner(), limit)),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    fn settle(&self, mut state: MutexGuard<'_, State>, limit: Duration) -> bool {
        let target = state.taken;
        if state.settled >= target {
            return true;
        }
        state.due = Due::Now;
        self.work.notify_one();
        let waited = self
            .done
            .wait_timeout_while(state, limit, |state| state.settled < target);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.settled >= target
    }

    fn write_when_due(&self, mut output: Output) {
        let mut batch = Vec::new();
        loop {
            self.take_what_is_due(&mut batch);
            let lost = write(&mut output, &batch);
            let mut state = self.lock();
            state.settled += as_u64(batch.len());
            state.dropped += lost;
            let told = if lost == 0 {
                std::mem::take(&mut state.dropped)
            } else {
                0
            };
            drop(state);
            self.done.notify_all();
            if told > 0 {
                (self.tell)(told);
            }
            batch.clear();
            batch.shrink_to(USUAL_SIZE);
        }
    }

    /// Waits for lines, and moves them into the empty `batch`.
    fn take_what_is_due(&self, batch: &mut Vec<u8>) {
        let due = self
            .work
            .wait_while(self.lock(), |state| state.due == Due::Never);
        let mut state = due.unwrap_or_else(PoisonError::into_inner);
        if state.due == Due::Soon {
            let more = self
                .work
                .wait_timeout_while(state, LONGEST_WAIT, |state| state.due != Due::Now);
            (state, _) = more.unwrap_or_else(PoisonError::into_inner);
        }
        state.due = Due::Never;
        std::mem::swap(&mut state.lines, batch);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Lines are whole whatever happened to whom.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes all of `lines`, however long that takes. Returns how many of them were lost.
fn write(output: &mut Output, mut lines: &[u8]) -> u64 {
    while !lines.is_empty() {
        match output.write(lines) {
            Ok(0) => return count(lines),
            Ok(written) => lines = &lines[written..],
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            // Whoever shares it with us has made it so that it cannot be waited for.
            Err(error) if error.kind() == ErrorKind::WouldBlock => thread::sleep(PAUSE),
            Err(_) => return count(lines),
        }
    }
    0
}

fn count(lines: &[u8]) -> u64 {
    as_u64(lines.split_inclusive(|byte| *byte == b'\n').count())
}

fn as_u64(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

/// Makes the writers that tracing's formatter gives its lines to.
pub(super) struct Writers(pub(super) &'static Sink);

/// Writes one event's line.
pub(super) struct LineWriter {
    sink: &'static Sink,
    rank: Rank,
}

// === impl Writers ===

impl<'a> MakeWriter<'a> for Writers {
    type Writer = LineWriter;

    fn make_writer(&'a self) -> LineWriter {
        LineWriter {
            sink: self.0,
            rank: Rank::Usual,
        }
    }

    fn make_writer_for(&'a self, about: &Metadata<'_>) -> LineWriter {
        let rank = if *about.level() <= Level::WARN {
            Rank::Warning
        } else if about.target() == ACCESS {
            Rank::Access
        } else {
            Rank::Usual
        };
        LineWriter { sink: self.0, rank }
    }
}

// === impl LineWriter ===

impl Write for LineWriter {
    /// Takes all of `line`, which the formatter gives in one piece.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.sink.push(line, self.rank);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
