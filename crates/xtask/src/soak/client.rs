//! A client that asks all the time, and judges every answer.

use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::account::{Account, Fate};

/// Far longer than the frontend's own deadline: an answer that is not there by then is lost.
const PATIENCE: Duration = Duration::from_secs(30);
/// Between two requests of one client.
const PAUSE: Duration = Duration::from_millis(20);

/// Asks one after the other, each on a connection of its own.
pub(crate) fn ask_until(over: &AtomicBool, client: u64, address: &str, account: &Account) {
    let mut number = 0_u64;
    while !over.load(Ordering::Relaxed) {
        if account.is_quiet() {
            thread::sleep(PAUSE);
            continue;
        }
        number += 1;
        let state = format!("{client}-{number}");
        let from = Instant::now();
        let fate = match exchange(address, &state) {
            Ok(answer) => judge(&answer, &state),
            Err(error) if is_time_out(&error) => Fate::Wrong("no answer at all".to_owned()),
            Err(_) => Fate::Cut {
                from,
                to: Instant::now(),
            },
        };
        account.request(fate, from.elapsed());
        thread::sleep(PAUSE);
    }
}

fn is_time_out(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
    )
}

/// The answer, from its first byte to the end of the connection.
fn exchange(address: &str, state: &str) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let body = format!(r#"{{"state":"{state}"}}"#);
    write!(
        stream,
        "POST /v1/systemone HTTP/1.1\r\nhost: soak\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    if answer.is_empty() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(answer)
}

/// Whether an answer is the right one, or one of the frontend's own errors, whole and in its shape.
fn judge(answer: &[u8], state: &str) -> Fate {
    understand(answer, state).unwrap_or_else(|| {
        let shown = String::from_utf8_lossy(&answer[..answer.len().min(400)]);
        Fate::Wrong(format!("to {state} came {shown:?}"))
    })
}

fn understand(answer: &[u8], state: &str) -> Option<Fate> {
    let text = std::str::from_utf8(answer).ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    let mut lines = head.split("\r\n");
    let status: u16 = lines
        .next()?
        .strip_prefix("HTTP/1.1 ")?
        .get(..3)?
        .parse()
        .ok()?;
    let headers: Vec<(String, &str)> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim()))
        .collect();
    let header = |name: &str| headers.iter().find(|(n, _)| n == name).map(|(_, v)| *v);
    if header("content-length")?.parse::<usize>().ok()? != body.len() {
        return None;
    }
    let id = header("x-request-id")?;
    let body: Value = serde_json::from_str(body).ok()?;
    if status == 200 {
        return (body["echo"] == state).then_some(Fate::Answered);
    }
    let expected = match status {
        502 => "backend_error",
        503 => "service_unavailable",
        504 => "timeout_error",
        _ => return None,
    };
    let detail = &body["detail"];
    let whole = detail["error_type"] == expected
        && detail["request_id"] == id
        && detail["message"]
            .as_str()
            .is_some_and(|message| !message.is_empty());
    let patient = status != 503 || header("retry-after")?.parse::<u64>().ok()? >= 1;
    (whole && patient).then_some(Fate::Refused(status))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: &str, headers: &str, body: &str) -> Vec<u8> {
        format!(
            "HTTP/1.1 {status}\r\nx-request-id: i\r\n{headers}content-length: {}\r\n\r\n{body}",
            body.len()
        )
        .into_bytes()
    }

    #[test]
    fn only_the_requests_own_answer_is_right() {
        let right = answer("200 OK", "", r#"{"echo":"1-2"}"#);
        assert_eq!(judge(&right, "1-2"), Fate::Answered);
        assert!(matches!(judge(&right, "1-3"), Fate::Wrong(_)));
        let cut = &right[..right.len() - 1];
        assert!(matches!(judge(cut, "1-2"), Fate::Wrong(_)));
    }

    #[test]
    fn a_refusal_is_honest_only_in_its_shape_and_with_its_headers() {
        let body =
            r#"{"detail":{"error_type":"service_unavailable","message":"m","request_id":"i"}}"#;
        let honest = answer("503 X", "retry-after: 3\r\n", body);
        assert_eq!(judge(&honest, "1-1"), Fate::Refused(503));
        assert!(matches!(
            judge(&answer("503 X", "", body), "1-1"),
            Fate::Wrong(_)
        ));
        assert!(matches!(
            judge(&answer("502 X", "", body), "1-1"),
            Fate::Wrong(_)
        ));
        assert!(matches!(
            judge(&answer("500 X", "", "{}"), "1-1"),
            Fate::Wrong(_)
        ));
    }
}
