//! How fast a body has to come, and an answer has to be taken.

use std::time::{Duration, Instant};

/// Bytes a second that a body has to keep up with, past its first moments.
const RATE: u32 = 16 * 1024;

/// One body's progress.
pub(crate) struct Pace {
    begun: Instant,
    moved: usize,
}

impl Pace {
    pub(crate) fn new(begun: Instant) -> Self {
        Self { begun, moved: 0 }
    }

    /// So many more bytes have gone by.
    pub(crate) fn advance(&mut self, bytes: usize) {
        self.moved = self.moved.saturating_add(bytes);
    }

    /// When more has to have come, now that `bytes` have: a pause as long as
    /// `allowed` ends a body, and so does falling that far behind the rate.
    pub(crate) fn deadline(&mut self, now: Instant, bytes: usize, allowed: Duration) -> Instant {
        self.advance(bytes);
        let moved = u32::try_from(self.moved).unwrap_or(u32::MAX);
        let earned = Duration::from_secs(1) * moved / RATE;
        (now + allowed).min(self.begun + allowed + earned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALLOWED: Duration = Duration::from_secs(10);

    #[test]
    fn a_body_that_keeps_up_may_pause_as_long_as_allowed() {
        let begun = Instant::now();
        let mut pace = Pace::new(begun);
        let now = begun + Duration::from_mins(1);
        assert_eq!(pace.deadline(now, 64 * 16 * 1024, ALLOWED), now + ALLOWED);
    }

    #[test]
    fn a_body_that_drips_is_ended_all_the_same() {
        let begun = Instant::now();
        let mut pace = Pace::new(begun);
        for second in 0..9 {
            let now = begun + Duration::from_secs(second);
            let deadline = pace.deadline(now, 1, ALLOWED);
            assert!(deadline < begun + ALLOWED + Duration::from_millis(1));
        }
    }
}
