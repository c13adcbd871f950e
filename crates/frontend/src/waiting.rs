//! Who waits for the backend, for how long, and whether the backend is still there.
//!
//! A backend may answer its health while nothing else comes back, and its process may be gone
//! while something holds its connections open. Neither shows in one request, so each thread keeps
//! a list of those that wait; whoever looks after the backend's process reads it, and tells when
//! that process is gone.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use slab::Slab;
use tokio::sync::watch;

use crate::fault::Fault;

/// The requests at one generation of the backend, now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Load {
    /// Requests that have been sent and not answered.
    pub in_flight: usize,
    /// For how long no decision (a `POST` answered 2xx) has come back although one was asked for:
    /// by a request that still waits, or by one that waited until its time was over. `None` if
    /// none waits.
    pub unanswered_for: Option<Duration>,
}

/// The requests of one thread. Locked for moments, by others only a few times a second.
#[derive(Debug, Default)]
pub(crate) struct WaitingList(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// The generation that all of it is about.
    generation: u64,
    sent: Slab<Sent>,
    /// When the first request was sent that timed out with no decision since.
    timed_out: Option<Instant>,
    /// When the last decision came.
    decided: Option<Instant>,
}

#[derive(Debug)]
struct Sent {
    at: Instant,
    decision: bool,
}

/// A request's place on the list, given up when dropped.
pub(crate) struct Waiting {
    list: Arc<WaitingList>,
    generation: u64,
    key: usize,
}

impl WaitingList {
    /// Enters a request that is sent now; `decision` if it asks for one.
    pub(crate) fn enter(
        self: &Arc<Self>,
        generation: u64,
        at: Instant,
        decision: bool,
    ) -> Option<Waiting> {
        let mut inner = self.lock();
        if generation > inner.generation {
            // What still waits for the old process says nothing about the new one.
            *inner = Inner {
                generation,
                ..Inner::default()
            };
        }
        (generation == inner.generation).then(|| Waiting {
            list: Arc::clone(self),
            generation,
            key: inner.sent.insert(Sent { at, decision }),
        })
    }

    /// What waits for this generation.
    pub(crate) fn load(&self, generation: u64, now: Instant) -> Load {
        let inner = self.lock();
        if generation != inner.generation {
            return Load::default();
        }
        let decisions = inner.sent.iter().filter(|(_, sent)| sent.decision);
        let oldest = decisions
            .map(|(_, sent)| sent.at)
            .chain(inner.timed_out)
            .min();
        Load {
            in_flight: inner.sent.len(),
            unanswered_for: oldest.map(|oldest| {
                let since = inner.decided.map_or(oldest, |at| at.max(oldest));
                now.saturating_duration_since(since)
            }),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting {
    /// It was answered 2xx.
    pub(crate) fn decided(self, now: Instant) {
        let mut inner = self.list.lock();
        if inner.generation == self.generation
            && inner.sent.get(self.key).is_some_and(|sent| sent.decision)
        {
            inner.decided = Some(now);
            inner.timed_out = None;
        }
    }

    /// The request's time was over.
    pub(crate) fn timed_out(self) {
        let mut inner = self.list.lock();
        if inner.generation == self.generation
            && let Some(sent) = inner.sent.get(self.key)
            && sent.decision
            && inner.decided.is_none_or(|at| at <= sent.at)
        {
            let first = inner.timed_out.map_or(sent.at, |at| at.min(sent.at));
            inner.timed_out = Some(first);
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut inner = self.list.lock();
        if inner.generation == self.generation {
            inner.sent.try_remove(self.key);
        }
    }
}

/// The last process that is known to be gone, of all before it as well.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Lost {
    pub(crate) generation: u64,
    pub(crate) why: String,
}

impl Lost {
    /// What the requests to this generation are answered, if it is gone.
    pub(crate) fn fault(&self, generation: u64) -> Option<Fault> {
        (generation <= self.generation).then(|| Fault::Lost {
            why: self.why.clone(),
        })
    }
}

/// What waits for the backend, in all threads. Clones are the same.
#[derive(Debug, Clone)]
pub struct Requests {
    lists: Vec<Arc<WaitingList>>,
    lost: watch::Sender<Option<Lost>>,
}

impl Requests {
    pub(crate) fn new(lists: Vec<Arc<WaitingList>>, lost: watch::Sender<Option<Lost>>) -> Self {
        Self { lists, lost }
    }

    /// The requests at this generation of the backend now.
    pub fn load(&self, generation: u64) -> Load {
        let now = Instant::now();
        let loads = self.lists.iter().map(|list| list.load(generation, now));
        loads.fold(Load::default(), |sum, load| Load {
            in_flight: sum.in_flight + load.in_flight,
            unanswered_for: sum.unanswered_for.max(load.unanswered_for),
        })
    }

    /// Tells that the process behind this generation of the backend, and those before it, are
    /// gone: who still waits for an answer of theirs is answered 502 with `why` at once, whether
    /// or not the connection shows it.
    pub fn lost(&self, generation: u64, why: impl Into<String>) {
        let why = why.into();
        self.lost.send_if_modified(|last| {
            let newer = last
                .as_ref()
                .is_none_or(|last| last.generation < generation);
            if newer {
                *last = Some(Lost { generation, why });
            }
            newer
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn unanswered(list: &WaitingList, now: Instant) -> Option<u64> {
        list.load(1, now).unanswered_for.map(|age| age.as_secs())
    }

    #[test]
    fn the_oldest_request_that_waits_counts_until_it_leaves() {
        let (list, start) = (Arc::new(WaitingList::default()), Instant::now());
        let first = list.enter(1, start, true).unwrap();
        let _second = list.enter(1, start + 4 * SECOND, true).unwrap();
        assert_eq!(unanswered(&list, start + 5 * SECOND), Some(5));
        assert_eq!(list.load(1, start).in_flight, 2);
        drop(first);
        assert_eq!(unanswered(&list, start + 5 * SECOND), Some(1));
    }

    #[test]
    fn a_request_that_timed_out_counts_until_a_decision_comes() {
        let (list, start) = (Arc::new(WaitingList::default()), Instant::now());
        list.enter(1, start, true).unwrap().timed_out();
        assert_eq!(list.load(1, start).in_flight, 0);
        assert_eq!(unanswered(&list, start + 9 * SECOND), Some(9));
        let later = list.enter(1, start + 9 * SECOND, true).unwrap();
        later.decided(start + 10 * SECOND);
        assert_eq!(unanswered(&list, start + 11 * SECOND), None);
    }

    #[test]
    fn a_decision_restarts_the_count_of_those_that_still_wait() {
        let (list, start) = (Arc::new(WaitingList::default()), Instant::now());
        let slow = list.enter(1, start, true).unwrap();
        let quick = list.enter(1, start, true).unwrap();
        quick.decided(start + 50 * SECOND);
        assert_eq!(unanswered(&list, start + 60 * SECOND), Some(10));
        // One that others overtook says nothing about the process when it times out.
        slow.timed_out();
        assert_eq!(unanswered(&list, start + 60 * SECOND), None);
    }

    #[test]
    fn what_is_no_decision_is_in_flight_but_never_unanswered() {
        let (list, start) = (Arc::new(WaitingList::default()), Instant::now());
        let health = list.enter(1, start, false).unwrap();
        let load = list.load(1, start + SECOND);
        assert_eq!((load.in_flight, load.unanswered_for), (1, None));
        health.timed_out();
        assert_eq!(unanswered(&list, start + SECOND), None);
    }

    #[test]
    fn another_generation_starts_from_nothing() {
        let (list, start) = (Arc::new(WaitingList::default()), Instant::now());
        let old = list.enter(1, start, true).unwrap();
        let new = list.enter(2, start + SECOND, true).unwrap();
        assert_eq!(list.load(1, start + 2 * SECOND), Load::default());
        old.timed_out();
        assert!(list.enter(1, start, true).is_none());
        let load = list.load(2, start + 3 * SECOND);
        assert_eq!((load.in_flight, load.unanswered_for), (1, Some(2 * SECOND)));
        drop(new);
        assert_eq!(list.load(2, start + 3 * SECOND), Load::default());
    }
}
