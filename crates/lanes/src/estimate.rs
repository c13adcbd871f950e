//! What a lane's requests take: what was measured or thought before, corrected by what is served.

use std::time::{Duration, Instant};

use crate::bucket::{LENGTH_BUCKETS, QUESTION_BUCKETS};
use crate::{Ask, Prior, length_bucket, question_bucket};

/// How much one observation moves what is expected of the next request.
const QUICK: f64 = 0.2;
/// How much the first ones do, and one that took less than half of what was expected: a lane that
/// was slow once is not left alone for it.
const AT_FIRST: f64 = 0.5;
const FIRST: u32 = 4;
/// For so long an observation is news.
const NEWS: Duration = Duration::from_secs(1);
/// How much it moves what is usual, which says whether the lane has slowed down.
const SLOW: f64 = 0.02;
/// After so many observations it is known what is usual.
const SETTLED: u32 = 20;
/// One strange observation must not make all estimates useless.
const MOST: f64 = 20.0;
/// Nor may a few slow ones make slowness usual before it is noticed.
const USUAL_MOST: f64 = 2.0;

/// The estimates of one lane.
#[derive(Debug, Clone)]
pub(crate) struct Estimates {
    prior: Prior,
    /// Those of what was read, then those of what was not, by its bytes.
    cells: Vec<Cell>,
    /// Of what the prior says, so much is true for what was never observed.
    scale: f64,
    /// Requests that had the lane for themselves, of any kind.
    observed: u32,
    /// Of the sum of what waiting requests take alone, so much passes until they are all answered:
    /// below one where they run in one batch.
    pace: f64,
}

/// One bucket's own times, in seconds.
#[derive(Debug, Clone, Copy, Default)]
struct Cell {
    quick: f64,
    usual: f64,
    count: u32,
    seen: Option<Instant>,
}

impl Estimates {
    pub(crate) fn new(prior: Prior) -> Self {
        Self {
            prior,
            cells: vec![Cell::default(); LENGTH_BUCKETS * (QUESTION_BUCKETS + 1)],
            scale: 1.0,
            observed: 0,
            pace: 1.0,
        }
    }

    /// Seconds that such a request takes alone.
    pub(crate) fn alone(&self, ask: &Ask) -> f64 {
        let cell = self.cells[place(ask)];
        if cell.count > 0 {
            cell.quick
        } else {
            self.prior.seconds(ask.tokens.count, ask.questions) * self.scale
        }
    }

    /// Seconds that such a request usually takes alone, if that is known. What was not read may be
    /// anything, so that nothing is usual for it.
    pub(crate) fn usual(&self, ask: &Ask) -> Option<f64> {
        if !ask.is_read {
            return None;
        }
        let cell = self.cells[place(ask)];
        if cell.count >= SETTLED {
            Some(cell.usual)
        } else if self.prior.is_measured() {
            Some(self.prior.seconds(ask.tokens.count, ask.questions))
        } else {
            None
        }
    }

    /// Whether such a request was observed just now.
    pub(crate) fn is_news(&self, ask: &Ask, now: Instant) -> bool {
        let seen = self.cells[place(ask)].seen;
        seen.is_some_and(|seen| now.saturating_duration_since(seen) < NEWS)
    }

    /// Whether anything is known but what is built in.
    pub(crate) fn is_blank(&self) -> bool {
        self.observed == 0 && !self.prior.is_measured()
    }

    pub(crate) fn pace(&self) -> f64 {
        self.pace
    }

    /// A request that had the lane for itself took so many seconds.
    pub(crate) fn observe_alone(&mut self, ask: &Ask, seconds: f64, now: Instant) {
        let seconds = seconds.max(1e-6);
        if ask.is_read {
            self.scale_by(seconds / self.prior.seconds(ask.tokens.count, ask.questions));
        }
        let cell = &mut self.cells[place(ask)];
        if cell.count == 0 {
            (cell.quick, cell.usual) = (seconds, seconds);
        } else {
            let is_better = seconds < cell.quick / 2.0;
            let share = if cell.count < FIRST || is_better {
                AT_FIRST
            } else {
                QUICK
            };
            cell.quick += share * (seconds.min(cell.quick * MOST) - cell.quick);
            // A plain mean until there is something to compare with.
            let share = SLOW.max(1.0 / f64::from(cell.count + 1));
            cell.usual += share * (seconds.min(cell.usual * USUAL_MOST) - cell.usual);
        }
        cell.count = cell.count.saturating_add(1);
        cell.seen = Some(now);
    }

    fn scale_by(&mut self, ratio: f64) {
        let ratio = bounded(ratio);
        self.scale = if self.observed == 0 {
            ratio
        } else {
            self.scale + QUICK * (ratio - self.scale)
        };
        self.observed = self.observed.saturating_add(1);
    }

    /// Requests that take `alone` seconds one after the other were answered within `passed`.
    pub(crate) fn observe_together(&mut self, alone: f64, passed: f64) {
        if alone > 0.0 {
            self.pace += QUICK * (bounded(passed / alone) - self.pace);
        }
    }
}

fn bounded(ratio: f64) -> f64 {
    if ratio.is_finite() {
        ratio.clamp(1.0 / 1000.0, 1000.0)
    } else {
        1.0
    }
}

fn place(ask: &Ask) -> usize {
    let length = length_bucket(ask.tokens.count);
    if ask.is_read {
        length * QUESTION_BUCKETS + question_bucket(ask.questions)
    } else {
        LENGTH_BUCKETS * QUESTION_BUCKETS + length
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Tokens;

    fn ask(tokens: u32) -> Ask {
        Ask {
            tokens: Tokens {
                count: tokens,
                exact: false,
            },
            questions: 1,
            requested: None,
            is_read: true,
        }
    }

    #[test]
    fn what_is_served_corrects_the_same_kind_at_once_and_the_others_in_proportion() {
        let (mut estimates, now) = (Estimates::new(Prior::built_in()), Instant::now());
        let long = estimates.alone(&ask(480));
        let short = estimates.alone(&ask(60));
        for _ in 0..30 {
            estimates.observe_alone(&ask(60), short * 3.0, now);
        }
        assert!((estimates.alone(&ask(60)) - short * 3.0).abs() < short * 0.01);
        assert!((estimates.alone(&ask(480)) - long * 3.0).abs() < long * 0.1);
    }

    #[test]
    fn what_is_usual_follows_slowly() {
        let (mut estimates, now) = (Estimates::new(Prior::built_in()), Instant::now());
        assert_eq!(estimates.usual(&ask(60)), None);
        for _ in 0..SETTLED {
            estimates.observe_alone(&ask(60), 0.01, now);
        }
        for _ in 0..5 {
            estimates.observe_alone(&ask(60), 0.1, now);
        }
        let usual = estimates.usual(&ask(60)).unwrap();
        assert!(estimates.alone(&ask(60)) > 0.06 && usual < 0.03, "{usual}");
    }

    #[test]
    fn requests_that_are_batched_pass_faster_than_one_by_one() {
        let mut estimates = Estimates::new(Prior::built_in());
        for _ in 0..30 {
            estimates.observe_together(0.4, 0.1);
        }
        assert!((estimates.pace() - 0.25).abs() < 0.01);
    }

    #[test]
    fn what_was_not_read_is_learned_by_its_bytes_and_says_nothing_of_the_rest() {
        let (mut estimates, now) = (Estimates::new(Prior::built_in()), Instant::now());
        let (long, unread) = (estimates.alone(&ask(480)), Ask::unread(480));
        assert!((estimates.alone(&unread) - long).abs() < 1e-9);
        for _ in 0..SETTLED {
            estimates.observe_alone(&unread, 7.0, now);
        }
        assert!((estimates.alone(&unread) - 7.0).abs() < 0.1);
        assert_eq!(estimates.usual(&unread), None);
        assert!((estimates.alone(&ask(480)) - long).abs() < 1e-9);
        assert!(estimates.is_blank());
        assert!(estimates.alone(&Ask::unread(usize::MAX)) < 1.0);
    }
}
