//! Counting failures, and the wait after each.

use std::time::{Duration, Instant};

use crate::RestartPolicy;
use crate::random::Jitter;

/// The failures that still count.
#[derive(Debug, Default)]
pub(super) struct Failures {
    counted: Vec<Counted>,
}

#[derive(Debug)]
struct Counted {
    at: Instant,
    /// Whether a start has become ready since.
    recovered: bool,
}

impl Failures {
    /// Counts one more and returns how many count now. A failure is forgotten once it is older
    /// than the window and a start has become ready since: a success alone resets nothing, or a
    /// worker that dies soon after each start would go on for ever; and age alone resets nothing,
    /// or one that takes longer than the window to fail would.
    pub(super) fn record(&mut self, now: Instant, policy: &RestartPolicy) -> u32 {
        self.counted.retain(|failure| {
            !failure.recovered || now.saturating_duration_since(failure.at) <= policy.window
        });
        self.counted.push(Counted {
            at: now,
            recovered: false,
        });
        u32::try_from(self.counted.len()).unwrap_or(u32::MAX)
    }

    /// Notes that a start became ready.
    pub(super) fn recovered(&mut self) {
        for failure in &mut self.counted {
            failure.recovered = true;
        }
    }
}

/// The wait after the `count`th failure: doubled for each one before it, up to the cap, less the
/// jitter.
pub(super) fn delay(policy: &RestartPolicy, count: u32, jitter: &mut Jitter) -> Duration {
    let doublings = count.saturating_sub(1).min(31);
    let full = policy
        .first_delay
        .saturating_mul(1 << doublings)
        .min(policy.max_delay);
    full.mul_f64(1.0 - policy.jitter.clamp(0.0, 1.0) * jitter.fraction())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn policy() -> RestartPolicy {
        RestartPolicy {
            window: Duration::from_secs(100),
            ..RestartPolicy::default()
        }
    }

    #[test]
    fn a_success_does_not_reset_the_count_within_the_window() {
        let (mut failures, start) = (Failures::default(), Instant::now());
        for n in 1..=4 {
            let at = start + Duration::from_secs(u64::from(n));
            assert_eq!(failures.record(at, &policy()), n);
            failures.recovered();
        }
    }

    #[test]
    fn failures_before_a_success_are_forgotten_after_the_window() {
        let (mut failures, start) = (Failures::default(), Instant::now());
        failures.record(start, &policy());
        failures.recovered();
        assert_eq!(
            failures.record(start + Duration::from_secs(101), &policy()),
            1
        );
    }

    #[test]
    fn failures_slower_than_the_window_still_add_up_without_a_success() {
        let (mut failures, start) = (Failures::default(), Instant::now());
        for n in 1..=4 {
            let at = start + Duration::from_secs(1000 * u64::from(n));
            assert_eq!(failures.record(at, &policy()), n);
        }
    }

    proptest! {
        #[test]
        fn a_wait_doubles_within_jitter_and_stays_under_the_cap(
            count in 1_u32..80, seed: u64, jitter in 0.0..=1.0,
        ) {
            let policy = RestartPolicy { jitter, ..RestartPolicy::default() };
            let wait = delay(&policy, count, &mut Jitter::seeded(seed));
            let full = policy.first_delay.as_secs_f64() * 2_f64.powi(i32::try_from(count - 1).unwrap());
            let full = full.min(policy.max_delay.as_secs_f64());
            prop_assert!(wait <= policy.max_delay);
            prop_assert!(wait.as_secs_f64() <= full + 1e-6);
            prop_assert!(wait.as_secs_f64() >= full * (1.0 - jitter) - 1e-6);
        }
    }
}
