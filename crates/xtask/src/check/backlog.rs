//! The checks that wait for what they need: two lanes take from it, each the next that can run.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// What a check needs before it can run, besides its turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Need {
    /// The Python environment.
    Python,
    /// That, and the binary.
    Binary,
    /// Both, and the published clients.
    Clients,
}

/// Checks in the order in which they are to begin.
pub(super) struct Backlog<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
}

struct State<T> {
    waiting: VecDeque<(Need, T)>,
    python: bool,
    binary: bool,
    clients: bool,
}

impl<T> Backlog<T> {
    pub(super) fn new(checks: impl IntoIterator<Item = (Need, T)>) -> Self {
        Self {
            state: Mutex::new(State {
                waiting: checks.into_iter().collect(),
                python: false,
                binary: false,
                clients: false,
            }),
            changed: Condvar::new(),
        }
    }

    /// The Python environment is there.
    pub(super) fn python_is_ready(&self) {
        self.change(|state| state.python = true);
    }

    /// The binary is built, as far as it will be.
    pub(super) fn binary_is_ready(&self) {
        self.change(|state| state.binary = true);
    }

    /// The published clients are there.
    pub(super) fn clients_are_ready(&self) {
        self.change(|state| state.clients = true);
    }

    /// The clients will not come: what needs them is not to run.
    pub(super) fn give_up_clients(&self) {
        self.change(|state| state.waiting.retain(|(need, _)| *need != Need::Clients));
    }

    /// What they all need will not come: none of them is to run.
    pub(super) fn give_up(&self) {
        self.change(|state| state.waiting.clear());
    }

    /// Waits for the next check that can run; none when there is no more.
    pub(super) fn next(&self) -> Option<T> {
        let mut state = self.lock();
        loop {
            if state.waiting.is_empty() {
                return None;
            }
            let ready = state.waiting.iter().position(|(need, _)| match need {
                Need::Python => state.python,
                Need::Binary => state.python && state.binary,
                Need::Clients => state.python && state.binary && state.clients,
            });
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

    fn backlog() -> Backlog<&'static str> {
        Backlog::new([
            (Need::Binary, "whole"),
            (Need::Python, "unit"),
            (Need::Python, "demo"),
        ])
    }

    #[test]
    fn what_can_run_comes_before_what_cannot_yet() {
        let backlog = backlog();
        backlog.python_is_ready();
        assert_eq!(backlog.next(), Some("unit"));
        backlog.binary_is_ready();
        assert_eq!(backlog.next(), Some("whole"));
        assert_eq!(backlog.next(), Some("demo"));
        assert_eq!(backlog.next(), None);
    }

    #[test]
    fn a_lane_waits_for_what_its_next_check_needs() {
        let backlog = backlog();
        std::thread::scope(|scope| {
            let lane = scope.spawn(|| backlog.next());
            backlog.python_is_ready();
            assert_eq!(lane.join().unwrap(), Some("unit"));
        });
    }

    #[test]
    fn what_needs_clients_that_will_not_come_keeps_nobody() {
        let backlog = Backlog::new([(Need::Clients, "clients"), (Need::Binary, "whole")]);
        backlog.python_is_ready();
        backlog.binary_is_ready();
        assert_eq!(backlog.next(), Some("whole"));
        backlog.give_up_clients();
        assert_eq!(backlog.next(), None);
    }

    #[test]
    fn nobody_waits_for_what_will_not_come() {
        let backlog = backlog();
        std::thread::scope(|scope| {
            let lane = scope.spawn(|| backlog.next());
            backlog.give_up();
            assert_eq!(lane.join().unwrap(), None);
        });
    }
}
