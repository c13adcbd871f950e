//! Request heads: where one ends, and whether it can be forwarded.

use std::mem::MaybeUninit;

use http::Method;

use super::target::{self, Form};
use super::{Limits, MAX_HEADERS};
use crate::fault::{Fault, Malformed};
use crate::identity;

/// How a request's body is delimited (RFC 9112 6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Framing {
    Empty,
    Length(u64),
    Chunked,
}

/// Looks for the end of a head in bytes that arrive in pieces, each byte once.
#[derive(Debug, Default)]
pub(crate) struct Scanner {
    scanned: usize,
    line_start: usize,
    lines: usize,
}

impl Scanner {
    /// The length of the head at the start of `bytes`, or `None` while it is not
    /// all there. `bytes` begins where it began at the last call.
    ///
    /// # Errors
    ///
    /// What is already known to be wrong with a head that is not all there.
    pub(crate) fn scan(&mut self, bytes: &[u8], limits: &Limits) -> Result<Option<usize>, Fault> {
        let unscanned = self.scanned;
        self.scanned = bytes.len();
        for found in memchr::memchr_iter(b'\n', &bytes[unscanned..]) {
            let line_feed = unscanned + found;
            let line = &bytes[self.line_start..line_feed];
            // RFC 9112 2.2 lets a server take a bare line feed for a line's end;
            // servers that disagree on it can be played against each other.
            let Some((b'\r', line)) = line.split_last() else {
                return Err(Malformed::BareLineFeed.into());
            };
            self.line_start = line_feed + 1;
            match (self.lines, line.is_empty()) {
                // RFC 9112 2.2: empty lines before a request line are ignored.
                (0, true) => continue,
                (0, false) => {
                    line_within(line.len(), limits)?;
                    check_request_line(line)?;
                }
                (_, true) => return within(line_feed + 1, limits).map(Some),
                (_, false) => {}
            }
            self.lines += 1;
        }
        self.check_part(bytes, limits).map(|()| None)
    }

    /// What can be said of a head before its end has come.
    fn check_part(&self, bytes: &[u8], limits: &Limits) -> Result<(), Fault> {
        if self.lines == 0 {
            // Another protocol's first byte, TLS for one, never leads to an end.
            if bytes
                .get(self.line_start)
                .is_some_and(|&byte| !is_token(byte) && byte != b'\r')
            {
                return Err(Malformed::Syntax.into());
            }
            line_within(bytes.len() - self.line_start, limits)?;
        }
        within(bytes.len(), limits).map(|_| ())
    }
}

fn within(length: usize, limits: &Limits) -> Result<usize, Fault> {
    if length > limits.head {
        Err(Fault::HeadTooLarge { limit: limits.head })
    } else {
        Ok(length)
    }
}

/// Whether a request line may be so long: a method and a version beside a target
/// that is allowed, and no more, whether it comes in one piece or in many.
fn line_within(length: usize, limits: &Limits) -> Result<(), Fault> {
    if length > limits.target + 64 {
        return Err(Fault::TargetTooLong {
            limit: limits.target,
        });
    }
    Ok(())
}

fn check_request_line(line: &[u8]) -> Result<(), Fault> {
    if line.ends_with(b" HTTP/1.1") || line.ends_with(b" HTTP/1.0") {
        Ok(())
    } else if line.windows(5).any(|part| part == b"HTTP/") {
        Err(Malformed::Version.into())
    } else {
        Err(Malformed::Syntax.into())
    }
}

/// `tchar` of RFC 9110 5.6.2.
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// How the body after this whole head is delimited.
///
/// # Errors
///
/// Why the request cannot be forwarded.
pub(crate) fn check(bytes: &[u8], limits: &Limits) -> Result<Framing, Fault> {
    let mut space = [const { MaybeUninit::uninit() }; MAX_HEADERS];
    let mut head = httparse::Request::new(&mut []);
    match head.parse_with_uninit_headers(bytes, &mut space) {
        Ok(httparse::Status::Complete(length)) if length == bytes.len() => {}
        Err(httparse::Error::TooManyHeaders) => {
            return Err(Fault::HeadTooLarge { limit: limits.head });
        }
        Err(httparse::Error::Version) => return Err(Malformed::Version.into()),
        Ok(_) | Err(_) => return Err(Malformed::Syntax.into()),
    }
    let (Some(method), Some(target), Some(version)) = (head.method, head.path, head.version) else {
        return Err(Malformed::Syntax.into());
    };
    check_target(method, target, limits)?;
    let fields = Fields::collect(head.headers);
    fields.check_host(version)?;
    fields.framing(version, limits)
}

fn check_target(method: &str, target: &str, limits: &Limits) -> Result<(), Fault> {
    if target.len() > limits.target {
        return Err(Fault::TargetTooLong {
            limit: limits.target,
        });
    }
    // A tunnel is not a forwarded request, and an echo would show the client
    // what was added on the way (RFC 9110 9.3.6, 9.3.8).
    if matches!(method, "CONNECT" | "TRACE") {
        return Err(Fault::MethodRefused);
    }
    match target::form(target) {
        None => Err(Malformed::Target.into()),
        Some(Form::Asterisk) if method != "OPTIONS" => Err(Malformed::Target.into()),
        Some(_) => Ok(()),
    }
}

/// The headers that say where a request goes and how long it is.
#[derive(Default)]
struct Fields<'a> {
    hosts: usize,
    host: &'a [u8],
    lengths: usize,
    length: &'a [u8],
    codings: usize,
    coding: &'a [u8],
}

impl<'a> Fields<'a> {
    fn collect(headers: &[httparse::Header<'a>]) -> Self {
        let mut fields = Self::default();
        for header in headers {
            // Three lengths, so most names cost one comparison.
            match header.name.len() {
                4 if header.name.eq_ignore_ascii_case("host") => {
                    fields.hosts += 1;
                    fields.host = header.value;
                }
                14 if header.name.eq_ignore_ascii_case("content-length") => {
                    fields.lengths += 1;
                    fields.length = header.value;
                }
                17 if header.name.eq_ignore_ascii_case("transfer-encoding") => {
                    fields.codings += 1;
                    fields.coding = header.value;
                }
                _ => {}
            }
        }
        fields
    }

    /// RFC 9112 3.2: exactly one valid Host on HTTP/1.1; HTTP/1.0 may have none.
    fn check_host(&self, version: u8) -> Result<(), Fault> {
        match self.hosts {
            0 if version == 0 => Ok(()),
            0 => Err(Malformed::HostMissing.into()),
            1 if target::is_authority(self.host) => Ok(()),
            1 => Err(Malformed::HostInvalid.into()),
            _ => Err(Malformed::HostRepeated.into()),
        }
    }

    /// RFC 9112 6.1 to 6.3.
    fn framing(&self, version: u8, limits: &Limits) -> Result<Framing, Fault> {
        match (self.codings, self.lengths) {
            (0, 0) => Ok(Framing::Empty),
            (0, 1) => parse_length(self.length, limits),
            // RFC 9110 8.6 would let equal repeats pass; no client needs them.
            (0, _) => Err(Malformed::Length.into()),
            (_, 1..) => Err(Malformed::LengthAndCoding.into()),
            _ if version == 0 => Err(Malformed::OldCoding.into()),
            (1, 0) if self.coding.trim_ascii().eq_ignore_ascii_case(b"chunked") => {
                Ok(Framing::Chunked)
            }
            _ => Err(Fault::CodingUnknown),
        }
    }
}

fn parse_length(value: &[u8], limits: &Limits) -> Result<Framing, Fault> {
    let digits = value.trim_ascii();
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return Err(Malformed::Length.into());
    }
    // Digits that overflow are a number all the same, and over any limit.
    let length = std::str::from_utf8(digits)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(u64::MAX);
    match length {
        0 => Ok(Framing::Empty),
        1.. if length > limits.body => Err(Fault::BodyTooLarge { limit: limits.body }),
        _ => Ok(Framing::Length(length)),
    }
}

/// What can be told, for the log and the answer, of a head that was refused.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Description {
    pub(crate) method: Option<Method>,
    /// The target up to its query, printable ASCII, and no more than a log line bears.
    pub(crate) path: String,
    /// The client's id, if it sent one that is valid.
    pub(crate) request_id: Option<String>,
}

/// Reads what it can of a head that may be anything.
pub(crate) fn describe(bytes: &[u8]) -> Description {
    const LONGEST_PATH: usize = 256;
    let mut space = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut head = httparse::Request::new(&mut space);
    // An error leaves what was read before it.
    let _ = head.parse(bytes);
    let path = head
        .path
        .filter(|target| target.starts_with('/'))
        .and_then(|target| target.split('?').next())
        .unwrap_or_default();
    let mut ids = head
        .headers
        .iter()
        .filter(|header| header.name.eq_ignore_ascii_case("x-request-id"));
    let request_id = match (ids.next(), ids.next()) {
        (Some(id), None) if identity::is_valid(id.value) => {
            std::str::from_utf8(id.value).ok().map(str::to_owned)
        }
        _ => None,
    };
    Description {
        method: head
            .method
            .and_then(|method| Method::from_bytes(method.as_bytes()).ok()),
        path: path
            .chars()
            .take(LONGEST_PATH)
            .filter(char::is_ascii_graphic)
            .collect(),
        request_id,
    }
}

/// A request that is valid and means nothing, for the library to read in place
/// of one that was refused; the service never forwards it. A HEAD stays one, for
/// its answer has no body.
pub(crate) fn stand_in(method: Option<&Method>) -> &'static [u8] {
    if method == Some(&Method::HEAD) {
        b"HEAD / HTTP/1.1\r\nhost: refused\r\nconnection: close\r\n\r\n"
    } else {
        b"GET / HTTP/1.1\r\nhost: refused\r\nconnection: close\r\n\r\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        target: 32,
        head: 512,
        body: 100,
    };

    fn scan(bytes: &[u8]) -> Result<Option<usize>, Fault> {
        Scanner::default().scan(bytes, &LIMITS)
    }

    #[test]
    fn a_head_ends_where_it_ends_however_it_is_cut() {
        let bytes = b"\r\nGET / HTTP/1.1\r\nhost: h\r\n\r\nbody";
        let end = bytes.len() - 4;
        for cut in 0..end {
            let mut scanner = Scanner::default();
            assert_eq!(scanner.scan(&bytes[..cut], &LIMITS), Ok(None), "{cut}");
            assert_eq!(scanner.scan(bytes, &LIMITS), Ok(Some(end)), "{cut}");
        }
    }

    #[test]
    fn what_can_lead_to_no_head_is_refused_before_its_end() {
        for (bytes, fault) in [
            (&b"\x16\x03\x01"[..], Fault::Malformed(Malformed::Syntax)),
            (b"GET /\r\n", Fault::Malformed(Malformed::Syntax)),
            (b"GET / HTTP/2.0\r\n", Fault::Malformed(Malformed::Version)),
            (
                b"GET / HTTP/1.1\n",
                Fault::Malformed(Malformed::BareLineFeed),
            ),
            (&[b'a'; 97], Fault::TargetTooLong { limit: 32 }),
        ] {
            assert_eq!(scan(bytes), Err(fault));
        }
        let method = [&[b'a'; 90][..], b" / HTTP/1.1\r\nhost: h\r\n\r\n"].concat();
        assert_eq!(scan(&method), Err(Fault::TargetTooLong { limit: 32 }));
        let mut long = b"GET / HTTP/1.1\r\nx: ".to_vec();
        long.resize(513, b'x');
        assert_eq!(scan(&long), Err(Fault::HeadTooLarge { limit: 512 }));
    }

    #[test]
    fn a_body_is_delimited_in_one_of_three_ways() {
        for (headers, framing) in [
            ("", Framing::Empty),
            ("content-length: 0\r\n", Framing::Empty),
            ("Content-LENGTH:\t7 \r\n", Framing::Length(7)),
            ("content-length: 007\r\n", Framing::Length(7)),
            ("transfer-encoding: CHUNKED \r\n", Framing::Chunked),
        ] {
            let head = format!("POST / HTTP/1.1\r\nhost: h\r\n{headers}\r\n");
            assert_eq!(check(head.as_bytes(), &LIMITS), Ok(framing), "{headers}");
        }
    }

    #[test]
    fn a_description_holds_no_query_and_no_invalid_id() {
        let told = describe(b"POST /p?key=secret HTTP/1.1\r\nx-request-id: 7\r\nbad");
        assert_eq!(told.method, Some(Method::POST));
        assert_eq!(told.path, "/p");
        assert_eq!(told.request_id, Some("7".to_owned()));
        let told = describe(b"GET / HTTP/1.1\r\nx-request-id: a b\r\n\r\n");
        assert_eq!(told.request_id, None);
        assert_eq!(describe(b"\x16\x03\x01"), Description::default());
    }
}
