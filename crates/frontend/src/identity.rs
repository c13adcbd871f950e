//! Request ids.

use std::cell::Cell;
use std::hash::{BuildHasher, RandomState};

use bytes::Bytes;
use http::header::{HeaderMap, HeaderName, HeaderValue};

pub(crate) const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
pub(crate) const X_TYPESAFE_REQUEST_ID: HeaderName =
    HeaderName::from_static("x-typesafe-request-id");

/// Longest id taken over from a client.
const MAX_LEN: usize = 128;

/// Makes ids that no other thread or process makes: 128 bits from the system's
/// randomness, stepped by a generator. They name requests and guard nothing.
pub(crate) struct Identities {
    high: Cell<u64>,
    low: Cell<u64>,
}

impl Identities {
    pub(crate) fn new() -> Self {
        // std's one source of randomness: the keys of its hash maps.
        let random = || RandomState::new().hash_one(0u8);
        Self {
            high: Cell::new(random()),
            low: Cell::new(random()),
        }
    }

    /// A new id: 32 hexadecimal digits.
    pub(crate) fn fresh(&self) -> HeaderValue {
        let words = [step(&self.high), step(&self.low)];
        let mut text = [0; 32];
        let bytes = words.iter().flat_map(|word| word.to_be_bytes());
        for (pair, byte) in text.chunks_exact_mut(2).zip(bytes) {
            pair.copy_from_slice(&DIGITS[usize::from(byte)]);
        }
        HeaderValue::from_maybe_shared(Bytes::copy_from_slice(&text))
            .unwrap_or(HeaderValue::from_static("0"))
    }

    /// The client's id if it is one valid one, else a new one, which then also
    /// replaces what the client sent.
    pub(crate) fn settle(&self, headers: &mut HeaderMap) -> HeaderValue {
        let mut sent = headers.get_all(X_REQUEST_ID).iter();
        if let (Some(id), None) = (sent.next(), sent.next())
            && is_valid(id.as_bytes())
        {
            return id.clone();
        }
        let id = self.fresh();
        headers.insert(X_REQUEST_ID, id.clone());
        id
    }
}

/// The two hexadecimal digits of each byte.
const DIGITS: [[u8; 2]; 256] = {
    let digit = b"0123456789abcdef";
    let mut digits = [[0; 2]; 256];
    let mut byte = 0;
    while byte < 256 {
        digits[byte] = [digit[byte >> 4], digit[byte & 0xf]];
        byte += 1;
    }
    digits
};

/// Visible ASCII, so that it can stand in a log line, and not too much of it.
pub(crate) fn is_valid(id: &[u8]) -> bool {
    !id.is_empty() && id.len() <= MAX_LEN && id.iter().all(u8::is_ascii_graphic)
}

/// One step of splitmix64 (Steele, Lea, Flood 2014): every state occurs once in 2^64.
fn step(state: &Cell<u64>) -> u64 {
    let next = state.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
    state.set(next);
    let mixed = (next ^ (next >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn new_ids_differ_and_are_valid() {
        let ids = Identities::new();
        let made: HashSet<_> = (0..1000).map(|_| ids.fresh()).collect();
        assert_eq!(made.len(), 1000);
        assert!(
            made.iter()
                .all(|id| id.len() == 32 && is_valid(id.as_bytes()))
        );
    }

    #[test]
    fn a_valid_id_of_the_clients_is_kept() {
        let mut headers = HeaderMap::new();
        headers.insert(X_REQUEST_ID, HeaderValue::from_static("client-7"));
        assert_eq!(Identities::new().settle(&mut headers), "client-7");
        assert_eq!(headers[X_REQUEST_ID], "client-7");
    }

    #[test]
    fn an_id_that_is_doubled_or_invalid_is_replaced() {
        let long = "x".repeat(MAX_LEN + 1);
        for sent in [vec!["a", "b"], vec![""], vec!["a b"], vec![long.as_str()]] {
            let mut headers = HeaderMap::new();
            for value in &sent {
                headers.append(X_REQUEST_ID, HeaderValue::from_str(value).unwrap());
            }
            let id = Identities::new().settle(&mut headers);
            assert_eq!(id.len(), 32, "{sent:?}");
            let forwarded: Vec<_> = headers.get_all(X_REQUEST_ID).iter().collect();
            assert_eq!(forwarded, [&id]);
        }
    }
}
