//! What each rule does.

use super::*;
use crate::{BreakerState, Limits, Tokens};

const MILLIS: Duration = Duration::from_millis(1);
pub(super) const QUICK: Limits = Limits {
    max_tokens: Some(128),
    max_questions: Some(1),
};

/// A lane for everything and one for short requests of one question, both ready.
fn two() -> (Chooser, Instant) {
    let mut lanes = Chooser::new(vec![
        LaneSpec::new("main", Limits::NONE),
        LaneSpec::new("quick", QUICK),
    ]);
    lanes.set_ready(0, Some(1));
    lanes.set_ready(1, Some(1));
    (lanes, Instant::now())
}

pub(super) fn ask(tokens: u32, questions: u32) -> Ask {
    Ask {
        tokens: Tokens {
            count: tokens,
            exact: false,
        },
        questions,
        requested: None,
        is_read: true,
    }
}

fn unavailable(lane: usize, why: &str) -> Result<Choice, Refusal> {
    Err(Refusal::Unavailable {
        lane: Some(lane),
        why: why.to_owned(),
    })
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
    lanes.set_ready(1, None);
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
        is_read: true,
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
    lanes.set_ready(1, None);
    let gone = lanes.choose(&quick(60, 1, true), Tried::default(), now);
    assert_eq!(gone, unavailable(1, "The lane quick is not ready."));
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
fn a_lane_that_helps_takes_what_is_beyond_its_limits_when_it_has_nothing_to_do() {
    let quick = LaneSpec {
        helps: true,
        ..LaneSpec::new("quick", QUICK)
    };
    let mut lanes = Chooser::new(vec![LaneSpec::new("main", Limits::NONE), quick]);
    lanes.set_ready(0, Some(1));
    lanes.set_ready(1, Some(1));
    let (now, long) = (Instant::now(), ask(480, 1));
    let first = lanes.choose(&long, Tried::default(), now).unwrap();
    assert_eq!((first.lane, first.reason), (0, Reason::TooLong));
    let second = lanes.choose(&long, Tried::default(), now).unwrap();
    assert_eq!((second.lane, second.reason), (1, Reason::SpareLane));
    // It has something to do now.
    assert_eq!(choose(&mut lanes, &long, now), (0, Reason::TooLong));
    lanes.finish(first.ticket, Outcome::Served, now);
    lanes.finish(second.ticket, Outcome::Served, now);
    // And whatever it has, nobody else can.
    lanes.set_ready(0, None);
    for _ in 0..2 {
        let only = lanes.choose(&long, Tried::default(), now).unwrap();
        assert_eq!((only.lane, only.reason), (1, Reason::LaneNotReady));
    }
    let asked = Ask {
        requested: Some(1),
        ..ask(480, 4)
    };
    assert_eq!(choose(&mut lanes, &asked, now).0, 1);
}

#[test]
fn a_lane_that_helps_keeps_free_for_its_own_kind_while_that_comes_often() {
    let quick = LaneSpec {
        helps: true,
        ..LaneSpec::new("quick", QUICK)
    };
    let mut lanes = Chooser::new(vec![LaneSpec::new("main", Limits::NONE), quick]);
    lanes.set_ready(0, Some(1));
    lanes.set_ready(1, Some(1));
    let (mut now, long) = (Instant::now(), ask(480, 1));
    for _ in 0..50 {
        now += 5 * MILLIS;
        choose(&mut lanes, &ask(60, 1), now);
    }
    lanes.choose(&long, Tried::default(), now).unwrap();
    assert_eq!(choose(&mut lanes, &long, now), (0, Reason::TooLong));
    // None has come for a while.
    now += 40 * MILLIS;
    let mut waiting = 0;
    while choose(&mut lanes, &long, now) == (0, Reason::TooLong) {
        lanes.choose(&long, Tried::default(), now).unwrap();
        waiting += 1;
        assert!(waiting < 50, "whoever waits long enough is helped");
    }
    assert!(waiting > 1);
    assert_eq!(choose(&mut lanes, &long, now), (1, Reason::SpareLane));
}

#[test]
fn a_lane_that_was_slow_once_is_not_left_alone_for_it() {
    let (mut lanes, mut now) = two();
    let short = ask(60, 1);
    serve(&mut lanes, 0, &short, 5 * MILLIS, 5, &mut now);
    serve(&mut lanes, 1, &short, 400 * MILLIS, 1, &mut now);
    let mut last = 0;
    for _ in 0..200 {
        now += 100 * MILLIS;
        let choice = lanes.choose(&short, Tried::default(), now).unwrap();
        now += 5 * MILLIS;
        lanes.finish(choice.ticket, Outcome::Served, now);
        last = choice.lane;
    }
    assert_eq!(last, 1);
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
fn what_is_no_decision_goes_to_a_lane_that_is_in_no_trouble_if_there_is_one() {
    let (mut lanes, now) = two();
    let default = |lanes: &Chooser| lanes.choose_default(None, Tried::default());
    assert_eq!(default(&lanes), Ok((0, Reason::DefaultLane)));
    let asked = |lane| Ask {
        requested: Some(lane),
        ..ask(60, 1)
    };
    for (lane, expected) in [(0, 1), (1, 0)] {
        for _ in 0..3 {
            let choice = lanes.choose(&asked(lane), Tried::default(), now).unwrap();
            lanes.finish(choice.ticket, Outcome::Failed, now);
        }
        // With all of them in trouble it is the first again.
        assert_eq!(default(&lanes), Ok((expected, Reason::DefaultLane)));
    }
}

#[test]
fn the_only_lane_left_is_asked_although_it_is_in_trouble_but_never_without_parity() {
    let (mut lanes, now) = two();
    lanes.set_ready(1, None);
    let short = ask(60, 1);
    for _ in 0..3 {
        let choice = lanes.choose(&short, Tried::default(), now).unwrap();
        lanes.finish(choice.ticket, Outcome::Failed, now);
    }
    assert_eq!(choose(&mut lanes, &short, now), (0, Reason::LastResort));
    lanes.set_parity(0, false, now);
    let refused = lanes.choose(&short, Tried::default(), now);
    assert!(
        matches!(&refused, Err(Refusal::Unavailable { why, .. }) if why.contains("agree")),
        "{refused:?}"
    );
    let asked = Ask {
        requested: Some(0),
        ..short
    };
    let refused = lanes.choose(&asked, Tried::default(), now);
    assert!(
        matches!(refused, Err(Refusal::Unavailable { .. })),
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
    lanes.set_ready(0, Some(1));
    let now = Instant::now();
    let long = lanes.choose(&ask(500, 1), Tried::default(), now);
    assert!(
        matches!(&long, Err(Refusal::NotTaken(why)) if why.contains("about 500")),
        "{long:?}"
    );
    let mut tried = Tried::default();
    tried.lost(0);
    let waits = lanes.choose(&ask(60, 1), tried, now);
    let why = "The lane b takes this request and is not ready.";
    assert_eq!(waits, unavailable(1, why));
    lanes.set_ready(1, Some(1));
    tried.lost(1);
    assert_eq!(lanes.choose(&ask(60, 1), tried, now), Err(Refusal::Lost));
}
