//! The kinds of value that settings have, each read from text with an error that says what would be right.
//!
//! No error repeats the value: a backend's address may hold a password that was put there by mistake.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::str::FromStr;
use std::time::Duration;

use bytesize::ByteSize;
use omni_jev_frontend::Endpoint;
use serde::de::{Deserializer, Error, Unexpected, Visitor};
use serde::{Deserialize, de};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

/// The longest time that a setting takes: a sum of several is still one that clocks can count.
const LONGEST: Duration = Duration::from_hours(365 * 24);

/// The largest count that a setting takes, which is more than any machine has of what is counted.
const MOST: usize = 1_000_000;

/// A length of time with its unit, more than zero and at most a year.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span(pub(crate) Duration);

/// The largest size that a setting takes, in bytes: more than any machine holds of what is limited.
const LARGEST: u64 = 1 << 40;

/// A number of bytes, more than zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Size(pub(crate) u64);

/// Where to listen. `localhost` is the IPv4 loopback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Address(pub(crate) SocketAddr);

/// Where the admin listener is, if anywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AdminBind {
    Off,
    At(Address),
}

/// What is logged, in `tracing-subscriber`'s directives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LogFilter(pub(crate) String);

/// How a log line looks.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogFormat {
    Text,
    Json,
}

/// The worker's flags: a list, or one text that is split as a shell splits words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct WorkerArgs(pub(crate) Vec<String>);

// === impl Span ===

impl Span {
    pub(crate) const fn seconds(seconds: u64) -> Self {
        Self(Duration::from_secs(seconds))
    }
}

impl FromStr for Span {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match humantime::parse_duration(text) {
            Ok(duration) if duration > LONGEST => Err("it must be 365d at most"),
            Ok(duration) if duration > Duration::ZERO => Ok(Self(duration)),
            // A number that does not fit is an error of its own, whatever its unit.
            Err(humantime::DurationError::NumberOverflow) => Err("it must be 365d at most"),
            Ok(_) | Err(_) => {
                Err("it must be a time above zero with its unit, such as 500ms, 60s or 10m")
            }
        }
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        parsed(deserializer)
    }
}

// === impl Size ===

impl Size {
    pub(crate) const fn mebibytes(mebibytes: u64) -> Self {
        Self(mebibytes * 1024 * 1024)
    }

    /// For lengths in memory; more than this machine can address is as good as no limit.
    pub(crate) fn bytes(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

impl FromStr for Size {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match ByteSize::from_str(text) {
            Ok(ByteSize(bytes)) if bytes > LARGEST => Err("it must be 1TiB at most"),
            Ok(ByteSize(bytes)) if bytes > 0 => Ok(Self(bytes)),
            _ => Err("it must be a size above zero, such as 500000, 512KiB or 8MiB"),
        }
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        parsed(deserializer)
    }
}

// === impl Address ===

impl Address {
    pub(crate) const fn loopback(port: u16) -> Self {
        Self(SocketAddr::new(
            std::net::IpAddr::V4(Ipv4Addr::LOCALHOST),
            port,
        ))
    }

    pub(crate) fn is_loopback(self) -> bool {
        self.0.ip().to_canonical().is_loopback()
    }
}

impl FromStr for Address {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let address = text.strip_prefix("localhost:").map_or_else(
            || text.parse().ok(),
            |port| port.parse().ok().map(|port| Self::loopback(port).0),
        );
        address
            .map(Self)
            .ok_or("it must be an IP address and a port, such as 127.0.0.1:8080 or [::1]:8080")
    }
}

impl<'de> Deserialize<'de> for Address {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        parsed(deserializer)
    }
}

// === impl AdminBind ===

impl FromStr for AdminBind {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "off" {
            return Ok(Self::Off);
        }
        Address::from_str(text)
            .map(Self::At)
            .map_err(|_| "it must be `off`, or an IP address and a port, such as 127.0.0.1:8081")
    }
}

impl<'de> Deserialize<'de> for AdminBind {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        parsed(deserializer)
    }
}

// === impl LogFilter ===

impl Default for LogFilter {
    fn default() -> Self {
        Self("info".to_owned())
    }
}

impl FromStr for LogFilter {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        // The filter would take any other word for the name of a part of the program, and show nothing else.
        let is_known = |directive: &str| {
            let word = directive.trim();
            (word.contains(['=', '[']) && !word.ends_with('='))
                || (!word.is_empty() && LevelFilter::from_str(word).is_ok())
        };
        if text.split(',').all(is_known) && EnvFilter::try_new(text).is_ok() {
            Ok(Self(text.to_owned()))
        } else {
            Err(
                "it must be error, warn, info, debug, trace or off, or directives such as info,worker=debug",
            )
        }
    }
}

impl<'de> Deserialize<'de> for LogFilter {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        parsed(deserializer)
    }
}

// === impl WorkerArgs ===

impl<'de> Deserialize<'de> for WorkerArgs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            List(Vec<String>),
            Line(String),
        }
        const WANTED: &str = "it must be a list of texts, or one text that splits into words";
        match Written::deserialize(deserializer).map_err(|_| D::Error::custom(WANTED))? {
            Written::List(args) => Ok(Self(args)),
            Written::Line(line) => shlex::split(&line)
                .map(Self)
                .ok_or_else(|| D::Error::custom(WANTED)),
        }
    }
}

/// Reads the backend's address; its own error says what is wrong and repeats nothing.
pub(super) fn endpoint<'de, D>(deserializer: D) -> Result<Option<Endpoint>, D::Error>
where
    D: Deserializer<'de>,
{
    let text = text(deserializer)?;
    text.parse()
        .map(Some)
        .map_err(|error| D::Error::custom(format_args!("it {error}")))
}

/// Reads a count that must not be zero or beyond all measure.
pub(super) fn at_least_one<'de, D: Deserializer<'de>>(deserializer: D) -> Result<usize, D::Error> {
    text(deserializer)?
        .parse()
        .ok()
        .filter(|count| (1..=MOST).contains(count))
        .ok_or_else(|| D::Error::custom("it must be a whole number from 1 to 1000000"))
}

/// Reads a yes or no, which only two words are: a `1` may be a slip of the keyboard.
pub(super) fn truth<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    struct Truth;

    impl Visitor<'_> for Truth {
        type Value = bool;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("true or false")
        }

        fn visit_bool<E: de::Error>(self, truth: bool) -> Result<bool, E> {
            Ok(truth)
        }

        // A flag's value is text.
        fn visit_str<E: de::Error>(self, text: &str) -> Result<bool, E> {
            text.parse()
                .map_err(|_| E::invalid_value(Unexpected::Other("something else"), &self))
        }
    }

    deserializer.deserialize_any(Truth)
}

/// Reads a yes or no, where it may be left out.
pub(super) fn maybe_truth<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<bool>, D::Error> {
    truth(deserializer).map(Some)
}

/// Reads a count that must not be zero, where one may be left out.
pub(super) fn maybe_at_least_one<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<usize>, D::Error> {
    at_least_one(deserializer).map(Some)
}

fn parsed<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr<Err = &'static str>,
{
    text(deserializer)?.parse().map_err(D::Error::custom)
}

/// Text, also where a source has made a number of it (`OMNI_JEV_MAX_REQUEST_BYTES=500000`).
fn text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    struct Text;

    impl Visitor<'_> for Text {
        type Value = String;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("one text or number")
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<String, E> {
            Ok(text.to_owned())
        }

        fn visit_u64<E: de::Error>(self, number: u64) -> Result<String, E> {
            Ok(number.to_string())
        }

        fn visit_i64<E: de::Error>(self, number: i64) -> Result<String, E> {
            Ok(number.to_string())
        }

        fn visit_f64<E: de::Error>(self, number: f64) -> Result<String, E> {
            Ok(number.to_string())
        }

        fn visit_bool<E: de::Error>(self, truth: bool) -> Result<String, E> {
            Err(E::invalid_type(Unexpected::Bool(truth), &self))
        }
    }

    deserializer.deserialize_any(Text)
}
