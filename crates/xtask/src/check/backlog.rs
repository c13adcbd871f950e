//! The checks that wait for what they need: two lanes take from it, each the next that can run.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// What a check may need before it can run, besides its turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Need {
    /// The Python environment.
    Python,
    /// The binary, as far as it will be built.
    Binary,
    /// The published clients.
    Clients,
    /// What the documentation's site is built with.
    Site,
}

/// Checks in the order in which they are to begin, each with what it needs.
pub(super) struct Backlog<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
}

struct State<T> {
    waiting: VecDeque<(&'static [Need], T)>,
    there: Vec<Need>,
}

impl<T> Backlog<T> {
    pub(super) fn new(checks: impl IntoIterator<Item = (&'static [Need], T)>) -> Self {
        Self {
            state: Mutex::new(State {
                waiting: checks.into_iter().collect(),
                there: Vec::new(),
            }),
            changed: Condvar::new(),
        }
    }

    /// What checks may need is there.
    pub(super) fn is_there(&self, need: Need) {
        self.change(|state| state.there.push(need));
    }

    /// It will not come: what needs it is not to run.
    pub(super) fn give_up(&self, need: Need) {
        self.change(|state| state.waiting.retain(|(needs, _)| !needs.contains(&need)));
    }

    /// Waits for the next check that can run; none when there is no more.
    pub(super) fn next(&self) -> Option<T> {
        let mut state = self.lock();
        loop {
            if state.waiting.is_empty() {
                return None;
            }
            let ready = state
                .waiting
                .iter()
                .position(|(needs, _)| needs.iter().all(|need| state.there.contains(need)));
            if let Some(at) = ready {
                return state.waiting.remove(at).map(|(_, check)| check);
            }
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn change(&self, change: impl FnOnce(&mut State<T>)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PYTHON: &[Need] = &[Need::Python];
    const BINARY: &[Need] = &[Need::Python, Need::Binary];

    fn backlog() -> Backlog<&'static str> {
        Backlog::new([(BINARY, "whole"), (PYTHON, "unit"), (PYTHON, "demo")])
    }

    #[test]
    fn what_can_run_comes_before_what_cannot_yet() {
        let backlog = backlog();
        backlog.is_there(Need::Python);
        assert_eq!(backlog.next(), Some("unit"));
        backlog.is_there(Need::Binary);
        assert_eq!(backlog.next(), Some("whole"));
        assert_eq!(backlog.next(), Some("demo"));
        assert_eq!(backlog.next(), None);
    }

    #[test]
    fn a_lane_waits_for_what_its_next_check_needs() {
        let backlog = backlog();
        std::thread::scope(|scope| {
            let lane = scope.spawn(|| backlog.next());
            backlog.is_there(Need::Python);
            assert_eq!(lane.join().unwrap(), Some("unit"));
        });
    }

    #[test]
    fn what_needs_what_will_not_come_keeps_nobody() {
        let backlog = Backlog::new([(&[Need::Clients][..], "clients"), (BINARY, "whole")]);
        backlog.is_there(Need::Python);
        backlog.is_there(Need::Binary);
        assert_eq!(backlog.next(), Some("whole"));
        backlog.give_up(Need::Clients);
        assert_eq!(backlog.next(), None);
    }

    #[test]
    fn nobody_waits_for_what_will_not_come() {
        let backlog = backlog();
        std::thread::scope(|scope| {
            let lane = scope.spawn(|| backlog.next());
            backlog.give_up(Need::Python);
            assert_eq!(lane.join().unwrap(), None);
        });
    }
}
