use super::*;
use crate::{Limits, Tokens};
use proptest::prelude::*;

const MILLIS: Duration = Duration::from_millis(1);
const QUICK: Limits = Limits {
    max_tokens: Some(128),
    max_questions: Some(1),
};

/// A lane for everything and one for short requests of one question, both ready.
fn two() -> (Chooser, Instant) {
    let mut lanes = Chooser::new(vec![
        LaneSpec::new("main", Limits::NONE),
        LaneSpec::new("quick", QUICK),
    ]);
    lanes.set_ready(0, true);
    lanes.set_ready(1, true);
    (lanes, Instant::now())
}

fn ask(tokens: u32, questions: u32) -> Ask {
    Ask {
        tokens: Tokens {
            count: tokens,
            exact: false,
        },
        questions,
        requested: None,
    }
}

fn choose(lanes: &mut Chooser, ask: &Ask, now: Instant) -> (usize, Reason) {
    let choice = lanes.choose(ask, Tried::default(), now).unwrap();
    lanes.finish(choice.ticket, Outcome::Abandoned, now);
    (choice.lane, choice.reason)
}

/// Lets a lane serve requests one by one, each of which takes so long.
fn serve(
    lanes: &mut Chooser,
    lane: usize,
    ask: &Ask,
    took: Duration,
    times: u32,
    now: &mut Instant,
) {
    let asked = Ask {
        requested: Some(lane),
        ..*ask
    };
    for _ in 0..times {
        let choice = lanes.choose(&asked, Tried::default(), *now).unwrap();
        *now += took;
        lanes.finish(choice.ticket, Outcome::Served, *now);
    }
}

#[test]
fn the_rules_decide_in_their_order_and_are_named() {
    let (mut lanes, now) = two();
    assert_eq!(
        choose(&mut lanes, &ask(60, 1), now),
        (1, Reason::ShortAndSingle)
    );
    assert_eq!(
        choose(&mut lanes, &ask(60, 4), now),
        (0, Reason::SeveralQuestions)
    );
    assert_eq!(choose(&mut lanes, &ask(480, 1), now), (0, Reason::TooLong));
    assert_eq!(
        choose(&mut lanes, &ask(480, 4), now),
        (0, Reason::SeveralQuestions)
    );
    let asked = Ask {
        requested: Some(0),
        ..ask(60, 1)
    };
    assert_eq!(choose(&mut lanes, &asked, now), (0, Reason::LaneRequested));
    lanes.set_ready(1, false);
    assert_eq!(
        choose(&mut lanes, &ask(60, 1), now),
        (0, Reason::LaneNotReady)
    );
}

#[test]
fn a_lane_that_is_asked_for_is_obeyed_or_refused_with_the_reason() {
    let (mut lanes, now) = two();
    let quick = |tokens, questions, exact| Ask {
        tokens: Tokens {
            count: tokens,
            exact,
        },
        questions,
        requested: Some(1),
    };
    // Judged tokens refuse nothing; the lane counts them and may answer 421.
    assert_eq!(choose(&mut lanes, &quick(500, 1, false), now).0, 1);
    for (asked, words) in [
        (quick(500, 1, true), "128 tokens"),
        (quick(60, 2, true), "1 questions"),
    ] {
        match lanes.choose(&asked, Tried::default(), now) {
            Err(Refusal::NotObeyed(why)) => assert!(why.contains(words), "{why}"),
            other => panic!("{other:?}"),
        }
    }
    let mut tried = Tried::default();
    tried.refused(1);
    let again = lanes.choose(&quick(60, 1, false), tried, now);
    assert!(matches!(again, Err(Refusal::NotObeyed(_))), "{again:?}");
    lanes.set_ready(1, false);
    let gone = lanes.choose(&quick(60, 1, true), Tried::default(), now);
    assert_eq!(
        gone,
        Err(Refusal::Unavailable(
            "The lane quick is not ready.".to_owned()
        ))
    );
}

#[test]
fn a_short_request_goes_to_the_lane_that_would_answer_it_first() {
    let (mut lanes, now) = two();
    let short = ask(60, 1);
    let first = lanes.choose(&short, Tried::default(), now).unwrap();
    assert_eq!(first.lane, 1);
    assert_eq!(first.backlogs, [Duration::ZERO; 2]);
    let second = lanes.choose(&short, Tried::default(), now).unwrap();
    assert_eq!((second.lane, second.reason), (0, Reason::ShorterBacklog));
    assert_eq!(second.backlogs, [Duration::ZERO, first.estimate]);
    // What has run for a while leaves less.
    let later = now + first.estimate / 2;
    let third = lanes.choose(&short, Tried::default(), later).unwrap();
    assert_eq!(third.lane, 1);
    assert!(third.backlogs[1] < first.estimate);
}

#[test]
fn what_was_served_decides_the_next_choice() {
    let (mut lanes, mut now) = two();
    let short = ask(60, 1);
    serve(&mut lanes, 0, &short, 2 * MILLIS, 5, &mut now);
    serve(&mut lanes, 1, &short, 20 * MILLIS, 5, &mut now);
    assert_eq!(choose(&mut lanes, &short, now), (0, Reason::ShorterBacklog));
    serve(&mut lanes, 1, &short, MILLIS, 40, &mut now);
    assert_eq!(choose(&mut lanes, &short, now), (1, Reason::ShortAndSingle));
}

#[test]
fn a_lane_that_was_never_asked_is_thought_to_be_quick() {
    let (mut lanes, mut now) = two();
    serve(&mut lanes, 0, &ask(60, 1), MILLIS, 5, &mut now);
    assert_eq!(choose(&mut lanes, &ask(60, 1), now).0, 1);
}

#[test]
fn a_lane_that_loses_requests_loses_its_traffic_and_gets_it_back_by_probes() {
    let (mut lanes, mut now) = two();
    let short = ask(60, 1);
    for _ in 0..3 {
        let choice = lanes.choose(&short, Tried::default(), now).unwrap();
        assert_eq!(choice.lane, 1);
        let mut tried = Tried::default();
        tried.lost(1);
        lanes.finish(choice.ticket, Outcome::Failed, now);
        let again = lanes.choose(&short, tried, now).unwrap();
        assert_eq!((again.lane, again.reason), (0, Reason::LaneLost));
        lanes.finish(again.ticket, Outcome::Served, now + MILLIS);
        now += 20 * MILLIS;
    }
    assert_eq!(
        lanes.view(now)[1].breaker,
        BreakerState::Open(Trouble::Failing)
    );
    assert_eq!(choose(&mut lanes, &short, now), (0, Reason::BreakerOpen));
    now += 1000 * MILLIS;
    let probe = lanes.choose(&short, Tried::default(), now).unwrap();
    assert_eq!((probe.lane, probe.reason), (1, Reason::BreakerProbe));
    // One at a time.
    assert_eq!(choose(&mut lanes, &short, now), (0, Reason::BreakerOpen));
    lanes.finish(probe.ticket, Outcome::Served, now + MILLIS);
    let probe = lanes
        .choose(&short, Tried::default(), now + MILLIS)
        .unwrap();
    lanes.finish(probe.ticket, Outcome::Served, now + 2 * MILLIS);
    assert_eq!(
        choose(&mut lanes, &short, now + 2 * MILLIS),
        (1, Reason::ShortAndSingle)
    );
}

#[test]
fn a_lane_that_slows_down_or_is_stuck_loses_its_traffic() {
    let (mut lanes, mut now) = two();
    let short = ask(60, 1);
    serve(&mut lanes, 1, &short, 5 * MILLIS, 30, &mut now);
    let mut slow = lanes;
    serve(&mut slow, 1, &short, 50 * MILLIS, 32, &mut now);
    assert_eq!(slow.view(now)[1].breaker, BreakerState::Open(Trouble::Slow));
    assert_eq!(choose(&mut slow, &short, now), (0, Reason::BreakerOpen));

    let (mut lanes, mut now) = two();
    serve(&mut lanes, 1, &short, 5 * MILLIS, 30, &mut now);
    lanes.choose(&short, Tried::default(), now).unwrap();
    now += 3000 * MILLIS;
    assert_eq!(choose(&mut lanes, &short, now), (0, Reason::BreakerOpen));
}

#[test]
fn the_only_lane_left_is_asked_although_it_is_in_trouble_but_never_without_parity() {
    let (mut lanes, now) = two();
    lanes.set_ready(1, false);
    let short = ask(60, 1);
    for _ in 0..3 {
        let choice = lanes.choose(&short, Tried::default(), now).unwrap();
        lanes.finish(choice.ticket, Outcome::Failed, now);
    }
    assert_eq!(choose(&mut lanes, &short, now), (0, Reason::LastResort));
    lanes.set_parity(0, false, now);
    let refused = lanes.choose(&short, Tried::default(), now);
    assert!(
        matches!(&refused, Err(Refusal::Unavailable(why)) if why.contains("agree")),
        "{refused:?}"
    );
    let asked = Ask {
        requested: Some(0),
        ..short
    };
    let refused = lanes.choose(&asked, Tried::default(), now);
    assert!(
        matches!(refused, Err(Refusal::Unavailable(_))),
        "{refused:?}"
    );
    lanes.set_parity(0, true, now);
    assert_eq!(choose(&mut lanes, &short, now), (0, Reason::LaneNotReady));
}

#[test]
fn what_a_lane_refuses_goes_on_and_after_a_while_is_not_tried_there() {
    let (mut lanes, now) = two();
    let short = ask(100, 1);
    for _ in 0..3 {
        let choice = lanes.choose(&short, Tried::default(), now).unwrap();
        assert_eq!(choice.lane, 1);
        lanes.finish(choice.ticket, Outcome::Refused, now);
        let mut tried = Tried::default();
        tried.refused(1);
        let again = lanes.choose(&short, tried, now).unwrap();
        assert_eq!((again.lane, again.reason), (0, Reason::LaneRefused));
        lanes.finish(again.ticket, Outcome::Abandoned, now);
    }
    assert_eq!(choose(&mut lanes, &short, now), (0, Reason::NoArtifact));
    assert_eq!(choose(&mut lanes, &ask(20, 1), now).0, 1);
    let later = now + Duration::from_secs(31);
    assert_eq!(choose(&mut lanes, &short, later).0, 1);
}

#[test]
fn a_request_that_no_lane_takes_is_told_so_and_one_that_has_to_wait_too() {
    let mut lanes = Chooser::new(vec![LaneSpec::new("a", QUICK), LaneSpec::new("b", QUICK)]);
    lanes.set_ready(0, true);
    let now = Instant::now();
    let long = lanes.choose(&ask(500, 1), Tried::default(), now);
    assert!(
        matches!(&long, Err(Refusal::NotTaken(why)) if why.contains("about 500")),
        "{long:?}"
    );
    let mut tried = Tried::default();
    tried.lost(0);
    let waits = lanes.choose(&ask(60, 1), tried, now);
    assert_eq!(
        waits,
        Err(Refusal::Unavailable(
            "The lane b takes this request and is not ready.".to_owned()
        ))
    );
    lanes.set_ready(1, true);
    tried.lost(1);
    assert_eq!(lanes.choose(&ask(60, 1), tried, now), Err(Refusal::Lost));
}

#[derive(Debug, Clone)]
enum Step {
    Ask {
        tokens: u32,
        questions: u32,
        requested: Option<usize>,
        tried: u8,
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
        4 => (1u32..700, 1u32..8, proptest::option::of(0usize..3), 0u8..8).prop_map(
            |(tokens, questions, requested, tried)| Step::Ask { tokens, questions, requested, tried }),
        4 => (any::<usize>(), 0u8..4).prop_map(|(which, outcome)| Step::Finish { which, outcome }),
        1 => (0usize..3, any::<bool>()).prop_map(|(lane, ready)| Step::Ready { lane, ready }),
        1 => (0usize..3, any::<bool>()).prop_map(|(lane, good)| Step::Parity { lane, good }),
        3 => (0u64..3000).prop_map(Step::Wait),
    ]
}

const OUTCOMES: [Outcome; 4] = [
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
    let specs = names
        .iter()
        .zip(limits)
        .map(|(name, limits)| LaneSpec::new(*name, limits));
    let mut lanes = Chooser::new(specs.collect());
    let (mut now, mut open, mut seen) = (start, Vec::new(), Vec::new());
    let (mut ready, mut parity) = ([false; 3], [true; 3]);
    for step in steps {
        match *step {
            Step::Ask {
                tokens,
                questions,
                requested,
                tried: bits,
            } => {
                let mut tried = Tried::default();
                (0..3)
                    .filter(|at| bits & (1 << at) != 0)
                    .for_each(|at| tried.lost(at));
                let asked = Ask {
                    requested,
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
                    let most = limits[at];
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
                }
                ready[lane] = is;
                lanes.set_ready(lane, is);
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
        lanes.set_ready(0, true);
        lanes.set_ready(1, true);
        let now = Instant::now();
        for (lane, tokens) in waiting {
            let asked = Ask { requested: Some(lane), ..ask(tokens, 1) };
            prop_assert!(lanes.choose(&asked, Tried::default(), now).is_ok());
        }
        let choice = lanes.choose(&ask(tokens, 1), Tried::default(), now).unwrap();
        prop_assert!(choice.backlogs[choice.lane] <= choice.backlogs[1 - choice.lane]);
    }
}
