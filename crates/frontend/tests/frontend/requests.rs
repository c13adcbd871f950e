//! What the backend gets of a request.

use std::time::Duration;

use crate::support::*;

fn forwarded(request: impl AsRef<[u8]>) -> Request {
    let backend = RawBackend::answering(OK);
    let reply = before(&backend).ask(request);
    assert_eq!(reply.status, 200, "{}", reply.text());
    backend.last()
}

#[test]
fn method_path_query_headers_and_body_arrive_as_they_were_sent() {
    let request = forwarded(
        b"PATCH /a%2Fb/%2e%2e/../c//d?x=%zz&x=%2F HTTP/1.1\r\nHost: example.com:81\r\n\
          Authorization: Bearer k\r\nAccept-Encoding: br\r\nContent-Encoding: zstd\r\n\
          X-Two: first\r\nCookie: a=\xff\xe9\x80\r\nx-two: second, third\r\nX-Empty:\r\n\
          Content-Length: 5\r\n\r\n\x00\r\n\xff\n",
    );
    assert_eq!(
        request.line(),
        "PATCH /a%2Fb/%2e%2e/../c//d?x=%zz&x=%2F HTTP/1.1"
    );
    assert_eq!(request.values("host"), [b"example.com:81"]);
    assert_eq!(request.values("authorization"), [b"Bearer k"]);
    assert_eq!(request.values("accept-encoding"), [b"br"]);
    assert_eq!(request.values("content-encoding"), [b"zstd"]);
    assert_eq!(request.values("cookie"), [b"a=\xff\xe9\x80"]);
    assert_eq!(request.values("x-two"), [&b"first"[..], b"second, third"]);
    assert_eq!(request.values("x-empty"), [b""]);
    assert_eq!(request.body, b"\x00\r\n\xff\n");
}

#[test]
fn nothing_but_a_request_id_is_added() {
    let request = forwarded(get("/", ""));
    let names: Vec<_> = String::from_utf8_lossy(&request.head)
        .lines()
        .skip(1)
        .filter_map(|line| line.split_once(':').map(|(name, _)| name.to_owned()))
        .collect();
    assert_eq!(names, ["host", "x-request-id"]);
}

#[test]
fn headers_of_the_clients_hop_end_here() {
    let request = forwarded(get(
        "/",
        "Connection: X-Mine, keep-alive\r\nConnection: upgrade, Host, Content-Length\r\n\
         Connection: AUTHORIZATION\r\nauthorization: k\r\nX-Mine: 1\r\nX-Other: 2\r\n\
         Keep-Alive: timeout=5\r\nProxy-Connection: x\r\nTE: trailers\r\nTrailer: x\r\n\
         Upgrade: h2c\r\nHTTP2-Settings: x\r\nProxy-Authenticate: x\r\nProxy-Authorization: x\r\n",
    ));
    for gone in [
        "connection",
        "x-mine",
        "keep-alive",
        "proxy-connection",
        "te",
        "trailer",
        "upgrade",
        "http2-settings",
        "proxy-authenticate",
        "proxy-authorization",
    ] {
        assert!(request.values(gone).is_empty(), "{gone} was forwarded");
    }
    assert_eq!(request.values("host"), [b"h"]);
    assert_eq!(request.values("authorization"), [b"k"]);
    assert_eq!(request.values("x-other"), [b"2"]);
}

#[test]
fn connection_cannot_remove_the_length_of_a_body() {
    let request = forwarded(
        "POST / HTTP/1.1\r\nhost: h\r\nconnection: content-length\r\ncontent-length: 3\r\n\r\nabc",
    );
    assert_eq!(request.values("content-length"), [b"3"]);
    assert_eq!(request.body, b"abc");
}

#[test]
fn a_chunked_body_arrives_whole_with_its_length_and_without_its_trailers() {
    let request = forwarded(
        "POST / HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\ntrailer: x\r\n\r\n\
         3;ext=1\r\nabc\r\n10\r\n0123456789abcdef\r\n0\r\nx: 1\r\n\r\n",
    );
    assert_eq!(request.values("content-length"), [b"19"]);
    assert!(request.values("transfer-encoding").is_empty());
    assert!(request.values("x").is_empty());
    assert_eq!(request.body, b"abc0123456789abcdef");
}

#[test]
fn an_empty_chunked_body_has_a_length_of_zero() {
    let request =
        forwarded("POST / HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n");
    assert_eq!(request.values("content-length"), [b"0"]);
}

#[test]
fn a_large_body_in_many_pieces_arrives_byte_for_byte() {
    let backend = RawBackend::answering(OK);
    let fixture = before(&backend);
    let body: Vec<u8> = (0u32..1_500_000).flat_map(u32::to_le_bytes).collect();
    let mut client = fixture.connect();
    client.send(format!(
        "POST / HTTP/1.1\r\nhost: h\r\ncontent-length: {}\r\n\r\n",
        body.len()
    ));
    for piece in body.chunks(70_001) {
        client.send(piece);
    }
    assert_eq!(client.reply().status, 200);
    assert!(backend.last().body == body);
}

#[test]
fn a_head_that_comes_byte_by_byte_is_read_all_the_same() {
    let backend = RawBackend::answering(OK);
    let fixture = before(&backend);
    let mut client = fixture.connect();
    client.stream.set_nodelay(true).unwrap();
    for byte in post("/slow", "abc").bytes() {
        client.send([byte]);
    }
    assert_eq!(client.reply().status, 200);
    assert_eq!(backend.last().body, b"abc");
}

#[test]
fn an_expectation_is_met_here_and_not_forwarded() {
    let backend = RawBackend::answering(OK);
    let fixture = before(&backend);
    let mut client = fixture.connect();
    client.send("POST / HTTP/1.1\r\nhost: h\r\nexpect: 100-continue\r\ncontent-length: 3\r\n\r\n");
    let interim = client.reply();
    assert_eq!(interim.status, 100);
    client.send("abc");
    assert_eq!(client.reply().status, 200);
    assert!(backend.last().values("expect").is_empty());
    assert_eq!(backend.last().body, b"abc");
}

#[test]
fn a_body_announced_over_the_limit_is_refused_before_it_is_asked_for() {
    let backend = RawBackend::answering(OK);
    let fixture = before(&backend);
    let mut client = fixture.connect();
    client.send(
        "POST / HTTP/1.1\r\nhost: h\r\nexpect: 100-continue\r\ncontent-length: 9000000\r\n\r\n",
    );
    let reply = client.reply();
    reply.own_error(413, "invalid_request_error");
    assert_eq!(reply.values("connection"), ["close"]);
    assert!(backend.seen().is_empty());
}

#[test]
fn an_http_1_0_client_gets_a_1_0_answer_with_a_length_and_the_backend_1_1() {
    let backend = RawBackend::answering(
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
    );
    let fixture = before(&backend);
    let mut client = fixture.connect();
    client.send("GET /old HTTP/1.0\r\n\r\n");
    let reply = client.reply();
    assert!(reply.head.starts_with(b"HTTP/1.0 200 OK\r\n"));
    assert_eq!(reply.text(), "hi");
    assert!(client.is_closed());
    let request = backend.last();
    assert_eq!(request.line(), "GET /old HTTP/1.1");
    assert_eq!(
        request.values("host"),
        [backend.address.to_string().into_bytes()]
    );
}

#[test]
fn an_http_1_0_client_may_ask_for_its_connection_to_be_kept() {
    let backend = RawBackend::answering(OK);
    let fixture = before(&backend);
    let mut client = fixture.connect();
    for _ in 0..2 {
        client.send("GET / HTTP/1.0\r\nconnection: keep-alive\r\n\r\n");
        let reply = client.reply();
        assert_eq!(reply.values("connection"), ["keep-alive"]);
    }
}

#[test]
fn an_absolute_target_says_which_host_is_meant() {
    let request = forwarded("GET http://other:8/a%2Fb?x HTTP/1.1\r\nhost: stale\r\n\r\n");
    assert_eq!(request.line(), "GET /a%2Fb?x HTTP/1.1");
    assert_eq!(request.values("host"), [b"other:8"]);
}

#[test]
fn a_path_prefix_goes_before_the_path_as_it_was_sent() {
    let backend = RawBackend::answering(OK);
    let endpoint = backend.url("/base/").parse().unwrap();
    let fixture = start(config(), omni_jev_frontend::Backend::ready(endpoint, 1));
    fixture.ask(get("/a//%2e?x", ""));
    assert_eq!(backend.last().line(), "GET /base/a//%2e?x HTTP/1.1");
}

#[test]
fn options_for_the_server_as_a_whole_are_answered_here() {
    let backend = RawBackend::answering(OK);
    let fixture = before(&backend);
    let reply = fixture.ask("OPTIONS * HTTP/1.1\r\nhost: h\r\n\r\n");
    assert_eq!(reply.status, 204);
    assert_eq!(reply.values("allow").len(), 1);
    assert_eq!(reply.values("x-request-id").len(), 1);
    assert!(backend.seen().is_empty());
    assert_eq!(
        fixture.ask("OPTIONS /x HTTP/1.1\r\nhost: h\r\n\r\n").status,
        200
    );
}

#[test]
fn a_valid_request_id_is_kept_and_an_invalid_one_replaced() {
    let backend = RawBackend::answering(OK);
    let fixture = before(&backend);
    let reply = fixture.ask(get("/", "X-Request-ID: mine-7\r\n"));
    assert_eq!(reply.values("x-request-id"), ["mine-7"]);
    assert_eq!(reply.values("x-typesafe-request-id"), ["mine-7"]);
    assert_eq!(backend.last().values("x-request-id"), [b"mine-7"]);

    let reply = fixture.ask(get("/", "X-Request-ID: not valid\r\n"));
    let ids = reply.values("x-request-id");
    assert_ne!(ids, ["not valid"]);
    assert_eq!(reply.values("x-typesafe-request-id"), ids);
    assert_eq!(backend.last().values("x-request-id"), [ids[0].as_bytes()]);
}

#[test]
fn the_hop_is_announced_only_where_that_is_set() {
    let backend = RawBackend::answering(OK);
    let config = omni_jev_frontend::Config {
        forwarded_headers: true,
        ..config()
    };
    let fixture = start(config, backend.ready());
    fixture.ask(get("/", "Via: 1.1 before\r\nX-Forwarded-For: 10.0.0.1\r\n"));
    let request = backend.last();
    assert_eq!(request.values("via"), [&b"1.1 before"[..], b"1.1 omni-jev"]);
    assert_eq!(
        request.values("x-forwarded-for"),
        [&b"10.0.0.1"[..], b"127.0.0.1"]
    );
}

#[test]
fn requests_sent_ahead_are_answered_in_order() {
    let backend = RawBackend::start(|mut talk, _| {
        while let Some(request) = talk.request() {
            let line = request.line();
            talk.say(format!(
                "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{line}",
                line.len()
            ));
        }
    });
    let fixture = before(&backend);
    let mut client = fixture.connect();
    client.send([post("/1", "a"), get("/2", ""), post("/3", "ccc")].concat());
    for line in ["POST /1 HTTP/1.1", "GET /2 HTTP/1.1", "POST /3 HTTP/1.1"] {
        assert_eq!(client.reply().text(), line);
    }
    // One that is bad ends it, after those before it have had their answers.
    client.send([get("/4", ""), "bad\r\n\r\n".to_owned(), get("/5", "")].concat());
    assert_eq!(client.reply().text(), "GET /4 HTTP/1.1");
    client.reply().own_error(400, "invalid_request_error");
    assert!(client.is_closed());
}

#[test]
fn a_client_that_leaves_ends_the_backends_work_at_once() {
    let (left, noticed) = std::sync::mpsc::channel();
    let backend = RawBackend::start(move |mut talk, _| {
        talk.request();
        talk.wait_for_close();
        let _ = left.send(());
    });
    let fixture = before(&backend);
    let mut client = fixture.connect();
    client.send(post("/", "abc"));
    eventually("the request arrives", || !backend.seen().is_empty());
    drop(client);
    noticed
        .recv_timeout(Duration::from_secs(10))
        .expect("the backend's connection was closed");
}
