//! A second reading of HTTP/1.1 (RFC 9112), strict and without regard to speed.
//!
//! It shares nothing with the code that it judges: no library, no table, no
//! function. What it cannot read for certain, it calls invalid.

/// One message's worth of bytes, or why there is none.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Reading<T> {
    Whole(T),
    /// What is there may be the beginning of a message.
    Partial,
    Invalid(&'static str),
}

/// A request and its whole body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) method: String,
    pub(super) target: Vec<u8>,
    pub(super) is_http_1_0: bool,
    pub(super) fields: Fields,
    /// Without the framing of chunks.
    pub(super) body: Vec<u8>,
    /// Bytes of all of it as it was sent.
    pub(super) length: usize,
}

/// A response and its whole body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Response {
    pub(super) status: u16,
    pub(super) fields: Fields,
    pub(super) body: Vec<u8>,
    pub(super) length: usize,
}

/// Header lines in order: names in lower case, values without the white space around them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Fields(pub(super) Vec<(String, Vec<u8>)>);

impl Fields {
    pub(super) fn all(&self, name: &str) -> Vec<&[u8]> {
        let mine = self.0.iter().filter(|(found, _)| found == name);
        mine.map(|(_, value)| value.as_slice()).collect()
    }
}

/// Unwraps a whole reading; gives any other back to the caller's caller.
macro_rules! whole {
    ($reading:expr) => {
        match $reading {
            Reading::Whole(it) => it,
            Reading::Partial => return Reading::Partial,
            Reading::Invalid(why) => return Reading::Invalid(why),
        }
    };
}

/// The request that `bytes` begin with. Empty lines before it are part of it.
pub(super) fn request(bytes: &[u8]) -> Reading<Request> {
    let mut at = 0;
    while bytes[at..].starts_with(b"\r\n") {
        at += 2;
    }
    let (line, used) = whole!(line(&bytes[at..]));
    at += used;
    let parts: Vec<&[u8]> = line.split(|&byte| byte == b' ').collect();
    let [method, target, version] = parts[..] else {
        return Reading::Invalid("a request line has three parts");
    };
    if !is_token(method) {
        return Reading::Invalid("a method is a token");
    }
    if target.is_empty() || target.iter().any(|&byte| byte <= b' ' || byte == 0x7f) {
        return Reading::Invalid("a target has no control characters");
    }
    let is_http_1_0 = match version {
        b"HTTP/1.1" => false,
        b"HTTP/1.0" => true,
        _ => return Reading::Invalid("there are two versions"),
    };
    let (fields, used) = whole!(fields(&bytes[at..]));
    at += used;
    let codings = fields.all("transfer-encoding");
    let lengths = fields.all("content-length");
    let (body, used) = match (codings.as_slice(), lengths.as_slice()) {
        ([], []) => (Vec::new(), 0),
        ([], [length]) => whole!(counted(length, &bytes[at..])),
        ([coding], []) if coding.eq_ignore_ascii_case(b"chunked") && !is_http_1_0 => {
            whole!(chunks(&bytes[at..]))
        }
        _ => return Reading::Invalid("the body's length is not certain"),
    };
    Reading::Whole(Request {
        method: String::from_utf8_lossy(method).into_owned(),
        target: target.to_vec(),
        is_http_1_0,
        fields,
        body,
        length: at + used,
    })
}

/// The response that `bytes` begin with, of those that this frontend makes:
/// every body has a length. The answer to a HEAD has no body.
pub(super) fn response(bytes: &[u8], to_head: bool) -> Reading<Response> {
    let (line, mut at) = whole!(line(bytes));
    let status = match line {
        [
            b'H',
            b'T',
            b'T',
            b'P',
            b'/',
            b'1',
            b'.',
            b'0' | b'1',
            b' ',
            a,
            b,
            c,
            rest @ ..,
        ] if (rest.is_empty() || rest[0] == b' ')
            && [a, b, c].iter().all(|digit| digit.is_ascii_digit()) =>
        {
            [a, b, c]
                .iter()
                .fold(0, |sum, &digit| sum * 10 + u16::from(digit - b'0'))
        }
        _ => return Reading::Invalid("a status line has a version and a status"),
    };
    let (fields, used) = whole!(fields(&bytes[at..]));
    at += used;
    if !fields.all("transfer-encoding").is_empty() {
        return Reading::Invalid("answers have a length");
    }
    let has_body = !to_head && status >= 200 && status != 204 && status != 304;
    let (body, used) = match fields.all("content-length").as_slice() {
        [length] if has_body => whole!(counted(length, &bytes[at..])),
        [_] | [] if !has_body => (Vec::new(), 0),
        _ => return Reading::Invalid("answers have one length"),
    };
    Reading::Whole(Response {
        status,
        fields,
        body,
        length: at + used,
    })
}

/// A line without its end, and the bytes with it. Its end is CRLF; neither of
/// the two may stand anywhere else.
fn line(bytes: &[u8]) -> Reading<(&[u8], usize)> {
    match bytes
        .iter()
        .position(|&byte| byte == b'\r' || byte == b'\n')
    {
        None => Reading::Partial,
        Some(at) if bytes[at] == b'\n' => Reading::Invalid("a line feed stands alone"),
        Some(at) => match bytes.get(at + 1) {
            None => Reading::Partial,
            Some(b'\n') => Reading::Whole((&bytes[..at], at + 2)),
            Some(_) => Reading::Invalid("a carriage return stands alone"),
        },
    }
}

fn fields(bytes: &[u8]) -> Reading<(Fields, usize)> {
    let mut found = Fields::default();
    let mut at = 0;
    loop {
        let (line, used) = whole!(line(&bytes[at..]));
        at += used;
        if line.is_empty() {
            return Reading::Whole((found, at));
        }
        let Some(colon) = line.iter().position(|&byte| byte == b':') else {
            return Reading::Invalid("a header line has a colon");
        };
        let (name, value) = (&line[..colon], trim(&line[colon + 1..]));
        if !is_token(name) {
            return Reading::Invalid("a header's name is a token");
        }
        if value
            .iter()
            .any(|&byte| byte == 0x7f || (byte < b' ' && byte != b'\t'))
        {
            return Reading::Invalid("a header's value has no control characters");
        }
        let name = String::from_utf8_lossy(name).to_ascii_lowercase();
        found.0.push((name, value.to_vec()));
    }
}

fn trim(mut value: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = value {
        value = rest;
    }
    value
}

fn is_token(bytes: &[u8]) -> bool {
    let is_char = |&byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !bytes.is_empty() && bytes.iter().all(is_char)
}

/// As many bytes as a length says.
fn counted(length: &[u8], bytes: &[u8]) -> Reading<(Vec<u8>, usize)> {
    if length.is_empty() || !length.iter().all(u8::is_ascii_digit) {
        return Reading::Invalid("a length is digits");
    }
    let digits = String::from_utf8_lossy(length);
    let Ok(length) = digits.parse::<usize>() else {
        return Reading::Invalid("a length can be counted");
    };
    match bytes.get(..length) {
        Some(body) => Reading::Whole((body.to_vec(), length)),
        None => Reading::Partial,
    }
}

fn chunks(bytes: &[u8]) -> Reading<(Vec<u8>, usize)> {
    let mut body = Vec::new();
    let mut at = 0;
    loop {
        let (line, used) = whole!(line(&bytes[at..]));
        at += used;
        let extension = line.iter().position(|&byte| byte == b';');
        // White space between a size and its extension, or its line's end, is
        // bad, and is to be borne (RFC 9112 7.1.1).
        let digits = line[..extension.unwrap_or(line.len())].trim_ascii_end();
        if digits.is_empty() || !digits.iter().all(u8::is_ascii_hexdigit) {
            return Reading::Invalid("a chunk's size is hexadecimal digits");
        }
        let Ok(size) = usize::from_str_radix(&String::from_utf8_lossy(digits), 16) else {
            return Reading::Invalid("a chunk's size can be counted");
        };
        if size == 0 {
            break;
        }
        let Some(data) = at.checked_add(size).and_then(|end| bytes.get(at..end)) else {
            return Reading::Partial;
        };
        body.extend_from_slice(data);
        at += size;
        match &bytes[at..] {
            [b'\r', b'\n', ..] => at += 2,
            [] | [b'\r'] => return Reading::Partial,
            _ => return Reading::Invalid("a line end follows a chunk"),
        }
    }
    loop {
        let (line, used) = whole!(line(&bytes[at..]));
        at += used;
        if line.is_empty() {
            return Reading::Whole((body, at));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_ends_where_its_framing_says() {
        for (bytes, body) in [
            (&b"GET / HTTP/1.1\r\nhost: h\r\n\r\n"[..], &b""[..]),
            (b"\r\nPOST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", b"abc"),
            (
                b"POST / HTTP/1.1\r\nTransfer-Encoding: Chunked\r\n\r\n3;x\r\nabc\r\n0\r\na: b\r\n\r\n",
                b"abc",
            ),
        ] {
            let two = [bytes, b"GET"].concat();
            let Reading::Whole(read) = request(&two) else {
                panic!("{:?}", request(&two));
            };
            assert_eq!((read.body.as_slice(), read.length), (body, bytes.len()));
            for cut in 0..bytes.len() {
                assert_eq!(request(&bytes[..cut]), Reading::Partial, "{cut}");
            }
        }
    }

    #[test]
    fn what_two_parsers_might_read_differently_is_invalid() {
        for bytes in [
            &b"GET / HTTP/1.1\nhost: h\n\n"[..],
            b"GET  / HTTP/1.1\r\n\r\n",
            b"GET / HTTP/1.1\r\na : b\r\n\r\n",
            b"GET / HTTP/1.1\r\na: b\r\n c\r\n\r\n",
            b"GET / HTTP/1.1\r\na: \rb\r\n\r\n",
            b"POST / HTTP/1.1\r\ncontent-length: 1\r\ncontent-length: 1\r\n\r\na",
            b"POST / HTTP/1.1\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
            b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n1\r\nab\r\n0\r\n\r\n",
            b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n0x1\r\na\r\n0\r\n\r\n",
        ] {
            assert!(
                matches!(request(bytes), Reading::Invalid(_)),
                "{}",
                String::from_utf8_lossy(bytes)
            );
        }
    }
}
