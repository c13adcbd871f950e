//! The address of a backend.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use http::Uri;
use http::uri::Authority;

/// Where a backend listens: `http://host:port[/prefix]`, `https://…` or `unix:/path`.
///
/// ```
/// use omni_jev_frontend::{Endpoint, EndpointError};
///
/// let endpoint: Endpoint = "http://localhost:8000/base/".parse()?;
/// assert_eq!(endpoint.to_string(), "http://localhost:8000/base");
///
/// // A secret in the URL is refused without being repeated.
/// let error = "http://me:secret@host".parse::<Endpoint>().unwrap_err();
/// assert_eq!(error, EndpointError::Credentials);
/// assert!(!error.to_string().contains("secret"));
/// # Ok::<(), EndpointError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint(Place);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Place {
    Web {
        tls: bool,
        authority: Authority,
        prefix: String,
    },
    Unix(PathBuf),
}

/// Why a string is no [`Endpoint`]. No message repeats the string: it may hold a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    /// Nothing, or not a URL.
    #[error(
        "is no URL; write http://HOST:PORT[/PREFIX], https://HOST[:PORT][/PREFIX] or unix:/PATH"
    )]
    NoUrl,
    /// A scheme other than the three.
    #[error("has a scheme other than http, https or unix")]
    Scheme,
    /// A user name or password before the host.
    #[error("holds credentials; a backend URL may not, and clients send their own")]
    Credentials,
    /// `?` and what follows.
    #[error("has a query; a backend URL may only have a path prefix")]
    Query,
    /// `#` and what follows.
    #[error("has a fragment; a backend URL may only have a path prefix")]
    Fragment,
    /// No host, or one that cannot be.
    #[error("has no valid host")]
    Host,
    /// A port of 0, over 65535 or not a number.
    #[error("has no valid port")]
    Port,
    /// A socket path that is relative or empty.
    #[error("names a socket by a relative path; write unix:/absolute/path")]
    RelativePath,
    /// A prefix that, joined to a request's path, could change what it means.
    #[error("has a path prefix with . or .. or an empty segment")]
    Prefix,
}

impl FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Self, EndpointError> {
        if let Some(path) = text.strip_prefix("unix:") {
            return Self::unix_from_text(path);
        }
        let Some((scheme, rest)) = text.split_once("://") else {
            return Err(EndpointError::NoUrl);
        };
        let tls = match scheme.to_ascii_lowercase().as_str() {
            "http" => false,
            "https" => true,
            _ => return Err(EndpointError::Scheme),
        };
        // Credentials first: whatever else is wrong, a secret is named before it.
        let authority_end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        if rest[..authority_end].contains('@') {
            return Err(EndpointError::Credentials);
        }
        if rest.contains('#') {
            return Err(EndpointError::Fragment);
        }
        if rest.contains('?') {
            return Err(EndpointError::Query);
        }
        let authority = parse_authority(&rest[..authority_end])?;
        let prefix = parse_prefix(&rest[authority_end..])?;
        Ok(Self(Place::Web {
            tls,
            authority,
            prefix,
        }))
    }
}

fn parse_authority(text: &str) -> Result<Authority, EndpointError> {
    let (host, port) = match text.rfind(':') {
        // A colon inside brackets belongs to an IPv6 address.
        Some(colon) if !text[colon..].contains(']') => (&text[..colon], Some(&text[colon + 1..])),
        _ => (text, None),
    };
    if host.is_empty() {
        return Err(EndpointError::Host);
    }
    if let Some(port) = port {
        let digits = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
        if !digits || !matches!(port.parse::<u16>(), Ok(1..)) {
            return Err(EndpointError::Port);
        }
    }
    text.parse().map_err(|_| EndpointError::Host)
}

/// The prefix without its closing slash, so that a request's path can follow it.
fn parse_prefix(text: &str) -> Result<String, EndpointError> {
    let prefix = text.strip_suffix('/').unwrap_or(text);
    let mut segments = prefix.split('/').skip(1);
    if segments.any(|segment| matches!(segment, "" | "." | "..")) {
        return Err(EndpointError::Prefix);
    }
    // Only what can stand in a request line: no space, no control, no stray byte.
    if !prefix.is_empty() && prefix.parse::<Uri>().is_err() || !prefix.is_ascii() {
        return Err(EndpointError::NoUrl);
    }
    Ok(prefix.to_owned())
}

impl Endpoint {
    /// A server on the Unix socket at `path`.
    ///
    /// # Errors
    ///
    /// [`EndpointError::RelativePath`] unless the path is absolute.
    pub fn unix(path: impl Into<PathBuf>) -> Result<Self, EndpointError> {
        let path = path.into();
        if path.is_absolute() {
            Ok(Self(Place::Unix(path)))
        } else {
            Err(EndpointError::RelativePath)
        }
    }

    fn unix_from_text(path: &str) -> Result<Self, EndpointError> {
        // `unix:///run/x` and `unix:/run/x` are the same socket.
        let path = path.strip_prefix("//").unwrap_or(path);
        if path.contains('?') {
            return Err(EndpointError::Query);
        }
        if path.contains('#') {
            return Err(EndpointError::Fragment);
        }
        Self::unix(path)
    }

    /// The socket's path, if this is a Unix socket.
    pub fn socket_path(&self) -> Option<&Path> {
        match &self.0 {
            Place::Unix(path) => Some(path),
            Place::Web { .. } => None,
        }
    }

    /// The host without brackets, if this is a network address.
    pub fn host(&self) -> Option<&str> {
        match &self.0 {
            Place::Web { authority, .. } => Some(
                authority
                    .host()
                    .trim_start_matches('[')
                    .trim_end_matches(']'),
            ),
            Place::Unix(_) => None,
        }
    }

    /// The port, the scheme's own if none was given; 0 for a Unix socket.
    pub fn port(&self) -> u16 {
        match &self.0 {
            Place::Web { tls, authority, .. } => {
                authority.port_u16().unwrap_or(if *tls { 443 } else { 80 })
            }
            Place::Unix(_) => 0,
        }
    }

    /// Whether it is reached over TLS.
    pub fn is_tls(&self) -> bool {
        matches!(self.0, Place::Web { tls: true, .. })
    }

    /// What goes before every forwarded path: empty, or `/…` without a closing slash.
    pub fn prefix(&self) -> &str {
        match &self.0 {
            Place::Web { prefix, .. } => prefix,
            Place::Unix(_) => "",
        }
    }

    /// The `Host` of a request whose client sent none (HTTP/1.0).
    pub fn host_header(&self) -> &str {
        match &self.0 {
            Place::Web { authority, .. } => authority.as_str(),
            Place::Unix(_) => "localhost",
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Place::Web {
                tls,
                authority,
                prefix,
            } => {
                let scheme = if *tls { "https" } else { "http" };
                write!(f, "{scheme}://{authority}{prefix}")
            }
            Place::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Endpoint, EndpointError> {
        text.parse()
    }

    #[test]
    fn the_three_kinds_are_read() {
        for (text, shown) in [
            ("http://127.0.0.1:8000", "http://127.0.0.1:8000"),
            ("HTTP://h:1/", "http://h:1"),
            ("http://[::1]:8000/a/b", "http://[::1]:8000/a/b"),
            ("https://api.example.com", "https://api.example.com"),
            ("unix:/run/w.sock", "unix:/run/w.sock"),
            ("unix:///run/w.sock", "unix:/run/w.sock"),
        ] {
            assert_eq!(parse(text).unwrap().to_string(), shown, "{text}");
        }
    }

    #[test]
    fn a_port_follows_from_the_scheme() {
        assert_eq!(parse("http://h").unwrap().port(), 80);
        assert_eq!(parse("https://h").unwrap().port(), 443);
        assert_eq!(parse("https://[::1]:8443").unwrap().port(), 8443);
        assert_eq!(parse("http://[::1]").unwrap().host(), Some("::1"));
    }

    #[test]
    fn each_fault_is_named_and_nothing_of_the_text_is_repeated() {
        for (text, fault) in [
            ("", EndpointError::NoUrl),
            ("hunter2", EndpointError::NoUrl),
            ("ftp://hunter2", EndpointError::Scheme),
            ("http://u:hunter2@h", EndpointError::Credentials),
            ("http://hunter2@h?x=1#y", EndpointError::Credentials),
            ("http://h/?key=hunter2", EndpointError::Query),
            ("http://h/#hunter2", EndpointError::Fragment),
            ("http://", EndpointError::Host),
            ("http://:80", EndpointError::Host),
            ("http://h hunter2", EndpointError::Host),
            ("http://h:0", EndpointError::Port),
            ("http://h:hunter2", EndpointError::Port),
            ("http://h:99999", EndpointError::Port),
            ("http://h:", EndpointError::Port),
            ("http://h:+80", EndpointError::Port),
            ("http://h/a/../b", EndpointError::Prefix),
            ("http://h//", EndpointError::Prefix),
            ("http://h/a b", EndpointError::NoUrl),
            ("unix:hunter2", EndpointError::RelativePath),
            ("unix:", EndpointError::RelativePath),
            ("unix:/x?y", EndpointError::Query),
        ] {
            let error = parse(text).unwrap_err();
            assert_eq!(error, fault, "{text}");
            assert!(!error.to_string().contains("hunter2"));
        }
    }
}
