//! Lanes that are lost, fail, or have to end.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use super::*;

#[test]
fn a_request_whose_lane_is_lost_is_answered_by_the_other_at_once() {
    let quick = RawBackend::start(|mut talk, _| {
        while talk.request().is_some() {}
        talk.wait_for_close();
    });
    let main = named("m");
    let grace = Config {
        loss_grace: PATIENCE,
        ..config()
    };
    let lanes = Lanes::start(grace, main.ready(), quick.ready());
    let mut client = Client::connect(lanes.fixture.address());
    client.send(short());
    let requests = lanes.fixture.lane_requests(1).unwrap();
    eventually("it is in flight", || requests.load(1).in_flight == 1);
    let lost = Instant::now();
    requests.lost(1, "the worker was struck by lightning");
    assert_eq!(route(&client.reply()), routed("main", "lane_lost", "m"));
    assert!(lost.elapsed() < Duration::from_secs(1));
    assert_eq!(main.last().body, body(3, 1).into_bytes());
}

#[test]
fn broken_connections_and_server_errors_are_asked_again_elsewhere_but_once_for_each_lane() {
    for bad in ["", "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf"] {
        let (main, quick) = (named("m"), RawBackend::answering_once(bad));
        let lanes = Lanes::before(&main, &quick);
        assert_eq!(
            route(&lanes.ask(short())),
            routed("main", "lane_lost", "m"),
            "{bad}"
        );
    }
    for (status, reason) in [
        ("500 Internal Server Error", "lane_lost"),
        ("502 Bad Gateway", "lane_lost"),
        ("503 Service Unavailable", "lane_busy"),
        ("429 Too Many Requests", "lane_busy"),
    ] {
        let failing = || RawBackend::answering(answer(status, "", "broken"));
        let (main, quick) = (named("m"), failing());
        let lanes = Lanes::before(&main, &quick);
        assert_eq!(route(&lanes.ask(short())), routed("main", reason, "m"));
        // The last lane's own words, where none has better ones.
        let (main, quick) = (failing(), failing());
        let lanes = Lanes::before(&main, &quick);
        let reply = lanes.ask(short());
        assert_eq!(
            (reply.text(), reply.status / 100 > 3),
            ("broken".to_owned(), true)
        );
        assert_eq!((main.seen().len(), quick.seen().len()), (1, 1));
    }
    // A client's mistake is one at every lane.
    let quick = RawBackend::answering(answer("422 Unprocessable Entity", "", "no"));
    let main = named("m");
    let lanes = Lanes::before(&main, &quick);
    assert_eq!(lanes.ask(short()).status, 422);
    assert!(main.seen().is_empty());
}

#[test]
fn a_lane_that_does_not_take_it_hides_no_other_lanes_answer() {
    let busy = || {
        RawBackend::answering(answer(
            "503 Service Unavailable",
            "retry-after: 7\r\n",
            "busy",
        ))
    };
    let refusing = || RawBackend::answering(answer("421 Misdirected Request", "", "not mine"));
    for (main, quick) in [(refusing(), busy()), (busy(), refusing())] {
        let lanes = Lanes::before(&main, &quick);
        let reply = lanes.ask(short());
        assert_eq!((reply.status, reply.text()), (503, "busy".to_owned()));
        assert_eq!(reply.values("retry-after"), ["7"]);
        assert_eq!((main.seen().len(), quick.seen().len()), (1, 1));
    }
}

#[test]
fn a_loss_is_told_with_its_reason_although_the_lane_is_known_not_to_be_ready_by_then() {
    let (close, closed) = mpsc::channel::<()>();
    let closed = std::sync::Mutex::new(closed);
    let main = RawBackend::start(move |mut talk, _| {
        if talk
            .request()
            .is_some_and(|it| it.line().starts_with("POST"))
        {
            let _ = closed.lock().unwrap().recv();
        }
    });
    let grace = Config {
        loss_grace: PATIENCE,
        ..config()
    };
    let lanes = Lanes::start(grace, main.ready(), named("q").ready());
    let mut client = Client::connect(lanes.fixture.address());
    client.send(decision(&body(1000, 1), ""));
    let requests = lanes.fixture.lane_requests(0).unwrap();
    eventually("it is in flight", || requests.load(1).in_flight == 1);
    lanes.states[0].send_replace(Backend::unavailable("it is restarted", PATIENCE));
    drop(close);
    eventually("its connection is closed", || {
        requests.load(1).in_flight == 0
    });
    requests.lost(1, "the worker was struck by lightning");
    let reply = client.reply();
    assert_eq!(reply.status, 502);
    assert!(
        reply.text().contains("struck by lightning"),
        "{}",
        reply.text()
    );
}

#[test]
fn the_deadline_is_one_for_all_lanes() {
    let silent = || {
        RawBackend::start(|mut talk, _| {
            talk.request();
            talk.wait_for_close();
        })
    };
    let (main, quick) = (silent(), silent());
    let limit = Duration::from_millis(300);
    let config = Config {
        backend_timeout: limit,
        ..config()
    };
    let lanes = Lanes::start(config, main.ready(), quick.ready());
    let sent = Instant::now();
    let reply = lanes.ask(short());
    reply.own_error(504, "timeout_error");
    assert!(sent.elapsed() < Duration::from_secs(5));
    assert!(main.seen().is_empty(), "its time was over");
    assert_eq!(reply.values("x-omni-jev-lane"), ["quick"]);
}

#[test]
fn a_lane_that_fails_loses_its_traffic_and_gets_it_back_when_it_works_again() {
    let works = Arc::new(AtomicBool::new(false));
    let switch = Arc::clone(&works);
    let quick = RawBackend::start(move |mut talk, _| {
        while talk.request().is_some() {
            let good = switch.load(Ordering::SeqCst);
            talk.say(if good {
                answer("200 OK", "", "q")
            } else {
                answer("500 Internal Server Error", "", "")
            });
        }
    });
    let main = named("m");
    let lanes = Lanes::before(&main, &quick);
    eventually("its breaker opens", || {
        let (lane, reason, text) = route(&lanes.ask(short()));
        assert_eq!((lane.as_str(), text.as_str()), ("main", "m"));
        reason == "breaker_open"
    });
    works.store(true, Ordering::SeqCst);
    eventually("it has its traffic again", || {
        let reply = lanes.ask(short());
        assert_eq!(reply.status, 200);
        route(&reply) == routed("quick", "short_and_single", "q")
    });
}

#[test]
fn a_lane_that_no_longer_agrees_with_the_reference_has_no_traffic() {
    let agrees = Arc::new(AtomicBool::new(true));
    let switch = Arc::clone(&agrees);
    let quick = RawBackend::start(move |mut talk, _| {
        while let Some(request) = talk.request() {
            let health =
                json!({"engine": "onnx", "parity": {"passed": switch.load(Ordering::SeqCst)}});
            talk.say(if request.line().starts_with("GET /health ") {
                answer("200 OK", "", &health.to_string())
            } else {
                answer("200 OK", "", "q")
            });
        }
    });
    let main = named("m");
    let lanes = Lanes::before(&main, &quick);
    assert_eq!(route(&lanes.ask(short())).0, "quick");
    agrees.store(false, Ordering::SeqCst);
    eventually("it is noticed", || {
        route(&lanes.ask(short())).1 == "breaker_open"
    });
    let asked = decision(&body(3, 1), "x-omni-jev-lane: quick\r\n");
    let message = lanes.ask(asked).own_error(503, "service_unavailable");
    assert!(message.contains("agree with the reference"), "{message}");
    agrees.store(true, Ordering::SeqCst);
    eventually("it is back", || route(&lanes.ask(short())).0 == "quick");
}

#[test]
fn a_drain_waits_for_what_is_at_any_lane_and_a_client_that_leaves_is_not_waited_for() {
    let (go, wait) = mpsc::channel::<()>();
    let wait = std::sync::Mutex::new(wait);
    let quick = RawBackend::start(move |mut talk, _| {
        while talk.request().is_some() {
            wait.lock().unwrap().recv().unwrap();
            talk.say(answer("200 OK", "", "q"));
        }
    });
    let lanes = Lanes::before(&named("m"), &quick);
    let requests = lanes.fixture.lane_requests(1).unwrap();
    let mut leaving = Client::connect(lanes.fixture.address());
    leaving.send(short());
    eventually("it is in flight", || requests.load(1).in_flight == 1);
    drop(leaving);
    eventually("it is given up", || requests.load(1).in_flight == 0);
    go.send(()).unwrap();
    let mut client = Client::connect(lanes.fixture.address());
    client.send(short());
    eventually("it is in flight", || requests.load(1).in_flight == 1);
    lanes.fixture.drain();
    go.send(()).unwrap();
    assert_eq!(client.reply().text(), "q");
}
