//! Short requests among long ones, in bursts: the chooser before lanes that answer one request after
//! the other, in simulated time.

// A test that cannot go on says so by ending.
#![allow(clippy::unwrap_used)]

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use omni_jev_lanes::{Ask, Chooser, LaneSpec, Limits, Outcome, Ticket, Tokens, Tried};

const QUICK: Limits = Limits {
    max_tokens: Some(128),
    max_questions: Some(1),
};
const LATE: Duration = Duration::from_millis(100);
const BURST: Duration = Duration::from_secs(1);
const PERIOD: Duration = Duration::from_secs(3);
const KINDS: [Kind; 3] = [
    Kind {
        share: 60,
        tokens: 64,
        questions: 1,
        takes: Duration::from_millis(10),
    },
    Kind {
        share: 20,
        tokens: 480,
        questions: 1,
        takes: Duration::from_millis(70),
    },
    Kind {
        share: 20,
        tokens: 64,
        questions: 4,
        takes: Duration::from_millis(40),
    },
];
/// Requests a second that keep one lane busy all the time.
const MOST: f64 = 1.0 / 0.028;

#[derive(Clone, Copy)]
struct Kind {
    share: u64,
    tokens: u32,
    questions: u32,
    takes: Duration,
}

/// Numbers that look random and are the same each time.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        self.0 >> 33
    }

    /// Between 0 and 1, without either.
    fn share(&mut self) -> f64 {
        let number = u32::try_from(self.next() % 1_000_000).unwrap();
        (f64::from(number) + 0.5) / 1_000_000.0
    }
}

/// Moments of arrivals: three times the rate in the first second of three, nothing in the others.
fn arrivals(rate: f64, seconds: u32) -> Vec<(Duration, Kind)> {
    let mut chance = Chance(20_261_130);
    let mut found = Vec::new();
    for period in 0..seconds / 3 {
        let begin = PERIOD * period;
        let mut at = begin;
        loop {
            at += Duration::from_secs_f64(-chance.share().ln() / (rate * 3.0));
            if at > begin + BURST {
                break;
            }
            let mut drawn = chance.next() % 100;
            let kind = KINDS.iter().find(|kind| {
                let hit = drawn < kind.share;
                drawn = drawn.saturating_sub(kind.share);
                hit
            });
            found.push((at, *kind.unwrap()));
        }
    }
    found
}

struct Waiting {
    ticket: Ticket,
    since: Duration,
    kind: Kind,
}

/// What came of a run.
#[derive(Debug, Default)]
struct Seen {
    shorts: Vec<Duration>,
    others: Vec<Duration>,
    end: Duration,
}

impl Seen {
    fn late(&self) -> f64 {
        let late = self.shorts.iter().filter(|took| **took > LATE).count();
        f64::from(u32::try_from(late).unwrap())
            / f64::from(u32::try_from(self.shorts.len()).unwrap())
    }

    fn p99(&mut self) -> Duration {
        self.shorts.sort();
        self.shorts[self.shorts.len() * 99 / 100]
    }
}

/// Lets these lanes answer what arrives. `clients` ask without a pause instead, if there are any.
fn run(specs: Vec<LaneSpec>, arriving: &[(Duration, Kind)], clients: usize) -> Seen {
    let start = Instant::now();
    let count = specs.len();
    let mut lanes = Chooser::new(specs);
    (0..count).for_each(|lane| lanes.set_ready(lane, Some(1)));
    let mut queues: Vec<VecDeque<Waiting>> = (0..count).map(|_| VecDeque::new()).collect();
    let mut ends: Vec<Option<Duration>> = vec![None; count];
    let mut coming: VecDeque<(Duration, Kind)> = arriving.iter().copied().collect();
    let mut seen = Seen::default();
    if clients > 0 {
        for each in coming.iter_mut().take(clients) {
            each.0 = Duration::ZERO;
        }
    }
    let mut allowed = if clients > 0 { clients } else { usize::MAX };
    loop {
        let next_end = (0..count)
            .filter_map(|lane| Some((ends[lane]?, lane)))
            .min();
        let next_arrival = coming.front().filter(|_| allowed > 0).map(|(at, _)| *at);
        let (now, ended) = match (next_end, next_arrival) {
            (Some((end, lane)), None) => (end, Some(lane)),
            (Some((end, lane)), Some(at)) if clients == 0 && end <= at => (end, Some(lane)),
            (Some((end, _)), Some(at)) if clients > 0 => (end.min(at.max(seen.end)), None),
            (_, Some(at)) => (if clients > 0 { seen.end } else { at }, None),
            (None, None) => return seen,
        };
        seen.end = now;
        if let Some(lane) = ended {
            let done = queues[lane].pop_front().unwrap();
            lanes.finish(done.ticket, Outcome::Served, start + now);
            let took = now.saturating_sub(done.since);
            if done.kind.tokens == 64 && done.kind.questions == 1 {
                seen.shorts.push(took);
            } else {
                seen.others.push(took);
            }
            ends[lane] = queues[lane].front().map(|next| now + next.kind.takes);
            allowed = allowed.saturating_add(1);
            continue;
        }
        let (_, kind) = coming.pop_front().unwrap();
        allowed -= 1;
        let ask = Ask {
            tokens: Tokens {
                count: kind.tokens,
                exact: false,
            },
            questions: kind.questions,
            requested: None,
            is_read: true,
        };
        let choice = lanes.choose(&ask, Tried::default(), start + now).unwrap();
        let lane = choice.lane;
        queues[lane].push_back(Waiting {
            ticket: choice.ticket,
            since: now,
            kind,
        });
        ends[lane].get_or_insert(now + kind.takes);
    }
}

fn one() -> Vec<LaneSpec> {
    vec![LaneSpec::new("main", Limits::NONE)]
}

fn two() -> Vec<LaneSpec> {
    let quick = LaneSpec {
        helps: true,
        ..LaneSpec::new("quick", QUICK)
    };
    vec![LaneSpec::new("main", Limits::NONE), quick]
}

#[test]
fn short_requests_are_not_late_in_bursts_that_keep_one_lane_busy() {
    let due = arrivals(0.9 * MOST, 300);
    let (mut alone, mut both) = (run(one(), &due, 0), run(two(), &due, 0));
    assert!(alone.late() > 0.5, "{}", alone.late());
    assert!(both.late() <= 0.01, "{} {:?}", both.late(), both.p99());
    assert!(
        both.p99() * 5 <= alone.p99(),
        "{:?} {:?}",
        both.p99(),
        alone.p99()
    );
    // Nor do the others pay for it.
    let mean =
        |times: &[Duration]| times.iter().sum::<Duration>() / u32::try_from(times.len()).unwrap();
    assert!(mean(&both.others) < mean(&alone.others));
}

#[test]
fn two_lanes_answer_half_as_much_again_when_there_is_always_something_to_do() {
    let due = arrivals(0.9 * MOST, 300);
    let (alone, both) = (run(one(), &due, 32), run(two(), &due, 32));
    let ratio = alone.end.as_secs_f64() / both.end.as_secs_f64();
    assert!(ratio >= 1.5, "{ratio}");
}
