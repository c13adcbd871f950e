//! Request targets and authorities (RFC 9112 3.2, RFC 3986 3.2).

use http::Uri;

/// Which of the forms of RFC 9112 3.2 a target has; CONNECT's is refused before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// `/path?query`
    Origin,
    /// `http://host/path?query`
    Absolute,
    /// `*`
    Asterisk,
}

/// The form of a target that can be forwarded byte for byte, or `None`.
///
/// Bytes that the HTTP library could not carry are refused rather than altered:
/// `#` (it would drop the fragment), `<`, `>`, and where they may not stand `"`
/// and a backtick. Bytes over 0x7f pass where they are valid UTF-8.
pub(crate) fn form(target: &str) -> Option<Form> {
    let bytes = target.as_bytes();
    match bytes {
        [b'/', ..] => is_path_and_query(bytes).then_some(Form::Origin),
        b"*" => Some(Form::Asterisk),
        _ => is_absolute(target).then_some(Form::Absolute),
    }
}

fn is_path_and_query(bytes: &[u8]) -> bool {
    let path_end = memchr::memchr(b'?', bytes).unwrap_or(bytes.len());
    let (path, query) = bytes.split_at(path_end);
    path.iter()
        .all(|&byte| CLASSES[usize::from(byte)] & PATH != 0)
        && query
            .iter()
            .all(|&byte| CLASSES[usize::from(byte)] & QUERY != 0)
}

const PATH: u8 = 1;
const QUERY: u8 = 2;
/// Of a registered name, but for percent-encoding.
const NAME: u8 = 4;

const CLASSES: [u8; 256] = {
    let mut classes = [0; 256];
    let mut byte = 0x21;
    while byte < 256 {
        classes[byte] = match byte {
            0x23 | 0x3c | 0x3e | 0x7f => 0, // # < > DEL
            0x22 => PATH,                   // "
            0x3f | 0x60 => QUERY,           // ? (begins or is in the query), backtick
            _ => PATH | QUERY,
        };
        byte += 1;
    }
    let names = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~!$&'()*+,;=";
    let mut at = 0;
    while at < names.len() {
        classes[names[at] as usize] |= NAME;
        at += 1;
    }
    classes
};

fn is_absolute(target: &str) -> bool {
    let Some((scheme, rest)) = target.split_once("://") else {
        return false;
    };
    if !["http", "https"]
        .iter()
        .any(|s| scheme.eq_ignore_ascii_case(s))
    {
        return false;
    }
    let authority_end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(authority_end);
    is_authority(authority.as_bytes())
        && is_path_and_query(path.as_bytes())
        // A rare form: let the library that will read it have the last word.
        && target.parse::<Uri>().is_ok()
}

/// Whether this is `uri-host [":" port]`, as `Host` and an absolute target have it:
/// not empty (RFC 9110 4.2.1) and without user information (RFC 9110 4.2.4).
pub(crate) fn is_authority(bytes: &[u8]) -> bool {
    let (host, port) = match bytes {
        [b'[', ..] => match memchr::memchr(b']', bytes) {
            Some(end) => bytes.split_at(end + 1),
            None => return false,
        },
        _ => bytes.split_at(memchr::memchr(b':', bytes).unwrap_or(bytes.len())),
    };
    is_host(host) && is_port(port)
}

fn is_port(port: &[u8]) -> bool {
    match port {
        [] => true,
        // A colon and no digits is valid and means the default (RFC 3986 3.2.3).
        [b':', digits @ ..] => digits.len() <= 5 && digits.iter().all(u8::is_ascii_digit),
        _ => false,
    }
}

fn is_host(host: &[u8]) -> bool {
    match host {
        [] => false,
        [b'[', inner @ .., b']'] => {
            std::str::from_utf8(inner).is_ok_and(|text| text.parse::<std::net::Ipv6Addr>().is_ok())
        }
        _ => is_registered_name(host),
    }
}

/// `reg-name` of RFC 3986 3.2.2: unreserved, percent-encoded, sub-delims.
fn is_registered_name(name: &[u8]) -> bool {
    // Most names are plain, and a table says so quickly.
    if name
        .iter()
        .all(|&byte| CLASSES[usize::from(byte)] & NAME != 0)
    {
        return !name.is_empty();
    }
    let mut rest = name;
    loop {
        rest = match rest {
            [] => return true,
            [b'%', high, low, rest @ ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                rest
            }
            [byte, rest @ ..] if CLASSES[usize::from(*byte)] & NAME != 0 => rest,
            _ => return false,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use proptest::prelude::*;

    #[test]
    fn the_forms_are_told_apart() {
        for (target, expected) in [
            ("/", Some(Form::Origin)),
            ("/a%2Fb/%2e%2e/../c//d?x=%zz", Some(Form::Origin)),
            ("//h/x", Some(Form::Origin)),
            ("/\u{e9}?\u{e9}", Some(Form::Origin)),
            ("/{\"a\"}?`", Some(Form::Origin)),
            ("http://h", Some(Form::Absolute)),
            ("HTTPS://h:1?x", Some(Form::Absolute)),
            ("*", Some(Form::Asterisk)),
            ("/a#b", None),
            ("/<", None),
            ("/`", None),
            ("/?\"", None),
            ("h:80", None),
            ("h/x", None),
            ("ftp://h/", None),
            ("http://", None),
            ("http:///x", None),
            ("http://u@h/", None),
            ("http://u:p@h/", None),
            ("http://[::1/", None),
            ("**", None),
        ] {
            assert_eq!(form(target), expected, "{target}");
        }
    }

    #[test]
    fn a_host_is_a_name_or_an_address_with_an_optional_port() {
        for host in [
            "h",
            "h:80",
            "h:",
            "a.b-c_d",
            "1.2.3.4:5",
            "[::1]",
            "[::1]:80",
            "%41",
        ] {
            assert!(is_authority(host.as_bytes()), "{host}");
        }
        for host in [
            "", ":80", "h:x", "h:123456", "h h", "h/x", "u@h", "h:1:2", "[::1", "[::1]x", "[x]",
            "%4", "h\\", "h,h?", "\u{e9}", "h#", "h?",
        ] {
            assert!(!is_authority(host.as_bytes()), "{host}");
        }
    }

    proptest! {
        #[test]
        fn what_is_let_on_reaches_the_backend_byte_for_byte(
            target in prop_oneof![
                "/[!-~]{0,40}",
                "/[a-z%0-9./]{0,20}(\\?[!-~]{0,20})?",
                "/\\PC{0,10}",
            ],
        ) {
            if form(&target) == Some(Form::Origin) {
                let bytes = Bytes::from(target.clone());
                let uri = Uri::from_maybe_shared(bytes).expect("the library carries it");
                prop_assert_eq!(uri.to_string(), target);
            }
        }

        #[test]
        fn an_absolute_target_keeps_its_authority_and_path(
            host in "[a-z0-9.-]{1,12}(:[0-9]{1,4})?",
            path in "(/[a-z%0-9./]{0,20})?(\\?[a-z=&%]{0,10})?",
        ) {
            let target = format!("http://{host}{path}");
            if form(&target) == Some(Form::Absolute) {
                let uri: Uri = target.parse().expect("the library carries it");
                prop_assert_eq!(uri.authority().map(http::uri::Authority::as_str), Some(host.as_str()));
                let carried = uri.path_and_query().map_or("", |p| p.as_str());
                let expected = if path.is_empty() { "/" } else { path.as_str() };
                prop_assert_eq!(carried, expected);
            }
        }
    }
}
