//! A thousand slow clients (slowhttptest's three modes) beside one that is not.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use omni_jev_frontend::Config;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;

use crate::support::*;

const SLOW: usize = 1000;

/// What a slow client gives up after, and the frontend therefore must have before.
const ENOUGH: Duration = Duration::from_mins(1);

/// How a slow client sends: `begin`, then `more` again and again.
#[derive(Clone, Copy)]
struct Sends {
    begin: &'static str,
    more: &'static str,
}

/// Starts a thousand of one kind, and asks one request after another as a normal
/// client until all of them are through. Gives what each of them ended with.
fn beside_a_normal_client<T: Send + 'static>(
    fixture: &Fixture,
    slow: impl AsyncFn(SocketAddr) -> T + Copy + Send + 'static,
) -> Vec<T> {
    let address = fixture.frontend.address();
    let (done, ended) = std::sync::mpsc::channel();
    let slow_ones = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build_local(tokio::runtime::LocalOptions::default())
            .unwrap();
        let outcomes = runtime.block_on(async {
            let mut clients = JoinSet::new();
            for _ in 0..SLOW {
                clients.spawn_local(async move { slow(address).await });
            }
            clients.join_all().await
        });
        let _ = done.send(());
        outcomes
    });
    let mut client = fixture.connect();
    let mut times = Vec::new();
    while ended.try_recv().is_err() {
        let begun = Instant::now();
        client.send(post("/normal", "x"));
        assert_eq!(client.reply().status, 200);
        times.push(begun.elapsed());
        std::thread::sleep(Duration::from_millis(10));
    }
    times.sort_unstable();
    // Mostly at once, and never as slow as the others make it.
    let (median, worst) = (times[times.len() / 2], times[times.len() - 1]);
    assert!(times.len() > 10, "{} answers beside them", times.len());
    assert!(median < Duration::from_millis(500), "median {median:?}");
    assert!(worst < Duration::from_secs(10), "worst {worst:?}");
    slow_ones.join().unwrap()
}

/// Sends slowly; gives the status that it is told, and when that was.
async fn send_slowly(address: SocketAddr, sends: Sends) -> (String, Duration) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let begun = Instant::now();
    let _ = stream.write_all(sends.begin.as_bytes()).await;
    let mut answer = Vec::new();
    while begun.elapsed() < ENOUGH {
        let pause = tokio::time::sleep(Duration::from_millis(100));
        tokio::select! {
            read = stream.read_buf(&mut answer) => match read {
                Ok(1..) => {}
                Ok(0) | Err(_) => break,
            },
            () = pause => {
                let _ = stream.write_all(sends.more.as_bytes()).await;
            }
        }
    }
    let status = String::from_utf8_lossy(&answer).chars().take(12).collect();
    (status, begun.elapsed())
}

fn all_are_told_408(outcomes: &[(String, Duration)], limit: Duration) {
    assert_eq!(outcomes.len(), SLOW);
    for (status, after) in outcomes {
        assert_eq!(status, "HTTP/1.1 408");
        assert!(*after >= limit, "after {after:?}");
        assert!(*after < ENOUGH, "only after {after:?}");
    }
}

#[test]
fn a_thousand_slow_heads_end_in_408_and_disturb_nobody() {
    let backend = RawBackend::answering(OK);
    let limit = Duration::from_secs(2);
    let config = Config {
        head_timeout: limit,
        ..config()
    };
    let fixture = start(config, backend.ready());
    let outcomes = beside_a_normal_client(&fixture, async |address| {
        let sends = Sends {
            begin: "GET / HTTP/1.1\r\nhost: h\r\n",
            more: "x-slow: 1\r\n",
        };
        send_slowly(address, sends).await
    });
    all_are_told_408(&outcomes, limit);
}

#[test]
fn a_thousand_slow_bodies_end_in_408_and_disturb_nobody() {
    let backend = RawBackend::answering(OK);
    let limit = Duration::from_secs(2);
    let config = Config {
        body_timeout: limit,
        ..config()
    };
    let fixture = start(config, backend.ready());
    let outcomes = beside_a_normal_client(&fixture, async |address| {
        let sends = Sends {
            begin: "POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 100000\r\n\r\n",
            more: "xxxx",
        };
        send_slowly(address, sends).await
    });
    all_are_told_408(&outcomes, limit);
    let slow = backend.seen().iter().any(|request| request.body != b"x");
    assert!(!slow, "the backend saw nothing of them");
}

/// How a slow reader fared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reader {
    /// It was let go before it had taken everything.
    Cut,
    /// It was told that there is no memory for its answer.
    Refused,
    /// It took everything, or is still at it.
    Served,
}

/// Asks for a large answer, then takes a little of it at a time.
async fn read_slowly(address: SocketAddr) -> Reader {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    // Loopback's packets are so long that the system would take megabytes at once.
    socket2::SockRef::from(&socket).set_tcp_mss(536).unwrap();
    let mut stream = socket.connect(address).await.unwrap();
    let _ = stream.write_all(get("/large", "").as_bytes()).await;
    let begun = Instant::now();
    let mut piece = [0; 32];
    let mut taken = 0;
    while begun.elapsed() < ENOUGH {
        match stream.read(&mut piece).await {
            Ok(0) | Err(_) if taken < LARGE => return Reader::Cut,
            Ok(0) | Err(_) => break,
            Ok(_) if piece.starts_with(b"HTTP/1.1 503") => return Reader::Refused,
            Ok(length) => taken += length,
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Reader::Served
}

/// More than the system takes off the frontend's hands for a client with so small
/// a window.
const LARGE: usize = 400_000;

#[test]
fn a_thousand_slow_readers_are_let_go_and_disturb_nobody() {
    let large = format!(
        "HTTP/1.1 200 OK\r\ncontent-length: {LARGE}\r\n\r\n{}",
        "x".repeat(LARGE)
    );
    let backend = RawBackend::start(move |mut talk, _| {
        while let Some(request) = talk.request() {
            let is_large = request.line().contains("/large");
            talk.say(if is_large { &large } else { OK });
        }
    });
    let config = Config {
        send_timeout: Duration::from_secs(1),
        // Not enough for all of them: the rest are told so.
        max_buffered_bytes: 200_000_000,
        max_in_flight: 2 * SLOW,
        ..config()
    };
    let fixture = start(config, backend.ready());
    let outcomes = beside_a_normal_client(&fixture, async |address| read_slowly(address).await);
    let count = |which| outcomes.iter().filter(|found| **found == which).count();
    assert_eq!(count(Reader::Served), 0, "kept though they were too slow");
    assert!(count(Reader::Cut) > SLOW / 4, "{} cut", count(Reader::Cut));
}
