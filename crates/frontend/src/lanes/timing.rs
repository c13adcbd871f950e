//! `server-timing`: what the lane says of its times, and what the frontend adds.

use std::time::Duration;

use http::header::{HeaderMap, HeaderName, HeaderValue};

const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");

/// What a lane says of a request's time with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Told {
    /// Until work on it began.
    pub(crate) queue: Duration,
    /// The work itself.
    pub(crate) work: Duration,
}

/// Reads a lane's own header; `None` if it says nothing of a queue.
pub(crate) fn read(headers: &HeaderMap) -> Option<Told> {
    let mut told = Told::default();
    let mut found = false;
    let lines = headers.get_all(SERVER_TIMING).iter();
    for entry in lines
        .filter_map(|line| line.to_str().ok())
        .flat_map(|line| line.split(','))
    {
        let mut parts = entry.split(';').map(str::trim);
        let name = parts.next().unwrap_or_default();
        let Some(taken) = parts.find_map(millis) else {
            continue;
        };
        match name {
            "queue" => {
                told.queue = taken;
                found = true;
            }
            "prepare" | "model" => told.work += taken,
            _ => {}
        }
    }
    found.then_some(told)
}

fn millis(part: &str) -> Option<Duration> {
    let millis: f64 = part.strip_prefix("dur=")?.parse().ok()?;
    Duration::try_from_secs_f64(millis / 1000.0).ok()
}

/// Adds what the choice and the lane took, to what the lane has said itself.
pub(crate) fn add(headers: &mut HeaderMap, route: Duration, lane: Duration) {
    let in_millis = |time: Duration| time.as_secs_f64() * 1000.0;
    let text = format!(
        "route;dur={:.3}, lane;dur={:.3}",
        in_millis(route),
        in_millis(lane)
    );
    if let Ok(value) = HeaderValue::from_str(&text) {
        headers.append(SERVER_TIMING, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(lines: &[&str]) -> Option<Told> {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(SERVER_TIMING, HeaderValue::from_str(line).unwrap());
        }
        read(&headers)
    }

    #[test]
    fn a_lanes_times_are_read_in_any_order_and_whatever_else_it_says() {
        let expected = Told {
            queue: Duration::from_micros(1500),
            work: Duration::from_millis(12),
        };
        assert_eq!(
            told(&["queue;dur=1.5, prepare;dur=2,model;desc=\"torch\";dur=10.0"]),
            Some(expected)
        );
        assert_eq!(
            told(&["cache;desc=hit", "model;dur=12", "queue;dur=1.5"]),
            Some(expected)
        );
        assert_eq!(told(&["model;dur=12"]), None);
        assert_eq!(told(&["queue;dur=-1, queue;dur=x"]), None);
    }
}
