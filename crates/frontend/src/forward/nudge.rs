//! Keeps the two halves of one connection from waking the task that polls both.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

/// How often a connection is polled at once before other tasks have their turn.
const MOST_TURNS: usize = 16;

/// The HTTP library's halves of a connection wake each other as if each had a task
/// of its own, so one task with both would be polled again after each exchange, for
/// nothing. This notes such a wake-up, and only if the halves are not done with each
/// other are they polled again. The socket wakes the task itself, as [`Sleeper`] says.
pub(crate) struct Nudge {
    noted: Arc<Noted>,
    waker: Waker,
    sleeper: Sleeper,
    /// Whether anything came over the socket while no task was waiting for it.
    stirred: Arc<Noted>,
}

/// The task to wake when something comes over the socket: shared with the stream.
pub(crate) type Sleeper = Rc<RefCell<Waker>>;

struct Noted(AtomicBool);

impl Wake for Noted {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Nudge {
    pub(super) fn new() -> Self {
        let noted = Arc::new(Noted(AtomicBool::new(false)));
        Self {
            waker: Waker::from(Arc::clone(&noted)),
            noted,
            sleeper: Rc::new(RefCell::new(Waker::noop().clone())),
            stirred: Arc::new(Noted(AtomicBool::new(false))),
        }
    }

    /// From the next poll on no task waits for the socket: what comes is noted.
    pub(super) fn rest(&self) {
        self.stirred.0.store(false, Ordering::Relaxed);
        *self.sleeper.borrow_mut() = Waker::from(Arc::clone(&self.stirred));
    }

    /// Whether anything came, the end perhaps, since the connection was put to rest.
    pub(super) fn has_stirred(&self) -> bool {
        self.stirred.0.load(Ordering::Relaxed)
    }

    pub(super) fn sleeper(&self) -> Sleeper {
        Rc::clone(&self.sleeper)
    }

    /// Says which task waits for the socket.
    pub(super) fn wake(&self, task: &Waker) {
        if !self.sleeper.borrow().will_wake(task) {
            self.sleeper.borrow_mut().clone_from(task);
        }
    }

    /// Polls both halves, which `poll` does with the context it is given, until they
    /// wait for the socket alone. If that does not end soon, `task` has another turn.
    pub(super) fn poll<T>(
        &self,
        task: &Waker,
        mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        for _ in 0..MOST_TURNS {
            self.noted.0.store(false, Ordering::Relaxed);
            let polled = poll(&mut Context::from_waker(&self.waker));
            if polled.is_ready() || !self.noted.0.load(Ordering::Relaxed) {
                return polled;
            }
        }
        task.wake_by_ref();
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// A task's waker, and whether it was woken.
    fn task() -> (Arc<Noted>, Waker) {
        let noted = Arc::new(Noted(AtomicBool::new(false)));
        (Arc::clone(&noted), Waker::from(noted))
    }

    #[test]
    fn halves_that_wake_each_other_are_polled_again_without_waking_the_task() {
        let (woken, waker) = task();
        let turns = Cell::new(0);
        let polled = Nudge::new().poll(&waker, |cx| {
            turns.set(turns.get() + 1);
            if turns.get() < 3 {
                cx.waker().wake_by_ref();
            }
            Poll::<()>::Pending
        });
        assert!(polled.is_pending());
        assert_eq!(turns.get(), 3);
        assert!(!woken.0.load(Ordering::Relaxed));
    }

    #[test]
    fn halves_that_are_never_done_let_other_tasks_have_their_turn() {
        let (woken, waker) = task();
        let polled = Nudge::new().poll(&waker, |cx| {
            cx.waker().wake_by_ref();
            Poll::<()>::Pending
        });
        assert!(polled.is_pending());
        assert!(woken.0.load(Ordering::Relaxed));
    }

    #[test]
    fn the_socket_wakes_the_task_that_waits_for_it() {
        let nudge = Nudge::new();
        let sleeper = nudge.sleeper();
        for _ in 0..2 {
            let (woken, waker) = task();
            nudge.wake(&waker);
            sleeper.borrow().wake_by_ref();
            assert!(woken.0.load(Ordering::Relaxed));
        }
    }

    #[test]
    fn a_connection_at_rest_wakes_no_task_and_has_stirred_only_if_something_came() {
        let nudge = Nudge::new();
        let (woken, waker) = task();
        nudge.wake(&waker);
        nudge.rest();
        assert!(!nudge.has_stirred());
        nudge.sleeper().borrow().wake_by_ref();
        assert!(nudge.has_stirred());
        assert!(!woken.0.load(Ordering::Relaxed));
        nudge.rest();
        assert!(!nudge.has_stirred());
    }
}
