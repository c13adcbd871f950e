//! What the client gets of an answer.

use omni_jev_frontend::Config;

use crate::support::*;

fn answered(answer: impl AsRef<[u8]>) -> Reply {
    let backend = RawBackend::answering_once(answer);
    before(&backend).ask(get("/", ""))
}

#[test]
fn status_headers_and_body_arrive_as_they_were_sent() {
    let reply = answered(
        b"HTTP/1.1 299 Odd But Fine\r\nSet-Cookie: a=1\r\nX-Bytes: \xff\xe9\r\n\
          Set-Cookie: b=2\r\nLocation: http://elsewhere/\r\nContent-Encoding: gzip\r\n\
          Date: Tue, 01 Jan 2030 00:00:00 GMT\r\nServer: other\r\nContent-Length: 4\r\n\r\n\x00\r\n\xff",
    );
    assert!(reply.head.starts_with(b"HTTP/1.1 299 Odd But Fine\r\n"));
    assert_eq!(reply.values("set-cookie"), ["a=1", "b=2"]);
    assert_eq!(header_values(&reply.head, "x-bytes"), [b"\xff\xe9"]);
    assert_eq!(reply.values("location"), ["http://elsewhere/"]);
    assert_eq!(reply.values("content-encoding"), ["gzip"]);
    assert_eq!(reply.values("date"), ["Tue, 01 Jan 2030 00:00:00 GMT"]);
    assert_eq!(reply.values("server"), ["other"]);
    assert_eq!(reply.body, b"\x00\r\n\xff");
}

#[test]
fn nothing_but_the_ids_is_added() {
    let reply = answered(OK);
    let mut names: Vec<_> = String::from_utf8_lossy(&reply.head)
        .lines()
        .skip(1)
        .filter_map(|line| line.split_once(':').map(|(name, _)| name.to_owned()))
        .collect();
    names.sort_unstable();
    assert_eq!(
        names,
        ["content-length", "x-request-id", "x-typesafe-request-id"]
    );
}

#[test]
fn statuses_that_mean_nothing_here_pass_unchanged() {
    for status in [301, 302, 401, 404, 418, 422, 429, 499, 500, 503, 529, 999] {
        let reply = answered(format!("HTTP/1.1 {status} X\r\ncontent-length: 1\r\n\r\n!"));
        assert_eq!(reply.status, status);
        assert_eq!(reply.text(), "!");
    }
}

#[test]
fn headers_of_the_backends_hop_end_here() {
    let reply = answered(
        "HTTP/1.1 200 OK\r\nConnection: X-Mine, close\r\nX-Mine: 1\r\nKeep-Alive: timeout=5\r\n\
         Proxy-Authenticate: x\r\nTrailer: x\r\nUpgrade: h2c\r\nX-Other: 2\r\ncontent-length: 0\r\n\r\n",
    );
    for gone in [
        "connection",
        "x-mine",
        "keep-alive",
        "proxy-authenticate",
        "trailer",
        "upgrade",
    ] {
        assert!(reply.values(gone).is_empty(), "{gone} was passed on");
    }
    assert_eq!(reply.values("x-other"), ["2"]);
}

#[test]
fn a_length_beside_chunks_goes_with_them() {
    let reply = answered(
        "HTTP/1.1 200 OK\r\ncontent-length: 99\r\ntransfer-encoding: chunked\r\n\r\n\
         3\r\nabc\r\n0\r\nx-trailer: 1\r\n\r\n",
    );
    assert_eq!(reply.values("content-length"), ["3"]);
    assert_eq!(reply.text(), "abc");
    assert!(reply.values("x-trailer").is_empty());
}

#[test]
fn an_http_1_0_backends_answer_is_ours_in_1_1() {
    let reply = answered("HTTP/1.0 200 OK\r\n\r\nuntil the end");
    assert!(reply.head.starts_with(b"HTTP/1.1 200 OK\r\n"));
    assert_eq!(reply.text(), "until the end");
}

#[test]
fn interim_answers_are_not_the_answer() {
    let reply = answered(format!(
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n{OK}"
    ));
    assert_eq!((reply.status, reply.text().as_str()), (200, "hi"));
}

#[test]
fn over_a_hundred_headers_pass() {
    let many: Vec<_> = (0..300).map(|n| format!("x-{n}: {n}\r\n")).collect();
    let many = many.concat();
    let reply = answered(format!(
        "HTTP/1.1 200 OK\r\n{many}content-length: 0\r\n\r\n"
    ));
    assert_eq!(reply.values("x-299"), ["299"]);
}

#[test]
fn a_head_request_gets_the_length_and_no_body() {
    let backend = RawBackend::answering("HTTP/1.1 200 OK\r\ncontent-length: 1234\r\n\r\n");
    let fixture = before(&backend);
    let mut client = fixture.connect();
    for _ in 0..2 {
        client.send("HEAD / HTTP/1.1\r\nhost: h\r\n\r\n");
        let reply = client.reply_to_head();
        assert_eq!(reply.values("content-length"), ["1234"]);
    }
}

#[test]
fn an_answer_without_a_body_has_none() {
    for status in ["204 No Content", "304 Not Modified"] {
        let backend = RawBackend::answering(format!("HTTP/1.1 {status}\r\netag: \"x\"\r\n\r\n"));
        let fixture = before(&backend);
        let mut client = fixture.connect();
        for _ in 0..2 {
            client.send(get("/", ""));
            let reply = client.reply();
            assert!(status.starts_with(&reply.status.to_string()));
            assert_eq!(reply.values("etag"), ["\"x\""]);
        }
    }
}

#[test]
fn a_304_with_a_length_has_no_body_and_ends_where_its_head_does() {
    let backend =
        RawBackend::answering("HTTP/1.1 304 Not Modified\r\ncontent-length: 1234\r\n\r\n");
    let fixture = before(&backend);
    let mut client = fixture.connect();
    for _ in 0..3 {
        client.send(get("/", ""));
        // Had either side taken the length for that of a body, nothing would come.
        let reply = client.reply();
        assert_eq!(reply.status, 304);
        assert!(reply.body.is_empty());
        // RFC 9110 8.6 lets it be left out, as the library does.
        assert!(reply.values("content-length").is_empty());
    }
    assert_eq!(backend.connections(), 1);
}

#[test]
fn a_backends_own_typesafe_id_stays() {
    let reply = answered(
        "HTTP/1.1 200 OK\r\nx-typesafe-request-id: theirs\r\nx-request-id: theirs\r\ncontent-length: 0\r\n\r\n",
    );
    assert_eq!(reply.values("x-typesafe-request-id"), ["theirs"]);
    assert_eq!(reply.values("x-request-id").len(), 1);
    assert_ne!(reply.values("x-request-id"), ["theirs"]);
}

#[test]
fn a_broken_answer_is_502_and_never_a_cut_200() {
    for answer in [
        "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhel",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\nhello\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nxx",
        "HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\n",
        "HTTP/1.1 200 OK\r\nbroken",
        "HTTP/1.1 200 OK\r\nbad header: x\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\n\r\n",
        "SSH-2.0-OpenSSH_9.9\r\n",
        "\x16\x03\x01",
        "",
    ] {
        let reply = answered(answer);
        reply.own_error(502, "backend_error");
    }
}

#[test]
fn bytes_after_an_answer_belong_to_nobody() {
    // In one piece with it, they are seen in time to doubt the answer as well.
    let smuggled = "HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nstolen";
    let backend = RawBackend::answering(format!("{OK}{smuggled}"));
    let fixture = before(&backend);
    for _ in 0..3 {
        fixture.ask(get("/", "")).own_error(502, "backend_error");
    }
    assert_eq!(backend.connections(), 3, "none is used again");
}

#[test]
fn bytes_that_come_between_answers_belong_to_nobody() {
    let (taken, wait) = std::sync::mpsc::channel::<()>();
    let (said, smuggled) = std::sync::mpsc::channel::<()>();
    let wait = std::sync::Mutex::new(wait);
    let backend = RawBackend::start(move |mut talk, number| {
        while talk.request().is_some() {
            talk.say(format!(
                "HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n{number}"
            ));
            if wait.lock().unwrap().recv().is_ok() {
                talk.say("HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n!");
                let _ = said.send(());
            }
        }
    });
    let fixture = before(&backend);
    assert_eq!(fixture.ask(get("/", "")).text(), "0");
    taken.send(()).unwrap();
    smuggled.recv().unwrap();
    assert_eq!(fixture.ask(get("/", "")).text(), "1");
    drop(taken);
}

#[test]
fn an_answer_over_the_limit_is_502() {
    let limited = || Config {
        max_response_bytes: 10,
        ..config()
    };
    for answer in [
        "HTTP/1.1 200 OK\r\ncontent-length: 11\r\n\r\n01234567890",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n6\r\n012345\r\n5\r\n67890\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n01234567890",
    ] {
        let backend = RawBackend::answering_once(answer);
        start(limited(), backend.ready())
            .ask(get("/", ""))
            .own_error(502, "backend_error");
    }
    let backend = RawBackend::answering("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n0123456789");
    let fixture = start(limited(), backend.ready());
    assert_eq!(fixture.ask(get("/", "")).text(), "0123456789");
}

#[test]
fn a_large_answer_in_many_pieces_arrives_byte_for_byte() {
    let body: Vec<u8> = (0u32..2_000_000).flat_map(u32::to_le_bytes).collect();
    let mut answer =
        format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len()).into_bytes();
    answer.extend_from_slice(&body);
    let backend = RawBackend::answering(answer);
    assert!(before(&backend).ask(get("/", "")).body == body);
}
