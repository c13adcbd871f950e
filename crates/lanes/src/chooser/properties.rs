//! What holds whatever happens.

use proptest::prelude::*;

use super::rules::MARGIN;
use super::tests::{QUICK, ask};
use super::*;
use crate::Limits;

#[derive(Debug, Clone)]
enum Step {
    Ask {
        tokens: u32,
        questions: u32,
        requested: Option<usize>,
        tried: u8,
        is_read: bool,
    },
    Finish {
        which: usize,
        outcome: u8,
    },
    Ready {
        lane: usize,
        ready: bool,
    },
    Parity {
        lane: usize,
        good: bool,
    },
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (1u32..700, 1u32..8, proptest::option::of(0usize..3), 0u8..8, any::<bool>()).prop_map(
            |(tokens, questions, requested, tried, is_read)| {
                Step::Ask { tokens, questions, requested, tried, is_read }
            }),
        4 => (any::<usize>(), 0u8..6).prop_map(|(which, outcome)| Step::Finish { which, outcome }),
        1 => (0usize..3, any::<bool>()).prop_map(|(lane, ready)| Step::Ready { lane, ready }),
        1 => (0usize..3, any::<bool>()).prop_map(|(lane, good)| Step::Parity { lane, good }),
        3 => (0u64..3000).prop_map(Step::Wait),
    ]
}

const OUTCOMES: [Outcome; 6] = [
    Outcome::Answered,
    Outcome::Busy,
    Outcome::Served,
    Outcome::Refused,
    Outcome::Failed,
    Outcome::Abandoned,
];

/// Runs the steps; gives what was chosen.
fn run(steps: &[Step], start: Instant) -> Result<Vec<Result<Choice, Refusal>>, TestCaseError> {
    let limits = [
        Limits::NONE,
        QUICK,
        Limits {
            max_tokens: Some(300),
            max_questions: Some(4),
        },
    ];
    let names = ["a", "b", "c"];
    let specs = names.iter().zip(limits).map(|(name, limits)| LaneSpec {
        helps: *name == "c",
        ..LaneSpec::new(*name, limits)
    });
    let mut lanes = Chooser::new(specs.collect());
    let (mut now, mut open, mut seen) = (start, Vec::new(), Vec::new());
    let (mut ready, mut parity, mut generations) = ([false; 3], [true; 3], [0; 3]);
    for step in steps {
        match *step {
            Step::Ask {
                tokens,
                questions,
                requested,
                tried: bits,
                is_read,
            } => {
                let mut tried = Tried::default();
                (0..3)
                    .filter(|at| bits & (1 << at) != 0)
                    .for_each(|at| tried.lost(at));
                let asked = Ask {
                    requested,
                    is_read,
                    ..ask(tokens, questions)
                };
                let before: usize = lanes.view(now).iter().map(|lane| lane.in_flight).sum();
                let chosen = lanes.choose(&asked, tried, now);
                let after: usize = lanes.view(now).iter().map(|lane| lane.in_flight).sum();
                prop_assert_eq!(after, before + usize::from(chosen.is_ok()));
                if let Ok(choice) = &chosen {
                    let at = choice.lane;
                    prop_assert!(ready[at] && parity[at] && !tried.has(at));
                    prop_assert!(requested.is_none_or(|wanted| wanted == at));
                    let most = if at == 2 || !is_read {
                        Limits::NONE
                    } else {
                        limits[at]
                    };
                    prop_assert!(most.max_questions.is_none_or(|most| questions <= most));
                    prop_assert!(
                        requested.is_some() || most.max_tokens.is_none_or(|most| tokens <= most)
                    );
                    open.push(choice.ticket);
                }
                seen.push(chosen);
            }
            Step::Finish { which, outcome } if !open.is_empty() => {
                let ticket = open.swap_remove(which % open.len());
                lanes.finish(ticket, OUTCOMES[usize::from(outcome)], now);
            }
            Step::Finish { .. } => {}
            Step::Ready { lane, ready: is } => {
                if is && !ready[lane] {
                    // Another process: its health is asked anew.
                    parity[lane] = true;
                    generations[lane] += 1;
                }
                ready[lane] = is;
                lanes.set_ready(lane, is.then_some(generations[lane]));
            }
            Step::Parity { lane, good } => {
                parity[lane] = good;
                lanes.set_parity(lane, good, now);
            }
            Step::Wait(millis) => now += Duration::from_millis(millis),
        }
    }
    for ticket in open {
        lanes.finish(ticket, Outcome::Abandoned, now);
        lanes.finish(ticket, Outcome::Served, now);
    }
    for lane in lanes.view(now) {
        prop_assert_eq!((lane.in_flight, lane.backlog), (0, Duration::ZERO));
    }
    Ok(seen)
}

proptest! {
    #[test]
    fn no_request_goes_where_it_may_not_and_the_same_calls_give_the_same_choices(
        steps in proptest::collection::vec(step(), 0..120),
    ) {
        let start = Instant::now();
        prop_assert_eq!(run(&steps, start)?, run(&steps, start)?);
    }

    #[test]
    fn of_two_lanes_that_take_it_the_one_that_answers_first_is_chosen(
        waiting in proptest::collection::vec((0usize..2, 1u32..500), 0..20), tokens in 1u32..500,
    ) {
        let mut lanes = Chooser::new(vec![
            LaneSpec::new("a", Limits::NONE), LaneSpec::new("b", Limits::NONE),
        ]);
        lanes.set_ready(0, Some(1));
        lanes.set_ready(1, Some(1));
        let now = Instant::now();
        for (lane, tokens) in waiting {
            let asked = Ask { requested: Some(lane), ..ask(tokens, 1) };
            prop_assert!(lanes.choose(&asked, Tried::default(), now).is_ok());
        }
        let choice = lanes.choose(&ask(tokens, 1), Tried::default(), now).unwrap();
        let margin = choice.estimate.mul_f64(MARGIN + 1e-6);
        prop_assert!(choice.backlogs[choice.lane] <= choice.backlogs[1 - choice.lane] + margin);
    }
}
