//! Follows the messages of one connection through its bytes.

use super::Limits;
use super::chunks::Chunks;
use super::head::{self, Framing, Scanner};
use crate::fault::Fault;

/// Knows which bytes of a connection may go on to the HTTP library.
#[derive(Debug)]
pub(crate) struct Inspector {
    limits: Limits,
    state: State,
}

#[derive(Debug)]
enum State {
    Head(Scanner),
    Length { left: u64 },
    Chunked(Chunks),
    Complete,
}

impl Inspector {
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            limits,
            state: State::Head(Scanner::default()),
        }
    }

    /// Expects another request; to be called once the last one is complete.
    pub(crate) fn begin(&mut self) {
        self.state = State::Head(Scanner::default());
    }

    /// Whether the head has gone by and the body has not.
    pub(crate) fn is_in_body(&self) -> bool {
        matches!(self.state, State::Length { .. } | State::Chunked(_))
    }

    /// Whether one whole request has gone by.
    pub(crate) fn is_complete(&self) -> bool {
        matches!(self.state, State::Complete)
    }

    /// How many of `bytes` may go on; the rest is to be given again, with what
    /// comes after it. A head goes on whole, a body as it comes, and nothing
    /// past the request's end.
    ///
    /// # Errors
    ///
    /// Why the request cannot be forwarded; nothing of `bytes` may go on then.
    pub(crate) fn advance(&mut self, bytes: &[u8]) -> Result<usize, Fault> {
        let mut at = 0;
        loop {
            let rest = &bytes[at..];
            match &mut self.state {
                State::Head(scanner) => {
                    let Some(length) = scanner.scan(rest, &self.limits)? else {
                        return Ok(at);
                    };
                    self.state = match head::check(&rest[..length], &self.limits)? {
                        Framing::Empty => State::Complete,
                        Framing::Length(left) => State::Length { left },
                        Framing::Chunked => State::Chunked(Chunks::new()),
                    };
                    at += length;
                }
                State::Length { left } => {
                    let here = u64::try_from(rest.len()).unwrap_or(u64::MAX).min(*left);
                    at += usize::try_from(here).unwrap_or(usize::MAX);
                    *left -= here;
                    if *left > 0 {
                        return Ok(at);
                    }
                    self.state = State::Complete;
                }
                State::Chunked(chunks) => {
                    at += chunks.advance(rest, &self.limits)?;
                    if !chunks.is_done() {
                        return Ok(at);
                    }
                    self.state = State::Complete;
                }
                State::Complete => return Ok(at),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inspector() -> Inspector {
        Inspector::new(Limits {
            target: 100,
            head: 1000,
            body: 1000,
        })
    }

    #[test]
    fn nothing_past_a_requests_end_goes_on() {
        for body in [
            "content-length: 3\r\n\r\nabc",
            "transfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
            "\r\n",
        ] {
            let request = format!("POST / HTTP/1.1\r\nhost: h\r\n{body}");
            let two = request.repeat(2);
            let mut inspector = inspector();
            assert_eq!(inspector.advance(two.as_bytes()), Ok(request.len()));
            assert!(inspector.is_complete());
            inspector.begin();
            assert_eq!(inspector.advance(request.as_bytes()), Ok(request.len()));
        }
    }

    #[test]
    fn a_head_goes_on_whole_and_a_body_as_it_comes() {
        let head = b"POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 4\r\n\r\n";
        let mut inspector = inspector();
        assert_eq!(inspector.advance(&head[..10]), Ok(0));
        assert_eq!(inspector.advance(head), Ok(head.len()));
        assert!(inspector.is_in_body());
        assert_eq!(inspector.advance(b"ab"), Ok(2));
        assert!(!inspector.is_complete());
        assert_eq!(inspector.advance(b"cdGET"), Ok(2));
        assert!(inspector.is_complete());
    }
}
