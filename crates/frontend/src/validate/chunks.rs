//! Chunked bodies (RFC 9112 7.1): where one ends, and whether it is valid.

use super::Limits;
use crate::fault::{Fault, Malformed};

/// Bytes of chunk extensions in one body; no client of ours sends any.
const MAX_EXTENSION: usize = 4096;

/// Follows a chunked body through the bytes that carry it, without changing them.
#[derive(Debug)]
pub(crate) struct Chunks {
    state: State,
    /// Of data, in all chunks so far.
    body: u64,
    extension: usize,
    trailers: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// In a chunk's size, of which so many digits have come.
    Size {
        size: u64,
        digits: u8,
    },
    /// After the size's digits: white space, then an extension or the line's end.
    AfterSize {
        size: u64,
    },
    Extension {
        size: u64,
    },
    SizeLineFeed {
        size: u64,
    },
    Data {
        left: u64,
    },
    DataCarriageReturn,
    DataLineFeed,
    /// At the start of a line after the last chunk.
    Line,
    Trailer,
    TrailerLineFeed,
    LastLineFeed,
    Done,
}

impl Chunks {
    pub(crate) fn new() -> Self {
        Self {
            state: START,
            body: 0,
            extension: 0,
            trailers: 0,
        }
    }

    pub(crate) fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// How many of `bytes` belong to the body; all of them unless it ends here.
    ///
    /// # Errors
    ///
    /// When the framing is not valid, or the body is over its limit.
    pub(crate) fn advance(&mut self, bytes: &[u8], limits: &Limits) -> Result<usize, Fault> {
        let mut at = 0;
        while at < bytes.len() && !self.is_done() {
            if let State::Data { left } = self.state {
                let here = u64::try_from(bytes.len() - at)
                    .unwrap_or(u64::MAX)
                    .min(left);
                at += usize::try_from(here).unwrap_or(usize::MAX);
                self.state = match left - here {
                    0 => State::DataCarriageReturn,
                    left => State::Data { left },
                };
            } else {
                self.state = self.step(bytes[at], limits)?;
                at += 1;
            }
        }
        Ok(at)
    }

    fn step(&mut self, byte: u8, limits: &Limits) -> Result<State, Fault> {
        let next = match (self.state, byte) {
            (State::Size { size, digits }, _) if byte.is_ascii_hexdigit() => {
                // Sixteen digits fill 64 bits; more are an overflow or zeros to no end.
                if digits == 16 {
                    return Err(Malformed::Chunk.into());
                }
                State::Size {
                    size: size << 4 | hex(byte),
                    digits: digits + 1,
                }
            }
            (State::Size { digits: 0, .. }, _) => return Err(Malformed::Chunk.into()),
            (State::Size { size, .. } | State::AfterSize { size }, b' ' | b'\t') => {
                self.count_extension()?;
                State::AfterSize { size }
            }
            (State::Size { size, .. } | State::AfterSize { size }, b';') => {
                State::Extension { size }
            }
            (
                State::Size { size, .. } | State::AfterSize { size } | State::Extension { size },
                b'\r',
            ) => State::SizeLineFeed { size },
            (State::Extension { size }, b'\t' | b' '..=b'~' | 0x80..) => {
                self.count_extension()?;
                State::Extension { size }
            }
            (State::SizeLineFeed { size }, b'\n') => self.begin_data(size, limits)?,
            (State::DataCarriageReturn, b'\r') => State::DataLineFeed,
            (State::DataLineFeed, b'\n') => START,
            (State::Line, b'\r') => State::LastLineFeed,
            (State::Line | State::Trailer, b'\t' | b' '..=b'~' | 0x80..) => {
                self.count_trailer(limits)?;
                State::Trailer
            }
            (State::Trailer, b'\r') => State::TrailerLineFeed,
            (State::TrailerLineFeed, b'\n') => State::Line,
            (State::LastLineFeed, b'\n') => State::Done,
            _ => return Err(Malformed::Chunk.into()),
        };
        Ok(next)
    }

    fn begin_data(&mut self, size: u64, limits: &Limits) -> Result<State, Fault> {
        if size == 0 {
            return Ok(State::Line);
        }
        self.body = self.body.saturating_add(size);
        if self.body > limits.body {
            return Err(Fault::BodyTooLarge { limit: limits.body });
        }
        Ok(State::Data { left: size })
    }

    fn count_extension(&mut self) -> Result<(), Fault> {
        self.extension += 1;
        if self.extension > MAX_EXTENSION {
            Err(Malformed::Chunk.into())
        } else {
            Ok(())
        }
    }

    fn count_trailer(&mut self, limits: &Limits) -> Result<(), Fault> {
        self.trailers += 1;
        // The library reads trailers into 16 KiB.
        if self.trailers > limits.head.min(15 * 1024) {
            Err(Fault::HeadTooLarge { limit: limits.head })
        } else {
            Ok(())
        }
    }
}

const START: State = State::Size { size: 0, digits: 0 };

fn hex(byte: u8) -> u64 {
    u64::from(match byte {
        b'0'..=b'9' => byte - b'0',
        b'a'..=b'f' => byte - b'a' + 10,
        _ => byte - b'A' + 10,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LIMITS: Limits = Limits {
        target: 32,
        head: 64,
        body: 100,
    };

    fn end(bytes: &[u8]) -> Result<Option<usize>, Fault> {
        let mut chunks = Chunks::new();
        let length = chunks.advance(bytes, &LIMITS)?;
        Ok(chunks.is_done().then_some(length))
    }

    #[test]
    fn a_body_ends_after_its_last_chunk_and_trailers() {
        for body in [
            "0\r\n\r\n",
            "3\r\nabc\r\n0\r\n\r\n",
            "A\r\n0123456789\r\n000\r\n\r\n",
            "3;a=\"b\"\r\nabc\r\n0;x\r\n\r\n",
            "3 ;a\r\nabc\r\n0 \r\n\r\n",
            "0\r\nx: 1\r\ny: 2\r\n\r\n",
        ] {
            let followed = format!("{body}GET");
            assert_eq!(end(followed.as_bytes()), Ok(Some(body.len())), "{body:?}");
        }
    }

    #[test]
    fn invalid_framing_is_the_clients_fault() {
        for body in [
            "\r\n",
            "g\r\n",
            "-1\r\n",
            "+1\r\n",
            "0x1\r\n",
            " 1\r\n",
            "1 1\r\n",
            "1\n",
            "1\rx",
            "1\r\nab",
            "1\r\na\n",
            "1\r\na\rx",
            ";a\r\n",
            "1;\n",
            "0\r\n\n",
            "0\r\nx\n",
            "0\r\nx\ry",
            "00000000000000000\r\n",
            "1;\0\r\n",
        ] {
            let error = end(body.as_bytes()).unwrap_err();
            assert_eq!(error, Fault::Malformed(Malformed::Chunk), "{body:?}");
        }
    }

    #[test]
    fn a_body_over_its_limit_is_refused_at_the_chunk_that_passes_it() {
        let too_large = Err(Fault::BodyTooLarge { limit: 100 });
        assert_eq!(end(b"65\r\n"), too_large);
        assert_eq!(end(b"ffffffffffffffff\r\n"), too_large);
        let mut two = b"64\r\n".to_vec();
        two.extend([b'x'; 100]);
        two.extend(b"\r\n1\r\n");
        assert_eq!(end(&two), too_large);
    }

    #[test]
    fn trailers_over_the_heads_limit_are_refused() {
        let body = format!("0\r\nx: {}\r\n\r\n", "y".repeat(64));
        assert_eq!(end(body.as_bytes()), Err(Fault::HeadTooLarge { limit: 64 }));
    }

    proptest! {
        #[test]
        fn where_a_body_is_cut_makes_no_difference(
            sizes in proptest::collection::vec(1usize..12, 0..6),
            cut in 0usize..200,
        ) {
            let mut body = Vec::new();
            for size in &sizes {
                body.extend(format!("{size:x}\r\n").bytes());
                body.resize(body.len() + size, b'\r');
                body.extend(b"\r\n");
            }
            body.extend(b"0\r\n\r\n");
            let cut = cut.min(body.len());
            let mut chunks = Chunks::new();
            prop_assert_eq!(chunks.advance(&body[..cut], &LIMITS), Ok(cut));
            prop_assert_eq!(chunks.advance(&body[cut..], &LIMITS), Ok(body.len() - cut));
            prop_assert!(chunks.is_done());
        }
    }
}
