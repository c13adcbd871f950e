//! A backend whose process is gone, or that answers nothing.

use std::time::{Duration, Instant};

use omni_jev_frontend::{Backend, Config, Load};

use crate::support::*;

/// Takes requests, and never answers.
fn silent() -> RawBackend {
    RawBackend::start(|mut talk, _| {
        while talk.request().is_some() {}
        talk.wait_for_close();
    })
}

fn in_flight(fixture: &Fixture, count: usize) {
    eventually("the request is in flight", || {
        fixture.frontend.requests().load(1).in_flight == count
    });
}

#[test]
fn whoever_waits_for_a_lost_process_is_answered_at_once_although_its_connection_stays() {
    let backend = silent();
    let fixture = before(&backend);
    let mut client = fixture.connect();
    client.send(post("/v1/systemone", "x"));
    in_flight(&fixture, 1);
    let lost = Instant::now();
    fixture
        .frontend
        .requests()
        .lost(1, "the worker was struck by lightning");
    let reply = client.reply();
    assert!(lost.elapsed() < Duration::from_secs(1));
    let message = reply.own_error(502, "backend_error");
    assert!(message.contains("struck by lightning"), "{message}");
    in_flight(&fixture, 0);
    // Nothing of it is used again, and the same client goes on with the next process.
    let next = RawBackend::answering(OK);
    let ready = next.url("").parse().unwrap();
    fixture.state.send_replace(Backend::ready(ready, 2));
    eventually("the next process answers", || {
        fixture.ask(post("/v1/systemone", "x")).status == 200
    });
    client.send(post("/v1/systemone", "x"));
    assert_eq!(client.reply().status, 200);
    assert_eq!(backend.connections(), 1);
}

#[test]
fn a_broken_connection_is_explained_by_what_is_told_soon_after() {
    let backend = RawBackend::start(|mut talk, _| {
        talk.request();
    });
    let config = Config {
        loss_grace: PATIENCE,
        ..config()
    };
    let fixture = start(config, backend.ready());
    let mut client = fixture.connect();
    client.send(post("/v1/systemone", "x"));
    eventually("the request came", || !backend.seen().is_empty());
    fixture
        .frontend
        .requests()
        .lost(1, "the worker ended with exit code 7");
    let message = client.reply().own_error(502, "backend_error");
    assert!(message.contains("exit code 7"), "{message}");
}

#[test]
fn a_broken_connection_that_nobody_explains_is_answered_after_the_grace() {
    let backend = RawBackend::start(|mut talk, _| {
        talk.request();
    });
    let grace = Duration::from_millis(300);
    let config = Config {
        loss_grace: grace,
        ..config()
    };
    let fixture = start(config, backend.ready());
    let sent = Instant::now();
    let reply = fixture.ask(post("/v1/systemone", "x"));
    let message = reply.own_error(502, "backend_error");
    assert!(message.contains("without an answer"), "{message}");
    assert!(sent.elapsed() >= grace);
}

#[test]
fn a_loss_of_an_older_process_is_none_of_this_one() {
    let backend = silent();
    let ready = backend.url("").parse().unwrap();
    let fixture = start(config(), Backend::ready(ready, 5));
    let mut client = fixture.connect();
    client.send(post("/v1/systemone", "x"));
    eventually("the request came", || !backend.seen().is_empty());
    fixture.frontend.requests().lost(4, "long gone");
    fixture.frontend.requests().lost(3, "longer gone");
    eventually("it waits for a while", || {
        let load = fixture.frontend.requests().load(5);
        load.unanswered_for > Some(Duration::from_millis(200))
    });
    fixture.frontend.requests().lost(5, "gone now");
    let message = client.reply().own_error(502, "backend_error");
    assert!(message.contains("gone now"), "{message}");
}

#[test]
fn a_request_that_timed_out_stays_unanswered_until_a_decision_comes() {
    let backend = RawBackend::start(|mut talk, number| {
        while talk.request().is_some() {
            if number > 0 {
                talk.say(OK);
            }
        }
    });
    let limit = Duration::from_millis(200);
    let config = Config {
        backend_timeout: limit,
        ..config()
    };
    let fixture = start(config, backend.ready());
    assert_eq!(fixture.frontend.requests().load(1), Load::default());
    let reply = fixture.ask(post("/v1/systemone", "x"));
    reply.own_error(504, "timeout_error");
    let load = fixture.frontend.requests().load(1);
    assert_eq!(load.in_flight, 0);
    assert!(load.unanswered_for >= Some(limit), "{load:?}");
    // An answer to something else is none.
    assert_eq!(fixture.ask(get("/health", "")).status, 200);
    assert!(fixture.frontend.requests().load(1).unanswered_for >= Some(limit));
    assert_eq!(fixture.ask(post("/v1/systemone", "x")).status, 200);
    assert_eq!(fixture.frontend.requests().load(1), Load::default());
}

#[test]
fn a_client_that_leaves_is_no_longer_waited_for() {
    let backend = silent();
    let fixture = before(&backend);
    let mut client = fixture.connect();
    client.send(post("/v1/systemone", "x"));
    in_flight(&fixture, 1);
    drop(client);
    in_flight(&fixture, 0);
    assert_eq!(fixture.frontend.requests().load(1).unanswered_for, None);
}
