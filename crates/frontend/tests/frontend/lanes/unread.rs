//! Decisions whose body the frontend cannot read.

use std::sync::mpsc;
use std::time::Duration;

use serde_json::Value;

use super::*;

/// As good as compressed: no JSON.
fn unreadable() -> String {
    decision(&"\u{1f}".repeat(100), "content-encoding: gzip\r\n")
}

fn with_admin() -> Config {
    Config {
        admin_bind: Some("127.0.0.1:0".parse().unwrap()),
        ..config()
    }
}

fn metrics(lanes: &Lanes) -> String {
    let mut client = Client::connect(lanes.fixture.admin_address().unwrap());
    client.send(get("/metrics", ""));
    client.reply().text()
}

/// The value of a metric, by its name and labels.
fn metric(lanes: &Lanes, name: &str) -> f64 {
    let text = metrics(lanes);
    let line = text.lines().find_map(|line| {
        line.strip_prefix("omni_jev_frontend_lane_")
            .and_then(|line| line.strip_prefix(name))
    });
    line.unwrap_or_else(|| panic!("{name} is missing in {text}"))
        .trim()
        .parse()
        .unwrap()
}

#[test]
fn what_cannot_be_read_has_its_place_at_its_lane_and_is_told_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace.jsonl");
    let (go, wait) = mpsc::channel::<()>();
    let wait = std::sync::Mutex::new(wait);
    let main = RawBackend::start(move |mut talk, _| {
        while let Some(request) = talk.request() {
            if is_decision(&request) {
                wait.lock().unwrap().recv().unwrap();
            }
            talk.say(answer("200 OK", "", "m"));
        }
    });
    let config = Config {
        trace: Some(trace.clone()),
        ..with_admin()
    };
    let lanes = Lanes::start(config, main.ready(), named("q").ready());
    let mut client = Client::connect(lanes.fixture.address());
    client.send(unreadable());
    eventually("it is at its lane", || main.seen().iter().any(is_decision));
    assert!((metric(&lanes, "in_flight{lane=\"main\"}") - 1.0).abs() < f64::EPSILON);
    assert!(metric(&lanes, "backlog_seconds{lane=\"main\"}") > 0.0);
    go.send(()).unwrap();
    assert_eq!(route(&client.reply()), routed("main", "not_read", "m"));
    for name in [
        "routed_total{lane=\"main\",reason=\"not_read\"}",
        "requests_total{lane=\"main\",result=\"served\"}",
    ] {
        assert!((metric(&lanes, name) - 1.0).abs() < f64::EPSILON, "{name}");
    }
    drop(lanes);
    eventually("the lines are written", || {
        std::fs::read_to_string(&trace).is_ok_and(|text| text.lines().count() == 2)
    });
    let text = std::fs::read_to_string(&trace).unwrap();
    let line: Value = serde_json::from_str(text.lines().nth(1).unwrap()).unwrap();
    assert_eq!(line["reason"], "not_read");
    assert!(line["estimate_ms"].as_f64().unwrap() > 0.0, "{line}");
    assert_eq!(line["backlog_ms"], json!({"main": 0.0, "quick": 0.0}));
    for unknown in ["tokens", "tokens_exact", "questions"] {
        assert_eq!(line[unknown], Value::Null, "{line}");
    }
}

#[test]
fn a_lane_that_fails_with_what_cannot_be_read_loses_its_traffic() {
    let main = RawBackend::answering(answer("500 Internal Server Error", "", ""));
    let lanes = Lanes::start(with_admin(), main.ready(), named("q").ready());
    for _ in 0..3 {
        assert_eq!(
            route(&lanes.ask(unreadable())),
            routed("quick", "lane_lost", "q")
        );
    }
    let opened = metric(&lanes, "breaker_opened_total{lane=\"main\"}");
    assert!((opened - 1.0).abs() < f64::EPSILON);
    assert_eq!(
        route(&lanes.ask(unreadable())),
        routed("quick", "not_read", "q")
    );
}

#[test]
fn a_lane_of_limits_gets_what_cannot_be_read_only_where_no_other_can_be_asked() {
    let lanes = Lanes::before(&named("m"), &named("q"));
    assert_eq!(
        route(&lanes.ask(unreadable())),
        routed("main", "not_read", "m")
    );
    let gone = Backend::unavailable("it starts", Duration::from_secs(7));
    lanes.states[0].send_replace(gone);
    assert_eq!(
        route(&lanes.ask(unreadable())),
        routed("quick", "not_read", "q")
    );
    let refusing = RawBackend::answering(answer("421 Misdirected Request", "", "not mine"));
    let lanes = Lanes::before(&refusing, &refusing);
    let message = lanes
        .ask(unreadable())
        .own_error(422, "invalid_request_error");
    assert!(message.contains("could not be read"), "{message}");
}
