//! One keep-alive connection that sends one request at a time and waits for its answer.
//!
//! Blocking sockets, so that a time taken here has no scheduler of ours in it.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use serde::Serialize;

use crate::bench::{interrupt, statistics};

/// The most that anything here waits for one step of a connection.
const STEP_LIMIT: Duration = Duration::from_secs(5);

/// After so many errors a round has nothing more to say.
const MOST_ERRORS: u32 = 100;

/// An open connection.
pub(super) struct Client {
    stream: TcpStream,
    received: Vec<u8>,
}

impl Client {
    pub(super) fn connect(address: SocketAddr) -> anyhow::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, STEP_LIMIT)
            .with_context(|| format!("cannot connect to {address}"))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(STEP_LIMIT))?;
        stream.set_write_timeout(Some(STEP_LIMIT))?;
        let received = Vec::with_capacity(2048);
        Ok(Self { stream, received })
    }

    /// Sends a whole request without waiting for its answer.
    pub(super) fn send(&mut self, request: &[u8]) -> anyhow::Result<()> {
        self.stream
            .write_all(request)
            .context("cannot send a request")
    }

    /// Reads one whole answer and gives its body.
    ///
    /// # Errors
    ///
    /// When the connection breaks, when the answer is not a 200 with a `Content-Length`, or when more
    /// than that answer has come.
    pub(super) fn receive(&mut self) -> anyhow::Result<String> {
        self.received.clear();
        loop {
            if let Some(answer) = Answer::parse(&self.received)? {
                if answer.status != 200 {
                    bail!("the answer is a {}", answer.status);
                }
                return Ok(answer.body);
            }
            self.read_more()?;
        }
    }

    fn read_more(&mut self) -> anyhow::Result<()> {
        let mut part = [0; 2048];
        match self.stream.read(&mut part) {
            Ok(0) => bail!("the connection closed before the answer was whole"),
            Ok(length) => self.received.extend_from_slice(&part[..length]),
            // The system begins nothing anew that has a time limit (signal(7)).
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error).context("no whole answer"),
        }
        Ok(())
    }

    /// One request and its answer.
    pub(super) fn ask(&mut self, request: &[u8]) -> anyhow::Result<String> {
        self.send(request)?;
        self.receive()
    }
}

/// A POST of 400 bytes to `path`, like wrk's.
pub(super) fn post(path: &str) -> Vec<u8> {
    let body = "x".repeat(389);
    format!(
        "POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n\
         Content-Length: 400\r\n\r\n{{\"text\":\"{body}\"}}"
    )
    .into_bytes()
}

/// A GET of `path`.
pub(super) fn get(path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n").into_bytes()
}

#[derive(Debug, PartialEq)]
struct Answer {
    status: u16,
    body: String,
}

impl Answer {
    /// `None` while it is not whole.
    fn parse(received: &[u8]) -> anyhow::Result<Option<Self>> {
        let Some(end) = received.windows(4).position(|window| window == b"\r\n\r\n") else {
            return Ok(None);
        };
        let head = std::str::from_utf8(&received[..end]).context("the answer's head is no text")?;
        let (first, rest) = head.split_once("\r\n").unwrap_or((head, ""));
        let status = first
            .strip_prefix("HTTP/1.1 ")
            .and_then(|line| line.split(' ').next())
            .and_then(|status| status.parse().ok())
            .with_context(|| format!("`{first}` does not begin an HTTP/1.1 answer"))?;
        let length: usize = rest
            .split("\r\n")
            .filter_map(|line| line.split_once(':'))
            .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
            .and_then(|(_, value)| value.trim().parse().ok())
            .context("the answer has no Content-Length")?;
        let body = &received[end + 4..];
        if body.len() > length {
            bail!("more came than the answer's Content-Length says");
        }
        if body.len() < length {
            return Ok(None);
        }
        let body = String::from_utf8_lossy(body).into_owned();
        Ok(Some(Self { status, body }))
    }
}

/// What one connection saw in one round.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Latency {
    pub(super) requests: usize,
    pub(super) errors: u32,
    pub(super) p50_us: f64,
    pub(super) p99_us: f64,
}

/// Asks over one connection for `time`, each request as soon as the one before is answered.
///
/// # Errors
///
/// When not one request was answered, or when interrupted. Other failures are counted, and the next
/// request goes over a new connection.
pub(super) fn closed_loop(address: SocketAddr, time: Duration) -> anyhow::Result<Latency> {
    let request = post("/v1/systemone");
    let (mut client, mut errors) = (None, 0);
    let mut times = Vec::new();
    let end = Instant::now() + time;
    while Instant::now() < end && errors < MOST_ERRORS {
        interrupt::check()?;
        if let Ok(took) = timed(&mut client, address, &request) {
            times.push(took.as_secs_f64() * 1e6);
        } else {
            errors += 1;
            client = None;
        }
    }
    times.sort_by(f64::total_cmp);
    let percentile = |part| statistics::quantile(&times, part, 100);
    let (Some(p50_us), Some(p99_us)) = (percentile(50), percentile(99)) else {
        bail!("no request to {address} was answered: {errors} errors");
    };
    Ok(Latency {
        requests: times.len(),
        errors,
        p50_us,
        p99_us,
    })
}

/// Connects if need be, which is not part of the time.
fn timed(
    client: &mut Option<Client>,
    address: SocketAddr,
    request: &[u8],
) -> anyhow::Result<Duration> {
    let client = match client {
        Some(client) => client,
        None => client.insert(Client::connect(address)?),
    };
    let start = Instant::now();
    client.ask(request)?;
    Ok(start.elapsed())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_whole_once_its_length_has_come() {
        let whole = b"HTTP/1.1 200 OK\r\nA: b\r\nContent-Length: 3\r\n\r\nabc";
        for cut in 0..whole.len() {
            assert_eq!(Answer::parse(&whole[..cut]).unwrap(), None, "{cut} bytes");
        }
        let answer = Answer::parse(whole).unwrap().unwrap();
        assert_eq!((answer.status, answer.body.as_str()), (200, "abc"));
    }

    #[test]
    fn an_answer_without_length_or_with_more_than_it_is_an_error() {
        assert!(Answer::parse(b"HTTP/1.1 200 OK\r\n\r\n").is_err());
        assert!(Answer::parse(b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nab").is_err());
        assert!(Answer::parse(b"garbage\r\n\r\n").is_err());
    }

    #[test]
    fn a_post_carries_the_400_bytes_that_it_announces() {
        let request = String::from_utf8(post("/held")).unwrap();
        let (head, body) = request.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("POST /held HTTP/1.1\r\n"));
        assert!(head.ends_with("Content-Length: 400"));
        assert_eq!(body.len(), 400);
    }
}
