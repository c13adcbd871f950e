//! What becomes of requests of which a lane knows better than its limits say: they cannot be read, or it refused
//! such ones.

use super::tests::QUICK;
use super::*;
use crate::{BreakerState, Limits};

const MILLIS: Duration = Duration::from_millis(1);

fn ready(specs: Vec<LaneSpec>) -> (Chooser, Instant) {
    let mut lanes = Chooser::new(specs);
    (0..lanes.len()).for_each(|lane| lanes.set_ready(lane, Some(1)));
    (lanes, Instant::now())
}

fn wide(name: &str) -> LaneSpec {
    LaneSpec::new(name, Limits::NONE)
}

fn quick() -> LaneSpec {
    LaneSpec {
        helps: true,
        ..LaneSpec::new("quick", QUICK)
    }
}

fn choose(lanes: &mut Chooser, tried: Tried, now: Instant) -> Choice {
    lanes.choose(&Ask::unread(300), tried, now).unwrap()
}

fn fail(lanes: &mut Chooser, lane: usize, now: Instant) {
    for _ in 0..3 {
        let asked = Ask {
            requested: Some(lane),
            ..Ask::unread(300)
        };
        let choice = lanes.choose(&asked, Tried::default(), now).unwrap();
        assert_eq!((choice.lane, choice.reason), (lane, Reason::LaneRequested));
        lanes.finish(choice.ticket, Outcome::Failed, now);
    }
}

#[test]
fn what_cannot_be_read_goes_to_the_lane_without_limits_that_would_answer_it_first() {
    let (mut lanes, now) = ready(vec![quick(), wide("one"), wide("other")]);
    let places: Vec<_> = (0..4)
        .map(|_| choose(&mut lanes, Tried::default(), now))
        .map(|choice| (choice.lane, choice.reason))
        .collect();
    let expected = [1, 2, 1, 2].map(|lane| (lane, Reason::NotRead));
    assert_eq!(places, expected);
    let in_flight: Vec<_> = lanes.view(now).iter().map(|lane| lane.in_flight).collect();
    assert_eq!(in_flight, [0, 2, 2]);
}

#[test]
fn a_lane_with_limits_has_it_only_where_no_other_can_be_asked() {
    let (mut lanes, now) = ready(vec![wide("main"), LaneSpec::new("quick", QUICK)]);
    fail(&mut lanes, 0, now);
    let opened = lanes.view(now)[0].breaker;
    assert_eq!(opened, BreakerState::Open(Trouble::Failing));
    let choice = choose(&mut lanes, Tried::default(), now);
    assert_eq!((choice.lane, choice.reason), (1, Reason::NotRead));
    lanes.finish(choice.ticket, Outcome::Served, now);
    // It is no probe of a lane that may not take it, but one of a lane that does.
    fail(&mut lanes, 1, now);
    let later = now + 1001 * MILLIS;
    let choice = choose(&mut lanes, Tried::default(), later);
    assert_eq!((choice.lane, choice.reason), (0, Reason::BreakerProbe));
    let mut tried = Tried::default();
    tried.lost(0);
    let choice = choose(&mut lanes, tried, later);
    assert_eq!((choice.lane, choice.reason), (1, Reason::LastResort));
}

#[test]
fn what_every_lane_refuses_is_told_not_to_have_been_read_and_is_asked_again() {
    let (mut lanes, now) = ready(vec![wide("main"), LaneSpec::new("quick", QUICK)]);
    for _ in 0..5 {
        let mut tried = Tried::default();
        for (lane, reason) in [(0, Reason::NotRead), (1, Reason::LaneRefused)] {
            let choice = choose(&mut lanes, tried, now);
            assert_eq!((choice.lane, choice.reason), (lane, reason));
            lanes.finish(choice.ticket, Outcome::Refused, now);
            tried.refused(lane);
        }
        let refused = lanes.choose(&Ask::unread(300), tried, now);
        assert!(
            matches!(&refused, Err(Refusal::NotTaken(why)) if why.contains("could not be read")),
            "{refused:?}"
        );
    }
}

#[test]
fn what_is_not_read_spoils_no_estimate_of_what_is() {
    let (mut lanes, mut now) = ready(vec![wide("main")]);
    let short = super::tests::ask(60, 1);
    for _ in 0..30 {
        let choice = lanes.choose(&short, Tried::default(), now).unwrap();
        now += 5 * MILLIS;
        lanes.finish(choice.ticket, Outcome::Served, now);
    }
    for company in [0, 1, 2] {
        let long = choose(&mut lanes, Tried::default(), now);
        let waiting: Vec<_> = (0..company)
            .map(|_| lanes.choose(&short, Tried::default(), now).unwrap())
            .collect();
        now += 1500 * MILLIS;
        lanes.finish(long.ticket, Outcome::Served, now);
        for choice in waiting {
            now += MILLIS;
            lanes.finish(choice.ticket, Outcome::Served, now);
        }
    }
    let choice = lanes.choose(&short, Tried::default(), now).unwrap();
    assert!(choice.estimate < 6 * MILLIS, "{:?}", choice.estimate);
    let next = lanes.choose(&short, Tried::default(), now).unwrap();
    assert!(next.backlogs[0] > 4 * MILLIS, "{:?}", next.backlogs);
    assert_eq!(lanes.view(now)[0].breaker, BreakerState::Closed);
}

#[test]
fn a_lane_that_is_stuck_with_what_was_not_read_is_noticed_by_what_waits_behind_it() {
    let (mut lanes, mut now) = ready(vec![wide("main"), wide("other")]);
    let short = |lane| Ask {
        requested: lane,
        ..super::tests::ask(60, 1)
    };
    for _ in 0..30 {
        let choice = lanes.choose(&short(Some(0)), Tried::default(), now);
        now += 5 * MILLIS;
        lanes.finish(choice.unwrap().ticket, Outcome::Served, now);
    }
    let hung = Ask {
        requested: Some(0),
        ..Ask::unread(300)
    };
    lanes.choose(&hung, Tried::default(), now).unwrap();
    now += 60_000 * MILLIS;
    lanes
        .choose(&short(Some(0)), Tried::default(), now)
        .unwrap();
    assert_eq!(lanes.view(now)[0].breaker, BreakerState::Closed);
    now += 60_000 * MILLIS;
    let choice = lanes.choose(&short(None), Tried::default(), now).unwrap();
    assert_eq!((choice.lane, choice.reason), (1, Reason::BreakerOpen));
}

#[test]
fn what_every_lane_has_refused_of_late_is_still_asked_for_since_the_next_one_may_be_shorter() {
    let (mut lanes, now) = ready(vec![LaneSpec::new("main", QUICK), wide("wide")]);
    let ask = super::tests::ask;
    for _ in 0..4 {
        let mut tried = Tried::default();
        for _ in 0..2 {
            let choice = lanes.choose(&ask(30, 1), tried, now).unwrap();
            lanes.finish(choice.ticket, Outcome::Refused, now);
            tried.refused(choice.lane);
        }
        let refused = lanes.choose(&ask(30, 1), tried, now);
        assert!(matches!(refused, Err(Refusal::NotTaken(_))), "{refused:?}");
    }
    let choice = lanes.choose(&ask(20, 1), Tried::default(), now).unwrap();
    assert_eq!((choice.lane, choice.reason), (0, Reason::LastResort));
    lanes.finish(choice.ticket, Outcome::Served, now);
    // That one is taken is news.
    let choice = lanes.choose(&ask(20, 1), Tried::default(), now).unwrap();
    assert_eq!((choice.lane, choice.reason), (0, Reason::NoArtifact));
}
