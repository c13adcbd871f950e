//! Takes a lane's traffic away when it is in trouble, and gives it back when it has recovered.

use std::time::{Duration, Instant};

/// Failures in a row that open it.
const FAILURES: u32 = 3;
/// Answers that are looked at together for their time.
const WINDOW: u32 = 16;
/// So many times its usual time is slow.
const FACTOR: f64 = 4.0;
/// What takes no more than so many seconds beyond the usual is not: that much is noise.
const NOISE: f64 = 0.02;
/// The first wait before a probe, and the longest.
const FIRST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// Good probes in a row that close it.
const PROBES: u32 = 2;

/// Why a lane has lost its traffic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Trouble {
    /// It takes several times as long as it usually does.
    Slow,
    /// Its connections break, or it answers 5xx.
    Failing,
    /// It says itself that its answers no longer agree with the reference.
    Parity,
}

impl Trouble {
    /// Its name in metrics and logs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Slow => "slow",
            Self::Failing => "failing",
            Self::Parity => "parity",
        }
    }
}

/// Where a breaker stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BreakerState {
    /// The lane has its traffic.
    Closed,
    /// It has none.
    Open(Trouble),
    /// It has one request at a time, to see whether it has recovered.
    HalfOpen(Trouble),
}

impl BreakerState {
    /// Its name in metrics and logs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open(_) => "open",
            Self::HalfOpen(_) => "half_open",
        }
    }

    /// Why it is not closed.
    pub const fn trouble(self) -> Option<Trouble> {
        match self {
            Self::Closed => None,
            Self::Open(trouble) | Self::HalfOpen(trouble) => Some(trouble),
        }
    }
}

/// The breaker of one lane.
#[derive(Debug, Clone)]
pub struct Breaker {
    state: BreakerState,
    failures: u32,
    window: Window,
    probing: bool,
    good_probes: u32,
    wait: Duration,
    probe_at: Option<Instant>,
    opened: u64,
}

/// What the last answers took, and what they usually take.
#[derive(Debug, Clone, Copy, Default)]
struct Window {
    count: u32,
    passed: f64,
    usual: f64,
}

impl Default for Breaker {
    fn default() -> Self {
        Self {
            state: BreakerState::Closed,
            failures: 0,
            window: Window::default(),
            probing: false,
            good_probes: 0,
            wait: FIRST_WAIT,
            probe_at: None,
            opened: 0,
        }
    }
}

impl Breaker {
    /// Where it stands now.
    pub fn state(&self, now: Instant) -> BreakerState {
        match self.state {
            // Only a look at the lane's health can say that parity is back.
            BreakerState::Open(trouble)
                if trouble != Trouble::Parity && self.probe_at.is_none_or(|at| at <= now) =>
            {
                BreakerState::HalfOpen(trouble)
            }
            state => state,
        }
    }

    /// What it is open or half-open for.
    pub(crate) fn trouble(&self) -> Option<Trouble> {
        self.state.trouble()
    }

    /// How often it has opened.
    pub fn opened(&self) -> u64 {
        self.opened
    }

    /// Whether a probe may be sent now.
    pub(crate) fn wants_probe(&self, now: Instant) -> bool {
        !self.probing && matches!(self.state(now), BreakerState::HalfOpen(_))
    }

    /// A request is sent to it as a probe.
    pub(crate) fn probe(&mut self, now: Instant) {
        self.state = self.state(now);
        self.probing = true;
    }

    /// A request was answered, `passed` seconds after the lane turned to it; it `usual`ly takes
    /// so many, if that is known.
    pub(crate) fn served(&mut self, probe: bool, passed: f64, usual: Option<f64>, now: Instant) {
        self.failures = 0;
        if probe {
            let slow = usual.is_some_and(|usual| is_slow(passed, usual));
            self.probed(!slow, now);
            return;
        }
        if let (BreakerState::Closed, Some(usual)) = (self.state, usual) {
            let window = &mut self.window;
            window.count += 1;
            window.passed += passed;
            window.usual += usual;
            if window.count >= WINDOW {
                let count = f64::from(window.count);
                let slow = is_slow(window.passed / count, window.usual / count);
                *window = Window::default();
                if slow {
                    self.open(Trouble::Slow, now);
                }
            }
        }
    }

    /// A request failed: no connection, a broken answer, or 5xx.
    pub(crate) fn failed(&mut self, probe: bool, now: Instant) {
        if probe {
            self.probed(false, now);
            return;
        }
        self.failures = self.failures.saturating_add(1);
        if self.state == BreakerState::Closed && self.failures >= FAILURES {
            self.open(Trouble::Failing, now);
        }
    }

    /// The lane has something for so long that it must be stuck.
    pub(crate) fn stuck(&mut self, now: Instant) {
        if self.state == BreakerState::Closed {
            self.open(Trouble::Slow, now);
        }
    }

    /// A request was answered in a way that tells nothing of the lane's times.
    pub(crate) fn answered(&mut self, probe: bool) {
        self.failures = 0;
        self.abandoned(probe);
    }

    /// A request ended without telling anything: its client left, say.
    pub(crate) fn abandoned(&mut self, probe: bool) {
        self.probing &= !probe;
    }

    /// What the lane says of its own parity.
    pub(crate) fn parity(&mut self, good: bool, now: Instant) {
        match (self.state.trouble(), good) {
            (Some(Trouble::Parity), true) => self.close(),
            (Some(Trouble::Parity), false) | (_, true) => {}
            (_, false) => self.open(Trouble::Parity, now),
        }
    }

    /// There is another process behind the lane: what was wrong with the old one is gone.
    pub(crate) fn renewed(&mut self) {
        self.close();
    }

    fn probed(&mut self, good: bool, now: Instant) {
        self.probing = false;
        let BreakerState::HalfOpen(trouble) = self.state else {
            return;
        };
        if !good {
            self.wait = (self.wait * 2).min(LONGEST_WAIT);
            self.state = BreakerState::Open(trouble);
            self.probe_at = Some(now + self.wait);
            self.good_probes = 0;
            return;
        }
        self.good_probes += 1;
        if self.good_probes >= PROBES {
            self.close();
        }
    }

    fn open(&mut self, trouble: Trouble, now: Instant) {
        self.state = BreakerState::Open(trouble);
        self.probe_at = Some(now + self.wait);
        self.good_probes = 0;
        self.opened += 1;
    }

    fn close(&mut self) {
        *self = Self {
            opened: self.opened,
            ..Self::default()
        };
    }
}

fn is_slow(passed: f64, usual: f64) -> bool {
    passed > usual * FACTOR && passed > usual + NOISE
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn failures_in_a_row_open_it_and_good_probes_close_it() {
        let (mut breaker, start) = (Breaker::default(), Instant::now());
        breaker.failed(false, start);
        breaker.failed(false, start);
        breaker.served(false, 0.1, None, start);
        breaker.failed(false, start);
        breaker.failed(false, start);
        assert_eq!(breaker.state(start), BreakerState::Closed);
        breaker.failed(false, start);
        assert_eq!(breaker.state(start), BreakerState::Open(Trouble::Failing));
        assert!(!breaker.wants_probe(start));

        let later = start + SECOND;
        assert!(breaker.wants_probe(later));
        breaker.probe(later);
        assert!(!breaker.wants_probe(later), "one at a time");
        breaker.failed(true, later);
        assert!(!breaker.wants_probe(later + SECOND), "it waits longer now");
        let later = later + 2 * SECOND;
        for _ in 0..PROBES {
            assert!(breaker.wants_probe(later));
            breaker.probe(later);
            breaker.served(true, 0.1, None, later);
        }
        assert_eq!(breaker.state(later), BreakerState::Closed);
    }

    #[test]
    fn a_lane_that_takes_several_times_as_long_as_usual_is_slow() {
        let (mut breaker, now) = (Breaker::default(), Instant::now());
        for _ in 0..10 * WINDOW {
            breaker.served(false, 0.03, Some(0.01), now);
            breaker.served(false, 9.0, None, now);
        }
        assert_eq!(breaker.state(now), BreakerState::Closed);
        for _ in 0..WINDOW {
            breaker.served(false, 0.05, Some(0.01), now);
        }
        assert_eq!(breaker.state(now), BreakerState::Open(Trouble::Slow));
        let later = now + SECOND;
        breaker.probe(later);
        breaker.served(true, 0.05, Some(0.01), later);
        assert_eq!(breaker.state(later), BreakerState::Open(Trouble::Slow));
    }

    #[test]
    fn a_lane_without_parity_is_never_probed_and_comes_back_by_its_own_word() {
        let (mut breaker, now) = (Breaker::default(), Instant::now());
        breaker.parity(false, now);
        let later = now + 1000 * SECOND;
        assert!(!breaker.wants_probe(later));
        assert_eq!(breaker.state(later), BreakerState::Open(Trouble::Parity));
        breaker.parity(true, later);
        assert_eq!(breaker.state(later), BreakerState::Closed);
        assert_eq!(breaker.opened(), 1);
    }
}
