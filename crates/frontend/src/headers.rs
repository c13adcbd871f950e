//! Hop-by-hop headers: those that speak about one connection and end there.

use http::header::{self, HeaderMap, HeaderName, HeaderValue};

use crate::identity::X_REQUEST_ID;

/// Removes what belongs to the hop it came on (RFC 9110 7.6.1): the headers that
/// `Connection` names, in any of its lines, and those that are known to.
///
/// Framing, Host, Authorization and the request's id stay whatever `Connection`
/// says, since removing them would change what the message is or whose it is.
pub(crate) fn strip_hop_by_hop(headers: &mut HeaderMap) -> Found {
    // One pass over the names finds what there is; most messages have nothing.
    let found = headers
        .keys()
        .fold(0, |found, name| found | bit(name.as_str()));
    if found & HOP_BY_HOP != 0 {
        if found & CONNECTION != 0 {
            strip_named_by_connection(headers);
        }
        for (bit, name) in KNOWN {
            if found & bit != 0 {
                headers.remove(name);
            }
        }
    }
    Found(found)
}

/// Which headers that are treated specially a message had before it was stripped.
/// `Connection` can remove only `Expect` of those that are asked for here.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Found(u16);

impl Found {
    pub(crate) fn transfer_encoding(self) -> bool {
        self.0 & TRANSFER_ENCODING != 0
    }

    pub(crate) fn content_length(self) -> bool {
        self.0 & CONTENT_LENGTH != 0
    }

    pub(crate) fn host(self) -> bool {
        self.0 & HOST != 0
    }

    pub(crate) fn expect(self) -> bool {
        self.0 & EXPECT != 0
    }
}

const CONNECTION: u16 = 1;
const TRANSFER_ENCODING: u16 = 1 << 5;
/// All of [`KNOWN`], which has ten.
const HOP_BY_HOP: u16 = (1 << 10) - 1;

const CONTENT_LENGTH: u16 = 1 << 10;
const HOST: u16 = 1 << 11;
const EXPECT: u16 = 1 << 12;

const KNOWN: [(u16, HeaderName); 10] = [
    (CONNECTION, header::CONNECTION),
    (1 << 1, HeaderName::from_static("keep-alive")),
    (1 << 2, HeaderName::from_static("proxy-connection")),
    (1 << 3, header::TE),
    (1 << 4, header::TRAILER),
    (TRANSFER_ENCODING, header::TRANSFER_ENCODING),
    (1 << 6, header::UPGRADE),
    (1 << 7, HeaderName::from_static("http2-settings")),
    (1 << 8, header::PROXY_AUTHENTICATE),
    (1 << 9, header::PROXY_AUTHORIZATION),
];

/// The bit of a name in [`KNOWN`] or among those after it, 0 for all others; names
/// are lower case here.
fn bit(name: &str) -> u16 {
    match name {
        "connection" => CONNECTION,
        "keep-alive" => 1 << 1,
        "proxy-connection" => 1 << 2,
        "te" => 1 << 3,
        "trailer" => 1 << 4,
        "transfer-encoding" => TRANSFER_ENCODING,
        "upgrade" => 1 << 6,
        "http2-settings" => 1 << 7,
        "proxy-authenticate" => 1 << 8,
        "proxy-authorization" => 1 << 9,
        "content-length" => CONTENT_LENGTH,
        "host" => HOST,
        "expect" => EXPECT,
        _ => 0,
    }
}

fn strip_named_by_connection(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .flat_map(|line| line.as_bytes().split(|&byte| byte == b','))
        .map(<[u8]>::trim_ascii)
        // What cannot be a name (`close` can, and names nothing) removes nothing.
        .filter_map(|token| HeaderName::from_bytes(token).ok())
        .filter(|name| !is_protected(name))
        .collect();
    for name in named {
        headers.remove(name);
    }
}

fn is_protected(name: &HeaderName) -> bool {
    [
        header::HOST,
        header::CONTENT_LENGTH,
        header::TRANSFER_ENCODING,
        header::AUTHORIZATION,
        X_REQUEST_ID,
        // Its other lines still have to be found, and it goes anyway.
        header::CONNECTION,
    ]
    .contains(name)
}

/// Makes `content-length` say `length`, once; leaves it as it is if it already does.
pub(crate) fn set_content_length(headers: &mut HeaderMap, length: usize) {
    let mut lines = headers.get_all(header::CONTENT_LENGTH).iter();
    let right = |value: &HeaderValue| {
        // `003` and `+3` are numbers to some readers and not to others.
        let is_plain = matches!(value.as_bytes(), [b'0'] | [b'1'..=b'9', ..]);
        is_plain && value.to_str().ok().and_then(|text| text.parse().ok()) == Some(length)
    };
    if let (Some(value), None) = (lines.next(), lines.next())
        && right(value)
    {
        return;
    }
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn map(lines: &[(&str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(
                HeaderName::from_bytes(name.as_bytes()).unwrap(),
                HeaderValue::from_str(value).unwrap(),
            );
        }
        headers
    }

    #[test]
    fn every_known_name_is_found_by_its_bit() {
        for (known, name) in KNOWN {
            assert_eq!(bit(name.as_str()), known, "{name}");
        }
    }

    #[test]
    fn connection_cannot_remove_framing_host_authorization_or_the_id() {
        let mut headers = map(&[
            (
                "connection",
                "Host, content-length , AUTHORIZATION, x-request-id",
            ),
            ("x-request-id", "1"),
            ("connection", "x-mine,, close"),
            ("host", "h"),
            ("content-length", "3"),
            ("authorization", "Bearer k"),
            ("x-mine", "1"),
            ("x-yours", "2"),
        ]);
        strip_hop_by_hop(&mut headers);
        let mut left: Vec<_> = headers.keys().map(HeaderName::as_str).collect();
        left.sort_unstable();
        assert_eq!(
            left,
            [
                "authorization",
                "content-length",
                "host",
                "x-request-id",
                "x-yours"
            ]
        );
    }

    #[test]
    fn a_length_that_is_doubled_or_wrong_is_set_once() {
        let mut headers = map(&[("content-length", "3"), ("content-length", "3")]);
        set_content_length(&mut headers, 3);
        let lines: Vec<_> = headers.get_all(header::CONTENT_LENGTH).iter().collect();
        assert_eq!(lines, ["3"]);
        for other in ["3", "004", "+4"] {
            headers.insert(header::CONTENT_LENGTH, HeaderValue::from_static(other));
            set_content_length(&mut headers, 4);
            assert_eq!(headers[header::CONTENT_LENGTH], "4", "{other}");
        }
    }

    fn name() -> impl Strategy<Value = String> {
        prop_oneof![
            proptest::sample::select(KNOWN.to_vec()).prop_map(|(_, name)| name.to_string()),
            proptest::sample::select(vec!["host", "content-length", "authorization", "cookie"])
                .prop_map(str::to_owned),
            "[a-z][a-z0-9-]{0,8}",
        ]
    }

    fn lines() -> impl Strategy<Value = Vec<(String, String)>> {
        let value = prop_oneof![
            "[ -~]{0,12}".prop_map(|text| text.trim().to_owned()),
            proptest::collection::vec(name(), 0..4).prop_map(|names| names.join(" , ")),
        ];
        proptest::collection::vec((name(), value), 0..12)
    }

    proptest! {
        #[test]
        fn stripping_leaves_no_hop_by_hop_header_and_keeps_every_other_in_order(lines in lines()) {
            let lines: Vec<_> = lines.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
            let before = map(&lines);
            let named: Vec<String> = before
                .get_all(header::CONNECTION)
                .iter()
                .flat_map(|line| line.to_str().unwrap().split(','))
                .map(|token| token.trim().to_ascii_lowercase())
                .collect();
            let mut after = before.clone();
            strip_hop_by_hop(&mut after);
            for name in before.keys() {
                let hop = bit(name.as_str()) & HOP_BY_HOP != 0;
                let kept = is_protected(name) && !hop;
                let gone = hop || (!kept && named.iter().any(|n| n == name.as_str()));
                let left: Vec<_> = after.get_all(name).iter().collect();
                if gone {
                    prop_assert!(left.is_empty(), "{name} was left");
                } else {
                    let all: Vec<_> = before.get_all(name).iter().collect();
                    prop_assert_eq!(left, all);
                }
            }
            prop_assert!(after.keys().all(|name| before.contains_key(name)));
        }

        #[test]
        fn stripping_twice_changes_nothing_more(lines in lines()) {
            let lines: Vec<_> = lines.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
            let mut once = map(&lines);
            strip_hop_by_hop(&mut once);
            let mut twice = once.clone();
            strip_hop_by_hop(&mut twice);
            prop_assert_eq!(once, twice);
        }
    }
}
