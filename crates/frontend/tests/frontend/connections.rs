//! Connections to the backend: kept, let go, and never trusted too far.

use std::io::{Read, Write};
use std::net::TcpListener;
#[cfg(unix)]
use std::os::unix::net::UnixListener;
#[cfg(unix)]
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use omni_jev_frontend::{Backend, Config, Endpoint};

use crate::support::*;

#[test]
fn a_connection_is_used_again_by_any_client() {
    let backend = RawBackend::answering(OK);
    let fixture = before(&backend);
    let mut client = fixture.connect();
    for _ in 0..5 {
        client.send(post("/", "x"));
        assert_eq!(client.reply().status, 200);
    }
    assert_eq!(fixture.ask(get("/", "")).status, 200);
    assert_eq!(backend.connections(), 1);
}

#[test]
fn an_idle_connection_is_let_go_before_the_backend_would() {
    let (closed, noticed) = std::sync::mpsc::channel();
    let backend = RawBackend::start(move |mut talk, _| {
        talk.request();
        talk.say(OK);
        talk.wait_for_close();
        let _ = closed.send(());
    });
    let config = Config {
        pool_idle: Duration::from_millis(100),
        ..config()
    };
    let fixture = start(config, backend.ready());
    assert_eq!(fixture.ask(get("/", "")).status, 200);
    noticed.recv_timeout(PATIENCE).expect("it was closed");
}

#[test]
fn a_request_that_died_on_a_kept_connection_is_sent_once_more() {
    // Each connection answers once, and closes on reading a second request.
    let backend = RawBackend::start(|mut talk, _| {
        talk.request();
        talk.say(OK);
        talk.request();
    });
    let fixture = before(&backend);
    assert_eq!(fixture.ask(post("/", "one")).status, 200);
    assert_eq!(fixture.ask(post("/", "two")).status, 200);
    let bodies: Vec<_> = backend.seen().iter().map(|r| r.body.clone()).collect();
    assert_eq!(bodies, [&b"one"[..], b"two", b"two"]);
}

#[test]
fn a_request_is_never_sent_a_third_time() {
    let backend = RawBackend::start(|mut talk, number| {
        talk.request();
        if number == 0 {
            talk.say(OK);
            talk.request();
        }
    });
    let fixture = before(&backend);
    assert_eq!(fixture.ask(post("/", "one")).status, 200);
    fixture
        .ask(post("/", "two"))
        .own_error(502, "backend_error");
    assert_eq!(backend.seen().len(), 3);
}

#[test]
fn a_request_on_a_new_connection_is_never_sent_again() {
    let backend = RawBackend::start(|mut talk, _| {
        talk.request();
    });
    let fixture = before(&backend);
    fixture.ask(post("/", "x")).own_error(502, "backend_error");
    assert_eq!(backend.seen().len(), 1);
}

#[test]
fn a_request_whose_answer_had_begun_is_never_sent_again() {
    let backend = RawBackend::start(|mut talk, _| {
        talk.request();
        talk.say(OK);
        talk.request();
        talk.say("H");
    });
    let fixture = before(&backend);
    assert_eq!(fixture.ask(post("/", "one")).status, 200);
    fixture
        .ask(post("/", "two"))
        .own_error(502, "backend_error");
    assert_eq!(backend.seen().len(), 2);
}

#[test]
fn a_connection_that_the_backend_closed_while_idle_is_not_used() {
    let backend = RawBackend::answering_once(OK);
    let fixture = before(&backend);
    for _ in 0..20 {
        assert_eq!(fixture.ask(post("/", "x")).status, 200);
    }
    assert_eq!(backend.seen().len(), 20, "none was sent twice");
}

#[test]
fn a_backend_that_refuses_is_502() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint: Endpoint = format!("http://{}", listener.local_addr().unwrap())
        .parse()
        .unwrap();
    drop(listener);
    let fixture = start(config(), Backend::ready(endpoint, 1));
    fixture.ask(post("/", "x")).own_error(502, "backend_error");
}

#[test]
fn a_backend_that_dies_with_a_request_in_flight_is_502_within_a_second() {
    let backend = RawBackend::start(|mut talk, _| {
        talk.request();
        // Gone, as a killed process is.
    });
    let fixture = before(&backend);
    let begun = Instant::now();
    fixture.ask(post("/", "x")).own_error(502, "backend_error");
    assert!(begun.elapsed() < Duration::from_secs(1));
}

#[test]
fn another_generation_gets_new_connections() {
    let backend = RawBackend::answering(OK);
    let fixture = before(&backend);
    assert_eq!(fixture.ask(get("/", "")).status, 200);
    let endpoint: Endpoint = backend.url("").parse().unwrap();
    fixture
        .state
        .send_replace(Backend::ready(endpoint.clone(), 2));
    eventually("a connection of its own", || {
        assert_eq!(fixture.ask(get("/", "")).status, 200);
        backend.connections() == 2
    });
}

#[test]
fn while_there_is_no_backend_the_answer_is_503_with_its_message() {
    let fixture = start(
        config(),
        Backend::unavailable("The worker is loading.", Duration::from_millis(2500)),
    );
    let mut client = fixture.connect();
    for _ in 0..2 {
        client.send(post("/v1/systemone", "{}"));
        let reply = client.reply();
        assert_eq!(
            reply.own_error(503, "service_unavailable"),
            "The worker is loading."
        );
        assert_eq!(reply.values("retry-after"), ["3"]);
    }
    let backend = RawBackend::answering(OK);
    fixture.state.send_replace(backend.ready());
    eventually("it is forwarded again", || {
        client.send(post("/", "{}"));
        client.reply().status == 200
    });
}

#[test]
fn every_address_of_localhost_is_tried() {
    let backend = RawBackend::answering(OK);
    let endpoint = format!("http://localhost:{}", backend.address.port());
    let fixture = start(config(), Backend::ready(endpoint.parse().unwrap(), 1));
    assert_eq!(fixture.ask(get("/", "")).status, 200);
}

/// Answers one request of a few bytes; false once there is none.
fn answer_one(stream: &mut (impl Read + Write)) -> bool {
    let asked = matches!(stream.read(&mut [0; 4096]), Ok(1..));
    asked && stream.write_all(OK.as_bytes()).is_ok()
}

fn answer_each(mut stream: impl Read + Write) {
    while answer_one(&mut stream) {}
}

/// A frontend before what listens, or does not, at this path.
#[cfg(unix)]
fn before_socket(path: &std::path::Path, config: Config) -> Fixture {
    start(config, Backend::ready(Endpoint::unix(path).unwrap(), 1))
}

/// A socket that is listened on, and where it is.
#[cfg(unix)]
fn worker_socket(folder: &tempfile::TempDir) -> (PathBuf, UnixListener) {
    let path = folder.path().join("worker.sock");
    let listener = UnixListener::bind(&path).unwrap();
    (path, listener)
}

#[cfg(unix)]
#[test]
fn a_unix_socket_is_a_backend_too() {
    let folder = tempfile::tempdir().unwrap();
    let (path, listener) = worker_socket(&folder);
    std::thread::spawn(move || {
        listener.incoming().flatten().for_each(answer_each);
    });
    let fixture = before_socket(&path, config());
    for _ in 0..2 {
        assert_eq!(fixture.ask(get("/", "")).text(), "hi");
    }
}

/// A socket whose queue of connections that nobody has accepted holds one.
#[cfg(target_os = "linux")]
fn with_room_for_one(folder: &tempfile::TempDir) -> (PathBuf, UnixListener) {
    let (path, listener) = worker_socket(folder);
    socket2::SockRef::from(&listener).listen(0).unwrap();
    (path, listener)
}

/// So many clients, of which each has sent a request.
#[cfg(unix)]
fn asking(fixture: &Fixture, count: usize) -> Vec<Client> {
    let mut clients: Vec<Client> = (0..count).map(|_| fixture.connect()).collect();
    for client in &mut clients {
        client.send(post("/", "x"));
    }
    clients
}

#[cfg(unix)]
fn are_in_flight(fixture: &Fixture, count: usize) -> bool {
    let mut admin = Client::connect(fixture.frontend.admin_address().expect("is set"));
    admin.send(get("/metrics", "connection: close\r\n"));
    let waiting = format!("omni_jev_frontend_in_flight_requests {count}\n");
    admin.reply().text().contains(&waiting)
}

#[cfg(target_os = "linux")]
#[test]
fn a_unix_socket_that_is_behind_with_accepting_is_waited_for() {
    const CLIENTS: usize = 8;
    let folder = tempfile::tempdir().unwrap();
    let (path, listener) = with_room_for_one(&folder);
    let config = Config {
        admin_bind: Some(config().bind),
        ..config()
    };
    let fixture = before_socket(&path, config);
    let mut clients = asking(&fixture, CLIENTS);
    eventually("all of them wait", || are_in_flight(&fixture, CLIENTS));
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(|| answer_each(stream));
        }
    });
    for client in &mut clients {
        assert_eq!(client.reply().status, 200);
    }
}

#[cfg(unix)]
#[test]
fn a_worker_has_so_many_requests_at_once_and_the_others_wait_in_turn() {
    const CLIENTS: usize = 8;
    const AT_ONCE: usize = 3;
    let folder = tempfile::tempdir().unwrap();
    let (path, listener) = worker_socket(&folder);
    let (come, seen) = std::sync::mpsc::channel();
    let (go_on, told) = std::sync::mpsc::channel::<()>();
    std::thread::spawn(move || {
        let first: Vec<_> = listener.incoming().flatten().take(AT_ONCE).collect();
        come.send(first.len()).unwrap();
        told.recv().unwrap();
        listener.set_nonblocking(true).unwrap();
        let others = listener.accept().is_ok();
        come.send(usize::from(others)).unwrap();
        for stream in first {
            std::thread::spawn(|| answer_each(stream));
        }
    });
    let config = Config {
        admin_bind: Some(config().bind),
        backend_timeout: PATIENCE,
        max_at_worker: AT_ONCE,
        threads: 1,
        ..config()
    };
    let fixture = before_socket(&path, config);
    let mut clients = asking(&fixture, CLIENTS);
    assert_eq!(seen.recv().unwrap(), AT_ONCE);
    eventually("all of them wait", || are_in_flight(&fixture, CLIENTS));
    go_on.send(()).unwrap();
    assert_eq!(seen.recv().unwrap(), 0);
    for client in &mut clients {
        assert_eq!(client.reply().status, 200);
    }
}

#[cfg(unix)]
#[test]
fn a_request_that_waits_for_its_place_at_a_worker_has_its_deadline() {
    let folder = tempfile::tempdir().unwrap();
    let (path, _listener) = worker_socket(&folder);
    let config = Config {
        backend_timeout: Duration::from_millis(300),
        max_at_worker: 1,
        ..config()
    };
    let fixture = before_socket(&path, config);
    for client in &mut asking(&fixture, 2) {
        client.reply().own_error(504, "timeout_error");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn while_a_unix_socket_is_behind_a_connection_that_is_given_back_is_used() {
    let folder = tempfile::tempdir().unwrap();
    let (path, listener) = with_room_for_one(&folder);
    let (go_on, told) = std::sync::mpsc::channel::<()>();
    std::thread::spawn(move || {
        let (mut first, _) = listener.accept().unwrap();
        // Whoever is first waits until the others do.
        told.recv().unwrap();
        for _ in 0..3 {
            assert!(answer_one(&mut first));
        }
        // The one that had a place in the queue.
        told.recv().unwrap();
        let (mut second, _) = listener.accept().unwrap();
        answer_one(&mut second);
    });
    let config = Config {
        admin_bind: Some(config().bind),
        backend_timeout: PATIENCE,
        // Each has connections of its own.
        threads: 1,
        ..config()
    };
    let fixture = before_socket(&path, config);
    let (answered, seen) = std::sync::mpsc::channel();
    for _ in 0..4 {
        let (mut client, answered) = (fixture.connect(), answered.clone());
        client.send(post("/", "x"));
        std::thread::spawn(move || answered.send(client.reply().status));
    }
    eventually("all of them wait", || are_in_flight(&fixture, 4));
    go_on.send(()).unwrap();
    let few: Vec<u16> = (0..3).map(|_| seen.recv().unwrap()).collect();
    assert_eq!(few, [200; 3]);
    go_on.send(()).unwrap();
    assert_eq!(seen.recv().unwrap(), 200);
}

#[cfg(target_os = "linux")]
#[test]
fn a_unix_socket_that_never_accepts_is_504_after_the_time_for_an_answer() {
    let folder = tempfile::tempdir().unwrap();
    let (path, _listener) = with_room_for_one(&folder);
    let _first = std::os::unix::net::UnixStream::connect(&path).unwrap();
    let config = Config {
        backend_timeout: Duration::from_millis(300),
        ..config()
    };
    let fixture = before_socket(&path, config);
    let begun = Instant::now();
    fixture.ask(post("/", "x")).own_error(504, "timeout_error");
    assert!(begun.elapsed() >= Duration::from_millis(300));
}

#[cfg(unix)]
#[test]
fn a_unix_socket_that_nobody_listens_on_is_502_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let (path, listener) = worker_socket(&folder);
    drop(listener);
    let config = Config {
        connect_timeout: PATIENCE,
        ..config()
    };
    let fixture = before_socket(&path, config);
    let begun = Instant::now();
    fixture.ask(post("/", "x")).own_error(502, "backend_error");
    assert!(begun.elapsed() < PATIENCE / 2);
}

mod tls {
    use super::*;
    use rcgen::generate_simple_self_signed;
    use std::path::PathBuf;

    /// A server of TLS on one thread, its certificate's file and the port.
    fn serve(folder: &std::path::Path, name: &str) -> (PathBuf, u16) {
        let made = generate_simple_self_signed([name.to_owned()]).unwrap();
        let file = folder.join("roots.pem");
        std::fs::write(&file, made.cert.pem()).unwrap();
        let key = tokio_rustls::rustls::pki_types::PrivateKeyDer::try_from(
            made.signing_key.serialize_der(),
        )
        .unwrap();
        let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
        let config = tokio_rustls::rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key)
            .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || {
            let config = Arc::new(config);
            for mut socket in listener.incoming().flatten() {
                let session = tokio_rustls::rustls::ServerConnection::new(Arc::clone(&config));
                let mut session = session.unwrap();
                answer_each(tokio_rustls::rustls::Stream::new(&mut session, &mut socket));
            }
        });
        (file, port)
    }

    fn fixture(roots: PathBuf, port: u16) -> Fixture {
        let config = Config {
            backend_roots: Some(roots),
            ..config()
        };
        let endpoint = format!("https://localhost:{port}").parse().unwrap();
        start(config, Backend::ready(endpoint, 1))
    }

    #[test]
    fn a_backend_behind_tls_is_reached_and_its_connection_kept() {
        let folder = tempfile::tempdir().unwrap();
        let (roots, port) = serve(folder.path(), "localhost");
        let fixture = fixture(roots, port);
        for _ in 0..2 {
            assert_eq!(fixture.ask(post("/", "x")).text(), "hi");
        }
    }

    #[test]
    fn a_backend_with_anothers_certificate_is_not_spoken_to() {
        let folder = tempfile::tempdir().unwrap();
        let (roots, port) = serve(folder.path(), "elsewhere.example");
        fixture(roots, port)
            .ask(post("/", "x"))
            .own_error(502, "backend_error");
    }

    #[test]
    fn roots_that_cannot_be_read_stop_the_start() {
        let (_state, seen) =
            tokio::sync::watch::channel(Backend::ready("https://localhost:1".parse().unwrap(), 1));
        let config = Config {
            backend_roots: Some("/nonexistent/roots.pem".into()),
            ..config()
        };
        let started = omni_jev_frontend::Frontend::start(
            config,
            seen,
            omni_jev_frontend::Registry::default(),
        );
        let error = started.unwrap_err().to_string();
        assert!(error.contains("/nonexistent/roots.pem"), "{error}");
    }
}

#[test]
fn many_clients_at_once_each_get_their_own_answer() {
    let backend = RawBackend::start(|mut talk, _| {
        while let Some(request) = talk.request() {
            let body = request.body;
            talk.say(format!(
                "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n",
                body.len()
            ));
            talk.say(body);
        }
    });
    let config = Config {
        threads: 3,
        ..config()
    };
    let fixture = start(config, backend.ready());
    let wrong = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for client_number in 0..24 {
            let (fixture, wrong) = (&fixture, &wrong);
            scope.spawn(move || {
                let mut client = fixture.connect();
                for n in 0..40 {
                    let body = format!("{client_number}/{n}").repeat(1 + n * 7);
                    client.send(post("/", &body));
                    if client.reply().text() != body {
                        wrong.store(true, Ordering::SeqCst);
                    }
                }
            });
        }
    });
    assert!(!wrong.load(Ordering::SeqCst));
    assert!(backend.connections() <= 24, "{}", backend.connections());
}
