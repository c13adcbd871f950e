//! Bounds on what is open, in flight and held in memory at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::Config;
use crate::fault::Fault;
use crate::metrics::Metrics;

/// Bodies up to this size are not counted: connections already bound those.
pub(crate) const UNCOUNTED_BODY: usize = 64 * 1024;

/// The counts that all threads share.
pub(crate) struct Gate {
    max_in_flight: usize,
    in_flight: AtomicUsize,
    max_buffered: usize,
    buffered: AtomicUsize,
    connections: Arc<Semaphore>,
    metrics: Arc<Metrics>,
}

impl Gate {
    pub(crate) fn new(config: &Config, metrics: Arc<Metrics>) -> Self {
        Self {
            max_in_flight: config.max_in_flight,
            in_flight: AtomicUsize::new(0),
            max_buffered: config.max_buffered_bytes,
            buffered: AtomicUsize::new(0),
            connections: Arc::new(Semaphore::new(config.max_connections)),
            metrics,
        }
    }

    /// Bytes held now, as far as they are counted.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn buffered(&self) -> usize {
        self.buffered.load(Ordering::Relaxed)
    }

    /// Waits until one more connection may be open; the permit is its place.
    pub(crate) async fn connection(&self) -> OwnedSemaphorePermit {
        match Arc::clone(&self.connections).acquire_owned().await {
            Ok(permit) => permit,
            // Nothing closes the semaphore.
            Err(_) => std::future::pending().await,
        }
    }

    /// Lets one more request through, or says at once that there are too many.
    pub(crate) fn enter(self: &Arc<Self>) -> Result<InFlight, Fault> {
        if self.in_flight.fetch_add(1, Ordering::Relaxed) >= self.max_in_flight {
            self.in_flight.fetch_sub(1, Ordering::Relaxed);
            return Err(Fault::TooManyInFlight);
        }
        self.metrics.in_flight.inc();
        Ok(InFlight(Arc::clone(self)))
    }

    /// A count, nothing yet, of bytes that one body holds.
    pub(crate) fn ledger(self: &Arc<Self>) -> Ledger {
        Ledger {
            gate: Arc::clone(self),
            bytes: 0,
        }
    }
}

/// The place of one request among those in flight, given back when dropped.
pub(crate) struct InFlight(Arc<Gate>);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
        self.0.metrics.in_flight.dec();
    }
}

/// The bytes of one request's or answer's body, given back when dropped.
pub(crate) struct Ledger {
    gate: Arc<Gate>,
    bytes: usize,
}

impl Ledger {
    /// Counts up to `bytes` in all for this body, or says that memory is short.
    pub(crate) fn hold(&mut self, bytes: usize) -> Result<(), Fault> {
        let more = bytes.saturating_sub(self.bytes);
        let before = self.gate.buffered.fetch_add(more, Ordering::Relaxed);
        self.bytes += more;
        if before.saturating_add(more) > self.gate.max_buffered {
            Err(Fault::TooMuchBuffered)
        } else {
            Ok(())
        }
    }

    pub(crate) fn holds_any(&self) -> bool {
        self.bytes > 0
    }
}

impl Drop for Ledger {
    fn drop(&mut self) {
        self.gate.buffered.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Registry;

    fn gate(config: &Config) -> Arc<Gate> {
        let metrics = Arc::new(Metrics::new(&mut Registry::default()));
        Arc::new(Gate::new(config, metrics))
    }

    #[test]
    fn a_request_over_the_limit_is_refused_until_another_has_left() {
        let gate = gate(&Config {
            max_in_flight: 1,
            ..Config::default()
        });
        let first = gate.enter().unwrap();
        assert_eq!(gate.enter().err(), Some(Fault::TooManyInFlight));
        drop(first);
        assert!(gate.enter().is_ok());
    }

    #[test]
    fn bytes_held_are_given_back_even_by_the_request_that_was_refused() {
        let gate = gate(&Config {
            max_buffered_bytes: 100,
            ..Config::default()
        });
        let mut first = gate.ledger();
        first.hold(60).unwrap();
        first.hold(80).unwrap();
        let mut second = gate.ledger();
        assert_eq!(second.hold(21), Err(Fault::TooMuchBuffered));
        drop(second);
        drop(first);
        assert_eq!(gate.buffered(), 0);
    }
}
