//! The backend of `cargo xtask bench frontend`: it answers any POST with 196 bytes, as cheaply as it can.
//!
//! It is no example of a server. It believes its client, reads no header but `Content-Length`, and
//! runs on one thread, so that what a measurement sees is the proxy in front of it.
//!
//! | request | answer |
//! | --- | --- |
//! | `POST /held` | the usual one, but only after a `POST /release` (or 60 seconds) |
//! | `GET /held` | how many requests wait in `POST /held` now |
//! | `POST /release` | lets all of them go |
//! | anything else | 196 bytes of JSON |
//!
//! `bench_backend [ADDRESS]` listens on `127.0.0.1:0` unless told otherwise, and prints
//! `listening ADDRESS` once it does.

// The address is printed for the program that started this one.
#![allow(clippy::print_stdout)]

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

/// Head and body in one, so that an answer is one write.
const ANSWER: &str = concat!(
    "HTTP/1.1 200 OK\r\n",
    "content-type: application/json\r\n",
    "content-length: 196\r\n",
    "\r\n",
    r#"{"kind":"choice","option":"refund","scores":{"refund":0.8125,"exchange":0.1094,"#,
    r#""question":0.0547,"complaint":0.0234},"usage":{"input_tokens":87,"#,
    r#""output_tokens":0},"model":"bench","latency_ms":0.1}"#,
);

const HEAD_LENGTH: usize = 72;
const _: () = assert!(ANSWER.len() == HEAD_LENGTH + 196);

/// The longest that a request is held, should its release never come.
const LONGEST_HOLD: Duration = Duration::from_mins(1);

/// A head longer than this is a mistake of the measurement.
const MOST_BUFFERED: usize = 1 << 20;

fn main() -> io::Result<()> {
    let address = std::env::args()
        .nth(1)
        .unwrap_or_else(|| "127.0.0.1:0".to_owned());
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?
        .block_on(serve(&address))
}

/// Accepts for ever; ends only when it cannot listen or accept.
async fn serve(address: &str) -> io::Result<()> {
    let listener = TcpListener::bind(address).await?;
    println!("listening {}", listener.local_addr()?);
    let hold = Arc::new(Hold::default());
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let hold = Arc::clone(&hold);
        // A connection that breaks is the other side's affair: it counts the error.
        tokio::spawn(async move { answer_all(stream, &hold).await });
    }
}

/// The requests that wait for their release.
#[derive(Default)]
struct Hold {
    waiting: AtomicUsize,
    release: Notify,
}

impl Hold {
    async fn wait(&self) {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        // A hold that runs out is answered like any other.
        let _ = tokio::time::timeout(LONGEST_HOLD, self.release.notified()).await;
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }

    fn count(&self) -> String {
        let waiting = self.waiting.load(Ordering::Relaxed).to_string();
        format!(
            "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{waiting}",
            waiting.len()
        )
    }
}

/// Answers one connection's requests until it closes.
async fn answer_all(mut stream: TcpStream, hold: &Hold) -> io::Result<()> {
    let mut received = Vec::with_capacity(4096);
    while let Some(request) = next(&mut stream, &mut received).await? {
        match request {
            Request::Plain => {}
            Request::Held => hold.wait().await,
            Request::Release => hold.release.notify_waiters(),
            Request::CountHeld => {
                stream.write_all(hold.count().as_bytes()).await?;
                continue;
            }
        }
        stream.write_all(ANSWER.as_bytes()).await?;
    }
    Ok(())
}

/// What is asked for.
enum Request {
    Plain,
    Held,
    Release,
    CountHeld,
}

/// Reads one request with its body and forgets its bytes; `None` when the client closes.
async fn next(stream: &mut TcpStream, received: &mut Vec<u8>) -> io::Result<Option<Request>> {
    loop {
        if let Some(head) = head_length(received) {
            let length = head + content_length(&received[..head])?;
            let request = kind(received);
            while received.len() < length {
                if stream.read_buf(received).await? == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
            }
            received.drain(..length);
            return Ok(Some(request));
        }
        if received.len() > MOST_BUFFERED {
            return Err(io::ErrorKind::InvalidData.into());
        }
        if stream.read_buf(received).await? == 0 {
            return Ok(None);
        }
    }
}

fn kind(head: &[u8]) -> Request {
    if head.starts_with(b"POST /held ") {
        Request::Held
    } else if head.starts_with(b"GET /held ") {
        Request::CountHeld
    } else if head.starts_with(b"POST /release ") {
        Request::Release
    } else {
        Request::Plain
    }
}

/// The length of a whole head with its empty line.
fn head_length(received: &[u8]) -> Option<usize> {
    received
        .windows(4)
        .position(|window| window == b"\r\n\r\n")
        .map(|at| at + 4)
}

/// The body's length; chunks are an error, since no proxy has a reason to send them here.
fn content_length(head: &[u8]) -> io::Result<usize> {
    for line in head.split(|byte| *byte == b'\n').skip(1) {
        let Some(colon) = line.iter().position(|byte| *byte == b':') else {
            continue;
        };
        let (name, value) = line.split_at(colon);
        if name.eq_ignore_ascii_case(b"transfer-encoding") {
            return Err(io::ErrorKind::Unsupported.into());
        }
        if name.eq_ignore_ascii_case(b"content-length") {
            return std::str::from_utf8(&value[1..])
                .ok()
                .and_then(|value| value.trim().parse().ok())
                .ok_or_else(|| io::ErrorKind::InvalidData.into());
        }
    }
    Ok(0)
}
