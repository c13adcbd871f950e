//! How often a lane's own kind of request comes.

use std::time::Instant;

/// How much one arrival moves the mean.
const SHARE: f64 = 0.1;

/// The requests within a lane's limits, wherever they went.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Arrivals {
    last: Option<Instant>,
    /// The mean time between two, in seconds.
    gap: f64,
}

impl Arrivals {
    pub(crate) fn note(&mut self, now: Instant) {
        if let Some(last) = self.last {
            let gap = now.saturating_duration_since(last).as_secs_f64();
            self.gap += SHARE * (gap - self.gap);
        }
        self.last = Some(now);
    }

    /// How many are to be expected within so many seconds. After a pause there are fewer.
    pub(crate) fn within(&self, seconds: f64, now: Instant) -> f64 {
        let Some(last) = self.last else {
            return 0.0;
        };
        let since = now.saturating_duration_since(last).as_secs_f64();
        seconds / self.gap.max(since).max(1e-6)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_came_often_is_expected_until_it_has_stayed_away() {
        let (mut arrivals, mut now) = (Arrivals::default(), Instant::now());
        assert!(arrivals.within(1.0, now) < 1e-9);
        for _ in 0..100 {
            now += Duration::from_millis(10);
            arrivals.note(now);
        }
        let soon = arrivals.within(0.1, now);
        assert!((9.0..11.0).contains(&soon), "{soon}");
        let later = arrivals.within(0.1, now + Duration::from_secs(2));
        assert!(later < 0.1, "{later}");
    }
}
