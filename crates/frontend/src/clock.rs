//! Deadlines that cost a store to set and nothing to let go.
//!
//! A timer of the runtime's is registered and removed again for each request,
//! and nearly none ever fires. Here every connection of a thread has one
//! [`Alarm`] for its whole life, and one task looks at all of them about once a
//! second, or earlier when the nearest deadline is nearer than that.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use slab::Slab;
use tokio::sync::Notify;

/// The longest time between two looks while any alarm exists.
const LOOK: Duration = Duration::from_secs(1);

/// The alarms of one thread.
#[derive(Clone, Default)]
pub(crate) struct Clock(Rc<Inner>);

#[derive(Default)]
struct Inner {
    slots: RefCell<Slab<Rc<Slot>>>,
    /// When the looking task looks next; `None` while it waits for a first alarm.
    next_look: Cell<Option<Instant>>,
    sooner: Notify,
}

#[derive(Default)]
struct Slot {
    deadline: Cell<Option<Instant>>,
    rang: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

impl Clock {
    pub(crate) fn alarm(&self) -> Alarm {
        let slot = Rc::new(Slot::default());
        let key = self.0.slots.borrow_mut().insert(Rc::clone(&slot));
        Alarm {
            clock: self.clone(),
            slot,
            key,
        }
    }

    /// Wakes every task that has an alarm, so that it sees a change of life.
    pub(crate) fn wake_all(&self) {
        for (_, slot) in self.0.slots.borrow().iter() {
            slot.wake();
        }
    }

    /// Rings what is due, and says when to look again: `None` when nothing is set.
    fn look(&self, now: Instant) -> Option<Instant> {
        let mut nearest = None;
        for (_, slot) in self.0.slots.borrow().iter() {
            let Some(deadline) = slot.deadline.get() else {
                continue;
            };
            if deadline <= now {
                slot.deadline.set(None);
                slot.rang.set(true);
                slot.wake();
            } else if nearest.is_none_or(|at| deadline < at) {
                nearest = Some(deadline);
            }
        }
        nearest
    }

    /// Looks for ever. `on_look` is called at each look, for work that is due
    /// about as often; it says whether it wants another look when no alarm does.
    pub(crate) async fn run(&self, mut on_look: impl FnMut(Instant) -> bool) {
        loop {
            let now = Instant::now();
            let nearest = self.look(now);
            let next = match (nearest, on_look(now)) {
                (Some(at), _) => Some(at.min(now + LOOK)),
                (None, true) => Some(now + LOOK),
                (None, false) => None,
            };
            self.0.next_look.set(next);
            match next {
                Some(at) => {
                    let sleep = tokio::time::sleep_until(at.into());
                    tokio::select! {
                        () = sleep => {}
                        () = self.0.sooner.notified() => {}
                    }
                }
                None => self.0.sooner.notified().await,
            }
        }
    }

    /// Asks for a look at or before `deadline`.
    fn expect(&self, deadline: Instant) {
        if self.0.next_look.get().is_none_or(|at| deadline < at) {
            // Said once: until the task has run, further alarms need not notify.
            self.0.next_look.set(Some(deadline));
            self.0.sooner.notify_one();
        }
    }
}

impl Slot {
    fn wake(&self) {
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
        }
    }
}

/// The one deadline of one task: whoever sets it next replaces it.
pub(crate) struct Alarm {
    clock: Clock,
    slot: Rc<Slot>,
    key: usize,
}

impl Alarm {
    /// Says which task to wake; called whenever that task is polled.
    pub(crate) fn watch(&self, cx: &Context<'_>) {
        let mut waker = self.slot.waker.borrow_mut();
        match &mut *waker {
            Some(known) if known.will_wake(cx.waker()) => {}
            slot => *slot = Some(cx.waker().clone()),
        }
    }

    pub(crate) fn set(&self, deadline: Instant) {
        self.slot.rang.set(false);
        self.slot.deadline.set(Some(deadline));
        self.clock.expect(deadline);
    }

    pub(crate) fn clear(&self) {
        self.slot.rang.set(false);
        self.slot.deadline.set(None);
    }

    /// Whether a deadline was set that has neither passed nor been cleared.
    pub(crate) fn is_set(&self) -> bool {
        self.slot.deadline.get().is_some()
    }

    /// Whether the deadline passed since it was last set.
    pub(crate) fn rang(&self) -> bool {
        self.slot.rang.get()
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        self.clock.0.slots.borrow_mut().remove(self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_due_rings() {
        let clock = Clock::default();
        let now = Instant::now();
        let (early, late) = (clock.alarm(), clock.alarm());
        early.set(now + Duration::from_secs(1));
        late.set(now + Duration::from_secs(3));
        assert_eq!(
            clock.look(now + Duration::from_secs(2)),
            Some(now + Duration::from_secs(3))
        );
        assert!(early.rang() && !late.rang());
        early.clear();
        assert!(!early.rang());
    }

    #[test]
    fn an_alarm_that_was_cleared_or_dropped_is_never_looked_for() {
        let clock = Clock::default();
        let now = Instant::now();
        let cleared = clock.alarm();
        cleared.set(now);
        cleared.clear();
        let dropped = clock.alarm();
        dropped.set(now);
        drop(dropped);
        assert_eq!(clock.look(now + Duration::from_secs(1)), None);
        assert!(!cleared.rang());
    }
}
