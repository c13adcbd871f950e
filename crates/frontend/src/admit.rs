//! Bounds on what is open, in flight and held in memory at once.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::Config;
use crate::fault::Fault;
use crate::metrics::Metrics;

/// Bodies up to this size are not counted: connections already bound those.
pub(crate) const UNCOUNTED_BODY: usize = 64 * 1024;

/// What is asked for within this time is asked for again.
const AGAIN: Duration = Duration::from_secs(5);

/// The counts that all threads share.
pub(crate) struct Gate {
    max_in_flight: usize,
    in_flight: AtomicUsize,
    max_buffered: usize,
    buffered: AtomicUsize,
    connections: Arc<Semaphore>,
    room: Room,
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
            room: Room::new(config.max_connections),
            metrics,
        }
    }

    /// Bytes held now, as far as they are counted.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn buffered(&self) -> usize {
        self.buffered.load(Ordering::Relaxed)
    }

    /// Waits until one more connection may be open; the permit is its place. Called by the one
    /// thread that accepts.
    pub(crate) async fn connection(&self) -> OwnedSemaphorePermit {
        if let Ok(place) = Arc::clone(&self.connections).try_acquire_owned() {
            self.room.enough();
            return place;
        }
        self.room.ask(Instant::now());
        match Arc::clone(&self.connections).acquire_owned().await {
            Ok(permit) => permit,
            // Nothing closes the semaphore.
            Err(_) => std::future::pending().await,
        }
    }

    /// What idle connections are asked for while there is no place.
    pub(crate) fn room(&self) -> &Room {
        &self.room
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

/// Places that idle connections are asked to give up while new ones wait for one.
///
/// A server that is full of clients that ask nothing would otherwise keep others out for
/// as long as it keeps idle connections.
pub(crate) struct Room {
    wanted: AtomicUsize,
    /// How many were asked for last, and when.
    last: Mutex<Option<(usize, Instant)>>,
    most: usize,
}

impl Room {
    fn new(max_connections: usize) -> Self {
        Self {
            wanted: AtomicUsize::new(0),
            last: Mutex::default(),
            most: (max_connections / 20).max(1),
        }
    }

    /// Asks for one place, or for twice as many as a moment before: those were not enough.
    fn ask(&self, now: Instant) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let wanted = match *last {
            Some((before, at)) if now.duration_since(at) < AGAIN => (before * 2).min(self.most),
            _ => 1,
        };
        *last = Some((wanted, now));
        self.wanted.store(wanted, Ordering::Relaxed);
    }

    /// There is a place.
    fn enough(&self) {
        self.wanted.store(0, Ordering::Relaxed);
    }

    /// Whether any place is asked for.
    pub(crate) fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::Relaxed) > 0
    }

    /// Takes it on to give up one place; false where others have given enough.
    pub(crate) fn give(&self) -> bool {
        let fewer = |wanted: usize| wanted.checked_sub(1);
        self.wanted
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, fewer)
            .is_ok()
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

    /// How many places are given at most.
    fn given(room: &Room) -> usize {
        std::iter::repeat_with(|| room.give())
            .take_while(|&given| given)
            .count()
    }

    #[test]
    fn ever_more_places_are_asked_for_until_there_is_one_at_once() {
        let (room, start) = (Room::new(100), Instant::now());
        let asked = |after: u64| {
            room.ask(start + Duration::from_secs(after));
            given(&room)
        };
        assert_eq!([0, 1, 2, 3].map(asked), [1, 2, 4, 5]);
        assert_eq!(asked(60), 1);
        room.ask(start);
        room.enough();
        assert!(!room.is_wanted());
        assert_eq!(given(&room), 0);
    }
}
