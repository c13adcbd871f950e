//! Which lane a request goes to.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use super::*;

#[test]
fn each_request_goes_unchanged_to_the_lane_of_its_kind_and_is_told_which() {
    let (main, quick) = (named("m"), named("q"));
    let lanes = Lanes::before(&main, &quick);
    let reply = lanes.ask(short());
    assert_eq!(route(&reply), routed("quick", "short_and_single", "q"));
    assert_eq!(quick.last().body, body(3, 1).into_bytes());
    let reply = lanes.ask(decision(&body(3, 4), ""));
    assert_eq!(route(&reply), routed("main", "several_questions", "m"));
    let reply = lanes.ask(decision(&body(400, 1), ""));
    assert_eq!(route(&reply), routed("main", "too_long", "m"));
    assert_eq!(main.last().body, body(400, 1).into_bytes());
    let reply = lanes.ask(get("/v1/models", ""));
    assert_eq!(route(&reply), routed("main", "default_lane", "m"));
    // What cannot be read is for a lane to answer, byte for byte.
    let reply = lanes.ask(decision("{\"questions\": nonsense", ""));
    assert_eq!(route(&reply), routed("main", "not_read", "m"));
    assert_eq!(main.last().body, b"{\"questions\": nonsense");
}

#[test]
fn a_lane_that_is_asked_for_is_obeyed_or_refused_and_the_header_stays_here() {
    let (main, quick) = (named("m"), named("q"));
    let lanes = Lanes::before(&main, &quick);
    let on = |lane: &str, body: &str| decision(body, &format!("x-omni-jev-lane: {lane}\r\n"));
    let reply = lanes.ask(on("main", &body(3, 1)));
    assert_eq!(route(&reply), routed("main", "lane_requested", "m"));
    assert!(main.last().values("x-omni-jev-lane").is_empty());
    let message = lanes
        .ask(on("nowhere", &body(3, 1)))
        .own_error(400, "invalid_request_error");
    let known = "names no lane of this server, whose lanes are: main, quick";
    assert!(message.contains(known), "{message}");
    for odd in ["", "MAIN", "main, quick", "m\u{e9}"] {
        let refused = lanes.ask(on(odd, &body(3, 1)));
        let message = refused.own_error(400, "invalid_request_error");
        assert!(message.contains(known), "{message}");
    }
    let twice = "x-omni-jev-lane: main\r\nx-omni-jev-lane: main\r\n";
    let message = lanes
        .ask(decision(&body(3, 1), twice))
        .own_error(400, "invalid_request_error");
    assert!(message.contains("is there more than once"), "{message}");
    let message = lanes
        .ask(on("quick", &body(3, 4)))
        .own_error(400, "invalid_request_error");
    assert!(
        message.contains("quick takes 1 questions at most"),
        "{message}"
    );
    let gone = Backend::unavailable("it starts", Duration::from_secs(7));
    lanes.states[1].send_replace(gone);
    let reply = lanes.ask(on("quick", &body(3, 1)));
    let message = reply.own_error(503, "service_unavailable");
    assert!(message.contains("quick is not ready"), "{message}");
    assert_eq!(reply.values("retry-after"), ["7"]);
    let reply = lanes.ask(short());
    assert_eq!(route(&reply), routed("main", "lane_not_ready", "m"));
    assert_eq!(quick.seen().len(), 0);
}

#[test]
fn a_request_that_a_lane_refuses_goes_on_and_is_never_answered_421() {
    let refusing = || RawBackend::answering(answer("421 Misdirected Request", "", "not mine"));
    let (main, quick) = (named("m"), refusing());
    let lanes = Lanes::before(&main, &quick);
    let reply = lanes.ask(short());
    assert_eq!(route(&reply), routed("main", "lane_refused", "m"));
    let asked = decision(&body(3, 1), "x-omni-jev-lane: quick\r\n");
    let message = lanes.ask(asked).own_error(400, "invalid_request_error");
    assert!(
        message.contains("quick does not take this request"),
        "{message}"
    );

    let lanes = Lanes::before(&refusing(), &refusing());
    let message = lanes.ask(short()).own_error(422, "invalid_request_error");
    assert!(message.contains("No lane takes this request"), "{message}");
}

#[test]
fn a_request_goes_where_it_is_answered_first() {
    let (go, wait) = mpsc::channel::<()>();
    let wait = std::sync::Mutex::new(wait);
    let held = AtomicBool::new(false);
    let quick = RawBackend::start(move |mut talk, _| {
        while let Some(request) = talk.request() {
            if is_decision(&request) && !held.swap(true, Ordering::SeqCst) {
                wait.lock().unwrap().recv().unwrap();
            }
            talk.say(answer("200 OK", "", "q"));
        }
    });
    let main = named("m");
    let lanes = Lanes::before(&main, &quick);
    let mut first = Client::connect(lanes.fixture.address());
    first.send(short());
    eventually("the first request is at its lane", || {
        quick.seen().iter().any(is_decision)
    });
    // Around the moment at which it should be through it may well be so.
    eventually("the next one goes to the other lane", || {
        route(&lanes.ask(short())) == routed("main", "shorter_backlog", "m")
    });
    go.send(()).unwrap();
    assert_eq!(
        route(&first.reply()),
        routed("quick", "short_and_single", "q")
    );
}
