//! The signals that ask this process to end.

use std::io;
use std::time::{Duration, Instant};

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Signals closer to each other than this are one request to stop. A program that passes Ctrl-C on to its children,
/// which had it from the terminal already, sends it twice; and of two within microseconds the kernel may keep only one.
/// No hand is as fast.
const ONE_REQUEST: Duration = Duration::from_millis(30);

/// SIGTERM, SIGINT and SIGHUP, from the moment this is made.
///
/// SIGHUP is here because a closed terminal should stop the worker as gently as Ctrl-C does.
pub(crate) struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
    /// When the last request came.
    last: Option<Instant>,
}

impl StopSignals {
    /// Takes the signals over from the operating system's default, which ends the process.
    pub(crate) fn listen() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
            last: None,
        })
    }

    /// Waits for the next request to stop and says the name of its signal.
    pub(crate) async fn next(&mut self) -> &'static str {
        loop {
            let name = tokio::select! {
                _ = self.terminate.recv() => "SIGTERM",
                _ = self.interrupt.recv() => "SIGINT",
                _ = self.hang_up.recv() => "SIGHUP",
            };
            if self.last.is_none_or(|last| last.elapsed() >= ONE_REQUEST) {
                self.last = Some(Instant::now());
                return name;
            }
        }
    }
}
