//! How it ends.

use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use omni_jev_frontend::{Backend, Config, Drained, Frontend, Registry, StartError};

use crate::support::*;

fn finished(frontend: &mut Frontend) -> Drained {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
        .block_on(async { tokio::time::timeout(PATIENCE, frontend.finished()).await })
        .expect("ends in time")
        .expect("no thread failed")
}

#[test]
fn a_drain_finishes_what_is_in_flight_and_closes_what_is_idle() {
    let (release, wait) = std::sync::mpsc::channel::<()>();
    let wait = std::sync::Mutex::new(wait);
    let backend = RawBackend::start(move |mut talk, _| {
        talk.request();
        let _ = wait.lock().unwrap().recv();
        talk.say(OK);
    });
    let mut fixture = before(&backend);
    let mut idle = fixture.connect();
    let mut busy = fixture.connect();
    busy.send(post("/", "x"));
    eventually("it is at the backend", || !backend.seen().is_empty());
    fixture.frontend.drain();
    assert!(idle.is_closed());
    eventually("nobody listens any more", || {
        TcpStream::connect(fixture.frontend.address()).is_err()
    });
    drop(release);
    let reply = busy.reply();
    assert_eq!(reply.status, 200);
    assert_eq!(reply.values("connection"), ["close"]);
    assert_eq!(finished(&mut fixture.frontend), Drained { abandoned: 0 });
}

#[test]
fn a_drain_that_takes_too_long_cuts_off_what_is_left_and_counts_it() {
    let backend = RawBackend::start(|mut talk, _| {
        talk.request();
        talk.wait_for_close();
    });
    let config = Config {
        drain_timeout: Duration::from_millis(300),
        ..config()
    };
    let mut fixture = start(config, backend.ready());
    let mut stuck = fixture.connect();
    stuck.send(post("/", "x"));
    eventually("it is at the backend", || !backend.seen().is_empty());
    fixture.frontend.drain();
    assert_eq!(finished(&mut fixture.frontend), Drained { abandoned: 1 });
    assert!(stuck.is_closed());
}

#[test]
fn a_stop_waits_for_nothing() {
    let backend = RawBackend::start(|mut talk, _| {
        talk.request();
        talk.wait_for_close();
    });
    let mut fixture = before(&backend);
    let mut stuck = fixture.connect();
    stuck.send(post("/", "x"));
    eventually("it is at the backend", || !backend.seen().is_empty());
    fixture.frontend.drain();
    fixture.frontend.stop();
    let begun = Instant::now();
    assert_eq!(finished(&mut fixture.frontend), Drained { abandoned: 1 });
    assert!(begun.elapsed() < Duration::from_secs(5));
}

#[test]
fn a_drain_under_load_loses_no_request() {
    let backend = RawBackend::answering(OK);
    let config = Config {
        threads: 2,
        drain_grace: Duration::from_millis(300),
        ..config()
    };
    let mut fixture = start(config, backend.ready());
    let address = fixture.frontend.address();
    let (answered, lost) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let draining = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for keeps in [true, false].repeat(4) {
            let (answered, lost, draining) = (&answered, &lost, &draining);
            scope.spawn(move || {
                let mut kept: Option<Client> = None;
                loop {
                    let mut client = match kept.take() {
                        Some(client) => client,
                        // No new connection once the listener is closed: that is refused, not lost.
                        None => match TcpStream::connect(address) {
                            Ok(_) if draining.load(Ordering::SeqCst) => return,
                            Ok(stream) => Client::on(stream),
                            Err(_) => return,
                        },
                    };
                    client.send(post("/", "x"));
                    match client.try_reply(false) {
                        Some(reply) if reply.status == 200 => {
                            answered.fetch_add(1, Ordering::SeqCst);
                            if keeps && reply.values("connection").is_empty() {
                                kept = Some(client);
                            }
                        }
                        _ => {
                            lost.fetch_add(1, Ordering::SeqCst);
                        }
                    }
                }
            });
        }
        eventually("there is load", || answered.load(Ordering::SeqCst) > 200);
        draining.store(true, Ordering::SeqCst);
        fixture.frontend.drain();
    });
    assert_eq!(lost.load(Ordering::SeqCst), 0);
    assert_eq!(finished(&mut fixture.frontend), Drained { abandoned: 0 });
}

#[test]
fn an_address_in_use_is_known_before_it_starts() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let (_state, seen) = tokio::sync::watch::channel(Backend::unavailable("", Duration::ZERO));
    let address = taken.local_addr().unwrap();
    for (config, is_expected) in [
        (
            Config {
                bind: address,
                ..config()
            },
            (|error| matches!(error, StartError::Bind { .. })) as fn(StartError) -> bool,
        ),
        (
            Config {
                admin_bind: Some(address),
                ..config()
            },
            |error| matches!(error, StartError::AdminBind { .. }),
        ),
    ] {
        let error = Frontend::start(config, seen.clone(), Registry::default()).unwrap_err();
        assert!(error.to_string().contains(&address.to_string()));
        assert!(is_expected(error));
    }
}
