//! The request as the backend gets it.

use std::net::SocketAddr;

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{Method, Request, Uri, Version};
use http_body_util::Full;

use super::upstream::Target;
use crate::fault::{Fault, Malformed};
use crate::headers;
use crate::shard::Shard;

/// Whether a request asks about this server as a whole, `OPTIONS *`, in either
/// form (RFC 9112 3.2.4).
pub(crate) fn is_for_us(parts: &Parts) -> bool {
    parts.method == Method::OPTIONS
        && parts
            .uri
            .path_and_query()
            .is_none_or(|target| target == "*")
}

/// Makes a client's request the backend's: the hop's headers go, the target is
/// in origin form behind the prefix, and the body has a length. The headers are
/// the client's own map, altered in place.
pub(crate) fn request(
    mut parts: Parts,
    body: Bytes,
    target: &Target,
    shard: &Shard,
    peer: SocketAddr,
) -> Result<Request<Full<Bytes>>, Fault> {
    let had = headers::strip_hop_by_hop(&mut parts.headers);
    if had.expect() {
        // Answered by the library, when it was asked for the body.
        parts.headers.remove(header::EXPECT);
    }
    if had.transfer_encoding() || had.content_length() {
        headers::set_content_length(&mut parts.headers, body.len());
    }
    if let Some(authority) = parts.uri.authority() {
        // The target's authority is what the client means (RFC 9112 3.2.2).
        let host = HeaderValue::from_str(authority.as_str()).map_err(|_| Malformed::HostInvalid)?;
        parts.headers.insert(header::HOST, host);
    } else if !had.host() {
        parts.headers.insert(header::HOST, target.host.clone());
    }
    if shard.config.forwarded_headers {
        announce(&mut parts.headers, parts.version, peer);
    }
    if parts.uri.authority().is_some() || !target.prefix.is_empty() {
        parts.uri = behind(&target.prefix, &parts.uri)?;
    }
    // The library's own notes on the client's connection.
    parts.extensions.clear();
    parts.version = Version::HTTP_11;
    Ok(Request::from_parts(parts, Full::new(body)))
}

/// The request's path and query, byte for byte, after the backend's prefix.
fn behind(prefix: &str, uri: &Uri) -> Result<Uri, Fault> {
    let path = uri.path_and_query().map_or("/", PathAndQuery::as_str);
    // `http://host?x` has an empty path, which in origin form is a slash.
    let slash = if path.starts_with('/') { "" } else { "/" };
    let whole = Bytes::from([prefix, slash, path].concat());
    PathAndQuery::from_maybe_shared(whole)
        .map(Uri::from)
        .map_err(|_| Malformed::Target.into())
}

/// Says that this hop was taken, and for whom (RFC 9110 7.6.3).
fn announce(headers: &mut HeaderMap, version: Version, peer: SocketAddr) {
    let via = if version == Version::HTTP_10 {
        "1.0 omni-jev"
    } else {
        "1.1 omni-jev"
    };
    headers.append(header::VIA, HeaderValue::from_static(via));
    if let Ok(address) = HeaderValue::try_from(peer.ip().to_string()) {
        headers.append(HeaderName::from_static("x-forwarded-for"), address);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_follows_the_prefix_byte_for_byte() {
        for (prefix, uri, expected) in [
            (
                "/base",
                "/a%2Fb/%2e%2e/../c//d?x=%zz",
                "/base/a%2Fb/%2e%2e/../c//d?x=%zz",
            ),
            ("", "http://h/x?y", "/x?y"),
            ("", "http://h", "/"),
            ("", "http://h?q=1", "/?q=1"),
            ("/base", "http://h?q=1", "/base/?q=1"),
        ] {
            let moved = behind(prefix, &uri.parse().unwrap()).unwrap();
            assert_eq!(moved.to_string(), expected);
        }
    }
}
