//! What is told of the lanes: to clients, in the trace and on the admin pages.

use std::time::Duration;

use serde_json::Value;

use super::*;

#[test]
fn server_timing_has_the_lanes_own_times_and_the_frontends() {
    let timing = "server-timing: queue;dur=1.5, prepare;dur=0.5, model;dur=3\r\n";
    let quick = RawBackend::answering(answer("200 OK", timing, "q"));
    let lanes = Lanes::before(&named("m"), &quick);
    let told = lanes.ask(short()).values("server-timing");
    assert_eq!(told[0], "queue;dur=1.5, prepare;dur=0.5, model;dur=3");
    assert!(
        told[1].starts_with("route;dur=") && told[1].contains(", lane;dur="),
        "{told:?}"
    );
}

#[test]
fn the_trace_has_a_line_for_each_decision_and_nothing_of_what_it_says() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.jsonl");
    let timing = "server-timing: queue;dur=0.01, prepare;dur=0.01, model;dur=0.01\r\n";
    let (main, quick) = (
        RawBackend::answering(answer("200 OK", "", "m")),
        RawBackend::answering(answer("200 OK", timing, "q")),
    );
    let traced = Config {
        trace: Some(path.clone()),
        ..config()
    };
    let lanes = Lanes::start(traced, main.ready(), quick.ready());
    let secret = "POST /v1/systemone?key=sesame HTTP/1.1\r\nhost: h\r\nauthorization: Bearer sesame\r\nx-request-id: one\r\n";
    let body = body(3, 1).replace("invoice", "sesame");
    lanes.ask(format!(
        "{secret}content-length: {}\r\n\r\n{body}",
        body.len()
    ));
    lanes.ask(decision("not json", ""));
    lanes.ask(get("/health", ""));
    drop(lanes);
    eventually("the lines are written", || {
        std::fs::read_to_string(&path).is_ok_and(|text| text.lines().count() == 3)
    });
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(!text.contains("sesame"), "{text}");
    let written: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let first = &written[1];
    assert_eq!(first["id"], "one");
    assert_eq!(
        (&first["lane"], &first["reason"]),
        (&json!("quick"), &json!("short_and_single"))
    );
    assert_eq!(
        (&first["questions"], &first["tokens_exact"]),
        (&json!(1), &json!(false))
    );
    assert_eq!(first["status"], 200);
    assert_eq!(first["backlog_ms"], json!({"main": 0.0, "quick": 0.0}));
    assert!(first["estimate_ms"].as_f64().unwrap() > 0.0);
    let times = [
        "submit",
        "routed",
        "queued",
        "dispatched",
        "service_start",
        "service_end",
        "answered",
    ];
    let times = times.map(|name| {
        first[name]
            .as_f64()
            .unwrap_or_else(|| panic!("{name}: {first}"))
    });
    assert!(times.is_sorted(), "{times:?}");
    assert_eq!(
        (&written[2]["reason"], &written[2]["tokens"]),
        (&json!("not_read"), &Value::Null)
    );
}

#[test]
fn the_admin_pages_show_each_lane_with_labels_from_the_settings_only() {
    let with_admin = Config {
        admin_bind: Some("127.0.0.1:0".parse().unwrap()),
        ..config()
    };
    let lanes = Lanes::start(with_admin, named("m").ready(), named("q").ready());
    lanes.ask(short());
    lanes.ask(decision(&body(3, 4), ""));
    let admin = |path: &str| {
        let mut client = Client::connect(lanes.fixture.admin_address().unwrap());
        client.send(get(path, ""));
        client.reply()
    };
    let metrics = admin("/metrics").text();
    for expected in [
        "omni_jev_frontend_lane_requests_total{lane=\"quick\",result=\"served\"} 1",
        "omni_jev_frontend_lane_routed_total{lane=\"quick\",reason=\"short_and_single\"} 1",
        "omni_jev_frontend_lane_routed_total{lane=\"main\",reason=\"several_questions\"} 1",
        "omni_jev_frontend_lane_in_flight{lane=\"main\"} 0",
        "omni_jev_frontend_lane_backlog_seconds{lane=\"main\"} 0",
        "omni_jev_frontend_lane_breaker{lane=\"main\",state=\"closed\"} 1",
    ] {
        assert!(
            metrics.contains(expected),
            "{expected} is missing in {metrics}"
        );
    }
    let gone = || Backend::unavailable("it starts", Duration::from_secs(7));
    lanes.states[0].send_replace(gone());
    let state: Value = serde_json::from_slice(&admin("/readyz").body).unwrap();
    assert_eq!(state["ready"], true);
    assert_eq!(state["lanes"][0]["message"], "it starts");
    assert_eq!(state["lanes"][1]["ready"], true);
    lanes.states[1].send_replace(gone());
    assert_eq!(admin("/readyz").status, 503);
    let message = lanes.ask(short()).own_error(503, "service_unavailable");
    assert!(message.contains("not ready"), "{message}");
}
