//! Bounds in number, size and time.

use std::time::{Duration, Instant};

use omni_jev_frontend::Config;

use crate::support::*;

/// A backend that answers only once the returned sender is dropped or used.
fn held() -> (RawBackend, std::sync::mpsc::Sender<()>) {
    let (release, wait) = std::sync::mpsc::channel::<()>();
    let wait = std::sync::Arc::new(std::sync::Mutex::new(wait));
    let backend = RawBackend::start(move |mut talk, _| {
        while talk.request().is_some() {
            let _ = wait.lock().unwrap().recv();
            talk.say(OK);
        }
    });
    (backend, release)
}

#[test]
fn a_backend_that_takes_too_long_is_504() {
    let silent = RawBackend::start(|mut talk, _| {
        talk.request();
        talk.wait_for_close();
    });
    let config = Config {
        backend_timeout: Duration::from_millis(200),
        ..config()
    };
    let fixture = start(config, silent.ready());
    let mut client = fixture.connect();
    for _ in 0..2 {
        let begun = Instant::now();
        client.send(post("/", "x"));
        let reply = client.reply();
        assert_eq!(
            reply.own_error(504, "timeout_error"),
            "The backend did not answer within 0.2 s."
        );
        assert!(begun.elapsed() >= Duration::from_millis(200));
    }
    assert_eq!(silent.seen().len(), 2, "it is not sent again");
}

#[test]
fn an_answer_that_is_not_whole_in_time_is_504() {
    for part in [
        "HTTP/1.1 200 OK\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf",
    ] {
        let backend = RawBackend::start(move |mut talk, _| {
            talk.request();
            talk.say(part);
            talk.wait_for_close();
        });
        let config = Config {
            backend_timeout: Duration::from_millis(200),
            ..config()
        };
        start(config, backend.ready())
            .ask(post("/", "x"))
            .own_error(504, "timeout_error");
    }
}

#[test]
fn a_late_answer_is_nobodys() {
    let backend = RawBackend::start(|mut talk, number| {
        talk.request();
        if number == 0 {
            talk.wait_for_close();
        }
        talk.say(format!(
            "HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n{number}"
        ));
    });
    let config = Config {
        backend_timeout: Duration::from_millis(300),
        ..config()
    };
    let fixture = start(config, backend.ready());
    fixture.ask(post("/", "x")).own_error(504, "timeout_error");
    assert_eq!(fixture.ask(post("/", "x")).text(), "1");
}

#[test]
fn requests_over_the_number_in_flight_are_503_at_once_and_the_connection_stays() {
    let (backend, release) = held();
    let config = Config {
        max_in_flight: 2,
        ..config()
    };
    let fixture = start(config, backend.ready());
    let mut first = [fixture.connect(), fixture.connect()];
    for client in &mut first {
        client.send(post("/", "x"));
    }
    eventually("both are at the backend", || backend.seen().len() == 2);
    let mut third = fixture.connect();
    third.send(post("/", "x"));
    let reply = third.reply();
    reply.own_error(503, "service_unavailable");
    assert_eq!(reply.values("retry-after"), ["1"]);
    drop(release);
    for client in &mut first {
        assert_eq!(client.reply().status, 200);
    }
    third.send(post("/", "x"));
    assert_eq!(third.reply().status, 200);
}

#[test]
fn connections_over_the_limit_wait_until_another_is_gone() {
    let backend = RawBackend::answering(OK);
    let config = Config {
        max_connections: 1,
        ..config()
    };
    let fixture = start(config, backend.ready());
    let mut first = fixture.connect();
    first.send(get("/1", ""));
    assert_eq!(first.reply().status, 200);
    let mut second = fixture.connect();
    second.send(get("/2", ""));
    first.send(get("/3", ""));
    assert_eq!(first.reply().status, 200);
    assert_eq!(
        backend.last().line(),
        "GET /3 HTTP/1.1",
        "the second still waits"
    );
    drop(first);
    assert_eq!(second.reply().status, 200);
}

#[test]
fn an_idle_connection_makes_room_for_a_client_that_waits_and_a_busy_one_stays() {
    let backend = RawBackend::answering(OK);
    let config = Config {
        max_connections: 2,
        keep_alive: PATIENCE * 4,
        ..config()
    };
    let fixture = start(config, backend.ready());
    let (mut idle, mut busy) = (fixture.connect(), fixture.connect());
    for client in [&mut idle, &mut busy] {
        client.send(get("/", ""));
        assert_eq!(client.reply().status, 200);
    }
    let mut waiting = fixture.connect();
    waiting.send(get("/", ""));
    let served = std::thread::spawn(move || waiting.reply().status);
    while !served.is_finished() {
        busy.send(get("/", ""));
        assert_eq!(busy.reply().status, 200);
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(served.join().unwrap(), 200);
    assert!(idle.is_closed());
    busy.send(get("/", ""));
    assert_eq!(busy.reply().status, 200);
}

#[test]
fn a_slow_head_is_408() {
    let backend = RawBackend::answering(OK);
    let config = Config {
        head_timeout: Duration::from_millis(200),
        ..config()
    };
    let fixture = start(config, backend.ready());
    let mut client = fixture.connect();
    client.send("GET / HTTP/1.1\r\nhost: ");
    let reply = client.reply();
    reply.own_error(408, "invalid_request_error");
    assert_eq!(reply.values("connection"), ["close"]);
    assert!(client.is_closed());
}

#[test]
fn a_connection_that_says_nothing_is_closed_without_a_word() {
    let backend = RawBackend::answering(OK);
    let config = Config {
        head_timeout: Duration::from_millis(100),
        keep_alive: Duration::from_millis(100),
        ..config()
    };
    let fixture = start(config, backend.ready());
    assert!(fixture.connect().is_closed());
    let mut kept = fixture.connect();
    kept.send(get("/", ""));
    assert_eq!(kept.reply().status, 200);
    assert!(kept.is_closed());
}

#[test]
fn a_body_that_stops_is_408() {
    let backend = RawBackend::answering(OK);
    let config = Config {
        body_timeout: Duration::from_millis(200),
        ..config()
    };
    let fixture = start(config, backend.ready());
    for half in [
        "POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 10\r\n\r\nhalf",
        "POST / HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n5\r\nha",
    ] {
        let mut client = fixture.connect();
        client.send(half);
        let reply = client.reply();
        reply.own_error(408, "invalid_request_error");
        assert_eq!(reply.values("connection"), ["close"]);
        assert!(client.is_closed());
    }
    assert!(backend.seen().is_empty());
}

#[test]
fn a_body_that_only_drips_is_408() {
    let backend = RawBackend::answering(OK);
    let config = Config {
        body_timeout: Duration::from_millis(300),
        ..config()
    };
    let fixture = start(config, backend.ready());
    let mut client = fixture.connect();
    client.send("POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 1000\r\n\r\n");
    let mut drip = client.stream.try_clone().unwrap();
    let dripping = std::thread::spawn(move || {
        // Never pauses as long as the limit, and stops when nobody listens.
        for _ in 0..1000 {
            if std::io::Write::write_all(&mut drip, b"x").is_err() {
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    client.reply().own_error(408, "invalid_request_error");
    drop(client);
    dripping.join().unwrap();
}

#[test]
fn a_client_gets_its_error_even_if_it_is_still_sending() {
    let backend = RawBackend::answering(OK);
    let fixture = before(&backend);
    let mut client = fixture.connect();
    client.send("POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 20000000\r\n\r\n");
    client.send(vec![b'x'; 20_000_000]);
    client.reply().own_error(413, "invalid_request_error");
}

#[test]
fn a_chunked_body_over_the_limit_is_413() {
    let backend = RawBackend::answering(OK);
    let config = Config {
        max_request_bytes: 10,
        ..config()
    };
    let fixture = start(config, backend.ready());
    let mut client = fixture.connect();
    client.send("POST / HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n6\r\n012345\r\n");
    client.send("5\r\n67890\r\n0\r\n\r\n");
    client.reply().own_error(413, "invalid_request_error");
    assert_eq!(fixture.ask(post("/", "0123456789")).status, 200);
    assert_eq!(backend.seen().len(), 1);
}

#[test]
fn bodies_over_what_memory_is_set_aside_for_are_503() {
    let (backend, release) = held();
    let config = Config {
        max_buffered_bytes: 300_000,
        ..config()
    };
    let fixture = start(config, backend.ready());
    let large = "x".repeat(200_000);
    let mut first = fixture.connect();
    first.send(post("/", &large));
    eventually("the first is at the backend", || backend.seen().len() == 1);
    let reply = fixture.ask(post("/", &large));
    reply.own_error(503, "service_unavailable");
    assert_eq!(reply.values("retry-after"), ["1"]);
    let mut small = fixture.connect();
    small.send(post("/", "small"));
    drop(release);
    assert_eq!(small.reply().status, 200);
    assert_eq!(first.reply().status, 200);
    assert_eq!(fixture.ask(post("/", &large)).status, 200);
}

/// A client of whose answer the system takes little before it does.
fn small_window(fixture: &Fixture) -> Client {
    use socket2::{Domain, Socket, Type};
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.set_recv_buffer_size(16 * 1024).unwrap();
    let address = fixture.frontend.address();
    socket.connect(&address.into()).unwrap();
    Client::on(socket.into())
}

#[test]
fn answers_over_what_memory_is_set_aside_for_are_503_until_their_clients_have_taken_them() {
    // Far more than the system's own buffers take off our hands.
    let body = "x".repeat(15_000_000);
    let backend = RawBackend::answering(format!(
        "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    ));
    let config = Config {
        max_buffered_bytes: 20_000_000,
        ..config()
    };
    let fixture = start(config, backend.ready());
    let mut slow = small_window(&fixture);
    slow.send(get("/", ""));
    // Asked sooner, another could be the first to hold the memory, and this one be refused.
    let peeked = uninterrupted(|| slow.stream.peek(&mut [0]));
    assert_eq!(peeked.unwrap(), 1);
    eventually("another such answer is refused", || {
        let reply = fixture.ask(get("/", ""));
        if reply.status == 200 {
            return false;
        }
        reply.own_error(503, "service_unavailable");
        assert_eq!(reply.values("retry-after"), ["1"]);
        true
    });
    assert_eq!(slow.reply().body.len(), body.len());
    eventually("there is room again", || {
        fixture.ask(get("/", "")).status == 200
    });
}

#[test]
fn a_client_that_takes_its_answer_drop_by_drop_is_let_go() {
    let body = "x".repeat(15_000_000);
    let backend = RawBackend::answering(format!(
        "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    ));
    let config = Config {
        send_timeout: Duration::from_millis(500),
        max_connections: 1,
        ..config()
    };
    let fixture = start(config, backend.ready());
    let mut dripping = small_window(&fixture);
    dripping.send(get("/", ""));
    let (enough, over) = std::sync::mpsc::channel::<()>();
    let taking = std::thread::spawn(move || {
        // Takes a little each time, sooner than the limit, but far too slowly.
        let mut drop = [0; 1000];
        while std::io::Read::read(&mut dripping.stream, &mut drop).is_ok() {
            if over.recv_timeout(Duration::from_millis(100)).is_ok() {
                break;
            }
        }
    });
    // There is one place; the next client has it once the other has lost it.
    let mut next = fixture.connect();
    next.send(get("/", ""));
    assert_eq!(next.reply().body.len(), body.len());
    // It may have found out by itself.
    let _ = enough.send(());
    taking.join().unwrap();
}

#[test]
fn a_client_that_does_not_take_its_answer_is_let_go() {
    let body = "x".repeat(8_000_000);
    let backend = RawBackend::answering(format!(
        "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    ));
    let config = Config {
        send_timeout: Duration::from_millis(200),
        max_connections: 1,
        ..config()
    };
    let fixture = start(config, backend.ready());
    let mut stuck = fixture.connect();
    stuck.send(get("/", ""));
    // There is one place; the next client has it once the stuck one has lost it.
    let mut next = fixture.connect();
    next.send(get("/", ""));
    assert_eq!(next.reply().body.len(), body.len());
}

#[test]
fn a_client_that_takes_its_answer_slowly_gets_all_of_it() {
    let body = "x".repeat(8_000_000);
    let backend = RawBackend::answering(format!(
        "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    ));
    let config = Config {
        send_timeout: Duration::from_millis(400),
        backend_timeout: Duration::from_secs(10),
        ..config()
    };
    let fixture = start(config, backend.ready());
    let mut client = fixture.connect();
    client.send(get("/", ""));
    let mut taken = Vec::new();
    while taken.len() < body.len() {
        let mut piece = vec![0; 1_000_000];
        let length = std::io::Read::read(&mut client.stream, &mut piece).unwrap();
        assert_ne!(length, 0, "cut after {} bytes", taken.len());
        taken.extend_from_slice(&piece[..length]);
        std::thread::sleep(
            Duration::from_millis(100).min(Duration::from_millis(taken.len() as u64 / 40_000)),
        );
    }
}
