//! Says whether what was seen is right, by the second reading alone.

use super::wire::{self, Fields, Reading, Request, Response};
use super::{MAX_BODY, MAX_HEAD, MAX_TARGET, Seen};

/// Speak of one hop, so they may not be on the next.
const HOP: [&str; 11] = [
    "connection",
    "expect",
    "http2-settings",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Every forwarded request is one, whole and exactly framed, and the next one of
/// those that the client sent, unchanged. Gives their number.
pub(super) fn requests(input: &[u8], forwarded: &[Vec<u8>]) -> Result<usize, String> {
    let mut sent = Sent(input);
    for (number, bytes) in forwarded.iter().enumerate() {
        let fault = |why: &str| {
            format!(
                "forwarded request {number}: {why}: {:?}",
                String::from_utf8_lossy(bytes)
            )
        };
        let got = match wire::request(bytes) {
            Reading::Whole(got) if got.length == bytes.len() => got,
            Reading::Whole(_) => return Err(fault("more bytes than one request")),
            Reading::Partial => return Err(fault("it has no end")),
            Reading::Invalid(why) => return Err(fault(why)),
        };
        well_formed(&got).map_err(|why| fault(&why))?;
        let meant = sent
            .next_forwardable()
            .ok_or_else(|| fault("the client sent no such request"))?;
        same(&meant, &got).map_err(|why| fault(&why))?;
    }
    Ok(forwarded.len())
}

/// Whether two runs forwarded the same, but for ids that were made up.
pub(super) fn alike(some: &[Vec<u8>], others: &[Vec<u8>]) -> bool {
    let without_id = |bytes: &Vec<u8>| match wire::request(bytes) {
        Reading::Whole(mut request) => {
            request.fields.0.retain(|(name, _)| name != "x-request-id");
            // The ids' own lengths are in it.
            request.length = 0;
            Some(request)
        }
        _ => None,
    };
    some.len() == others.len()
        && some
            .iter()
            .zip(others)
            .all(|(one, other)| without_id(one) == without_id(other))
}

/// The client's requests, as far as they can be read for certain.
struct Sent<'a>(&'a [u8]);

impl Sent<'_> {
    fn next_forwardable(&mut self) -> Option<Request> {
        loop {
            let Reading::Whole(request) = wire::request(self.0) else {
                return None;
            };
            self.0 = &self.0[request.length..];
            let hosts = request.fields.all("host").len();
            let hosts_are_right = hosts == 1 || (hosts == 0 && request.is_http_1_0);
            if !hosts_are_right || ["CONNECT", "TRACE"].contains(&request.method.as_str()) {
                return None;
            }
            if request.method == "OPTIONS" && request.target == b"*" {
                continue;
            }
            return Some(request);
        }
    }
}

fn well_formed(request: &Request) -> Result<(), String> {
    let target = &request.target;
    if request.is_http_1_0 {
        return Err("it is not HTTP/1.1".to_owned());
    }
    if target[0] != b'/' || target.iter().any(|byte| b"#<>".contains(byte)) {
        return Err("its target is not one in origin form".to_owned());
    }
    if target.len() > MAX_TARGET || request.body.len() > MAX_BODY {
        return Err("it is over a limit".to_owned());
    }
    // The id and a host may have been added.
    let head = request.length - request.body.len();
    if head > MAX_HEAD + 128 {
        return Err("its head is over its limit".to_owned());
    }
    if let Some(name) = HOP.iter().find(|name| !request.fields.all(name).is_empty()) {
        return Err(format!("{name} belongs to the other hop"));
    }
    for name in ["host", "x-request-id"] {
        match request.fields.all(name)[..] {
            [value] if !value.is_empty() => {}
            _ => return Err(format!("it has not exactly one {name}")),
        }
    }
    if let [length] = request.fields.all("content-length")[..]
        && length != request.body.len().to_string().as_bytes()
    {
        return Err("its length is not written plainly".to_owned());
    }
    Ok(())
}

/// Whether nothing of what the client meant for the backend was changed.
fn same(meant: &Request, got: &Request) -> Result<(), String> {
    if meant.method != got.method || meant.body != got.body {
        return Err("its method or body is another".to_owned());
    }
    let (target, authority) = origin_form(&meant.target).ok_or("its target is none")?;
    if target != got.target {
        return Err("its target is another".to_owned());
    }
    let host = authority.or_else(|| meant.fields.all("host").first().map(|host| host.to_vec()));
    if host.is_some_and(|host| got.fields.all("host") != [host]) {
        return Err("its host is another".to_owned());
    }
    let meant_fields = end_to_end(&meant.fields);
    let got_fields = end_to_end(&got.fields);
    let mut names: Vec<_> = meant_fields.iter().chain(&got_fields).collect();
    names.sort();
    for (name, _) in names {
        let mine = |fields: &[(String, Vec<u8>)]| {
            let mine = fields.iter().filter(|(found, _)| found == name);
            mine.map(|(_, value)| value.clone()).collect::<Vec<_>>()
        };
        if mine(&meant_fields) != mine(&got_fields) {
            return Err(format!("its {name} is another"));
        }
    }
    Ok(())
}

/// The target in origin form, and the authority that it had.
fn origin_form(target: &[u8]) -> Option<(Vec<u8>, Option<Vec<u8>>)> {
    if target.starts_with(b"/") {
        return Some((target.to_vec(), None));
    }
    let scheme = target.windows(3).position(|part| part == b"://")?;
    let rest = &target[scheme + 3..];
    let end = rest.iter().position(|byte| b"/?".contains(byte));
    let (authority, path) = rest.split_at(end.unwrap_or(rest.len()));
    let slash: &[u8] = if path.starts_with(b"/") { b"" } else { b"/" };
    Some(([slash, path].concat(), Some(authority.to_vec())))
}

/// What has to arrive as it was sent: all but the hop's headers, those that are
/// looked at one by one, and what a Connection header takes away.
fn end_to_end(fields: &Fields) -> Vec<(String, Vec<u8>)> {
    const APART: [&str; 3] = ["host", "content-length", "x-request-id"];
    let named: Vec<String> = fields
        .all("connection")
        .iter()
        .flat_map(|value| value.split(|&byte| byte == b','))
        .map(|name| String::from_utf8_lossy(name.trim_ascii()).to_ascii_lowercase())
        .filter(|name| name != "authorization")
        .collect();
    let stays = |name: &str| {
        !HOP.contains(&name) && !APART.contains(&name) && !named.iter().any(|n| n == name)
    };
    let all = fields.0.iter().filter(|(name, _)| stays(name));
    all.cloned().collect()
}

/// Every answer is one, whole, in its turn, and nothing is said after the last.
pub(super) fn answers(seen: &Seen) -> Result<(), String> {
    let fault = |why: &str| {
        format!(
            "the answers: {why}: {:?}",
            String::from_utf8_lossy(&seen.answered)
        )
    };
    let mut rest = seen.answered.as_slice();
    let mut places = 0;
    let mut is_over = false;
    while !rest.is_empty() {
        if is_over {
            return Err(fault("something follows the last one"));
        }
        let to_head = seen
            .forwarded
            .get(places)
            .is_some_and(|request| request.starts_with(b"HEAD "));
        let response = one(rest, to_head).map_err(fault)?;
        rest = &rest[response.length..];
        if response.status == 100 {
            continue;
        }
        is_over = response.fields.all("connection") == [b"close"];
        if response.fields.all("x-request-id").len() != 1 {
            return Err(fault("one has no id"));
        }
        match (response.fields.all("x-place").first(), response.status) {
            (Some(place), 200) if *place == places.to_string().as_bytes() => places += 1,
            (None, 204 | 400 | 405 | 408 | 413 | 414 | 431 | 501) => {}
            _ => return Err(fault("one is not in its turn")),
        }
        if response.status >= 400 && !is_over {
            return Err(fault("a refusal does not end the connection"));
        }
    }
    if places != seen.forwarded.len() {
        return Err(fault("not every forwarded request has one"));
    }
    Ok(())
}

/// The answer to a HEAD that was forwarded, or to a request whose method may have
/// been anything: of those, only a HEAD's has no length.
fn one(bytes: &[u8], to_head: bool) -> Result<Response, &'static str> {
    match wire::response(bytes, to_head) {
        Reading::Whole(response) => Ok(response),
        Reading::Partial => Err("one has no end"),
        Reading::Invalid("answers have one length") => match wire::response(bytes, true) {
            Reading::Whole(response) if response.status >= 400 => Ok(response),
            _ => Err("one has no length"),
        },
        Reading::Invalid(why) => Err(why),
    }
}

/// The client got one whole answer: the backend's, or a 502.
pub(super) fn answer(input: &[u8], seen: &Seen) -> Result<u16, String> {
    let fault = |why: &str| {
        format!(
            "{why}: {:?} became {:?}",
            String::from_utf8_lossy(input),
            String::from_utf8_lossy(&seen.answered)
        )
    };
    let response = match wire::response(&seen.answered, false) {
        Reading::Whole(response) if response.length == seen.answered.len() => response,
        _ => return Err(fault("the client did not get one whole answer")),
    };
    if seen.closed || response.fields.all("x-request-id").len() != 1 {
        return Err(fault("the answer has no id, or its connection was closed"));
    }
    if response.body.len() > 4 * MAX_BODY {
        return Err(fault("the answer is over its limit"));
    }
    if let Some(name) = HOP
        .iter()
        .find(|name| **name != "expect" && !response.fields.all(name).is_empty())
    {
        return Err(fault(&format!("{name} belongs to the other hop")));
    }
    Ok(response.status)
}
