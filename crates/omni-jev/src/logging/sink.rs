//! Where lines go: at once, but for access lines, which may wait a moment for others.

use std::io::{self, Write};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread;
use std::time::Duration;

use tracing::{Level, Metadata};
use tracing_subscriber::fmt::MakeWriter;

use super::ACCESS;

/// The longest that an access line waits.
const LONGEST_WAIT: Duration = Duration::from_millis(100);

/// As many bytes are written without waiting for more.
const MOST_HELD: usize = 64 * 1024;

/// Keeps the order of all lines. Any line but a held one takes those before it along.
pub(super) struct Sink {
    state: Mutex<State>,
    /// Said once when the first line is held; the flushing thread sleeps until then.
    held: Condvar,
}

struct State {
    output: Box<dyn Write + Send>,
    lines: Vec<u8>,
    /// Lines are held, and the flushing thread knows.
    is_due: bool,
    /// There is a flushing thread. Without one no line is held.
    can_hold: bool,
}

// === impl Sink ===

impl Sink {
    pub(super) fn new(output: Box<dyn Write + Send>) -> Self {
        Self {
            state: Mutex::new(State {
                output,
                lines: Vec::new(),
                is_due: false,
                can_hold: false,
            }),
            held: Condvar::new(),
        }
    }

    /// Starts the thread that writes what is held. If the system gives none, every line is written at once.
    pub(super) fn start(&'static self) {
        let flusher = thread::Builder::new()
            .name("log".to_owned())
            .spawn(move || self.flush_when_due());
        self.lock().can_hold = flusher.is_ok();
    }

    /// Takes a whole line.
    fn push(&self, line: &[u8], may_wait: bool) {
        let mut state = self.lock();
        state.lines.extend_from_slice(line);
        if !(may_wait && state.can_hold) || state.lines.len() >= MOST_HELD {
            state.flush();
        } else if !state.is_due {
            state.is_due = true;
            self.held.notify_one();
        }
    }

    pub(super) fn flush(&self) {
        self.lock().flush();
    }

    /// For a panic, which may have come in the midst of a write.
    pub(super) fn flush_unless_busy(&self) {
        match self.state.try_lock() {
            Ok(mut state) => state.flush(),
            Err(TryLockError::Poisoned(state)) => state.into_inner().flush(),
            Err(TryLockError::WouldBlock) => {}
        }
    }

    fn flush_when_due(&self) {
        loop {
            let due = self.held.wait_while(self.lock(), |state| !state.is_due);
            drop(due.unwrap_or_else(PoisonError::into_inner));
            thread::sleep(LONGEST_WAIT);
            let mut state = self.lock();
            state.is_due = false;
            state.flush();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Lines are whole whatever happened to whom.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl State ===

impl State {
    fn flush(&mut self) {
        if self.lines.is_empty() {
            return;
        }
        // A log that nobody takes is no reason to stop answering, and there is nowhere to say it.
        let _ = self.output.write_all(&self.lines);
        self.lines.clear();
    }
}

/// Makes the writers that tracing's formatter gives its lines to.
pub(super) struct Output(pub(super) &'static Sink);

/// Writes one event's line.
pub(super) struct LineWriter {
    sink: &'static Sink,
    may_wait: bool,
}

// === impl Output ===

impl<'a> MakeWriter<'a> for Output {
    type Writer = LineWriter;

    fn make_writer(&'a self) -> LineWriter {
        LineWriter {
            sink: self.0,
            may_wait: false,
        }
    }

    fn make_writer_for(&'a self, about: &Metadata<'_>) -> LineWriter {
        LineWriter {
            sink: self.0,
            may_wait: *about.level() > Level::WARN && about.target() == ACCESS,
        }
    }
}

// === impl LineWriter ===

impl Write for LineWriter {
    /// Takes all of `line`, which the formatter gives in one piece.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.sink.push(line, self.may_wait);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.sink.flush();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// Sends each write to the test.
    struct Writes(mpsc::Sender<String>);

    impl Write for Writes {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let _ = self.0.send(String::from_utf8_lossy(bytes).into_owned());
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn sink() -> (&'static Sink, mpsc::Receiver<String>) {
        let (sender, writes) = mpsc::channel();
        let sink = Box::leak(Box::new(Sink::new(Box::new(Writes(sender)))));
        (sink, writes)
    }

    #[test]
    fn a_line_that_may_wait_is_written_soon_without_another() {
        let (sink, writes) = sink();
        sink.start();
        for _ in 0..2 {
            sink.push(b"a\n", true);
            let written = writes.recv_timeout(Duration::from_secs(30)).unwrap();
            assert_eq!(written, "a\n");
        }
    }

    #[test]
    fn a_line_that_may_not_wait_takes_those_before_it_along_in_order() {
        let (sink, writes) = sink();
        sink.lock().can_hold = true;
        sink.push(b"a\n", true);
        sink.push(b"b\n", true);
        assert!(writes.try_recv().is_err());
        sink.push(b"c\n", false);
        assert_eq!(writes.try_recv().unwrap(), "a\nb\nc\n");
    }

    #[test]
    fn only_so_much_is_held() {
        let (sink, writes) = sink();
        sink.lock().can_hold = true;
        sink.push(&vec![b'x'; MOST_HELD - 1], true);
        assert!(writes.try_recv().is_err());
        sink.push(b"x", true);
        assert_eq!(writes.try_recv().unwrap().len(), MOST_HELD);
    }

    #[test]
    fn without_a_flushing_thread_nothing_is_held() {
        let (sink, writes) = sink();
        sink.push(b"a\n", true);
        assert_eq!(writes.try_recv().unwrap(), "a\n");
    }

    #[test]
    fn what_is_held_is_written_at_the_end_and_before_a_panics_message() {
        let (sink, writes) = sink();
        sink.lock().can_hold = true;
        sink.push(b"a\n", true);
        sink.flush();
        assert_eq!(writes.try_recv().unwrap(), "a\n");
        sink.push(b"b\n", true);
        sink.flush_unless_busy();
        assert_eq!(writes.try_recv().unwrap(), "b\n");
    }
}
