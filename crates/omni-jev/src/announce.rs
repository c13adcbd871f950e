//! What a person at a terminal sees when the first answer can be had.

use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use crate::settings::{LogFormat, Settings};

const REQUEST: &str = r#"{"state":"Please refund the duplicate charge.","questions":{"refund":{"type":"noul","instructions":"Does the customer ask for a refund?"}}}"#;

/// Prints the address and a `curl` line to copy. A log in JSON is read by programs, so nothing is printed beside it.
pub(crate) fn ready(settings: &Settings, address: SocketAddr) {
    if settings.log_format == LogFormat::Json {
        return;
    }
    let has_key = std::env::var_os("LAYA_API_KEY").is_some_and(|key| !key.is_empty());
    print(text(address, &settings.first_args().0, has_key));
}

/// Writes to standard output, which may be a pipe that nobody reads: that must hold nothing up, and end nothing.
fn print(text: String) {
    let write = move || {
        let mut output = std::io::stdout();
        let written = output
            .write_all(text.as_bytes())
            .and_then(|()| output.flush());
        if let Err(error) = written {
            tracing::warn!(%error, "standard output cannot be written: the line to copy is not shown");
        }
    };
    let thread = std::thread::Builder::new().name("announce".to_owned());
    if let Err(error) = thread.spawn(write) {
        tracing::warn!(%error, "the line to copy is not shown");
    }
}

fn text(address: SocketAddr, worker_flags: &[String], has_key: bool) -> String {
    let mut reachable = address;
    if address.ip().is_unspecified() {
        reachable.set_ip(IpAddr::V4(Ipv4Addr::LOCALHOST));
    }
    let key = if has_key {
        " -H \"authorization: Bearer $LAYA_API_KEY\""
    } else {
        ""
    };
    let model = if is_demo(worker_flags) {
        "This is the demo checkpoint, which has not Laya's quality; `-- --model english` serves Laya.\n"
    } else {
        ""
    };
    format!(
        "\nReady on http://{reachable}. {model}Try:\n\n  \
         curl -s http://{reachable}/v1/systemone{key} -H 'content-type: application/json' -d '{REQUEST}'\n\n"
    )
}

/// Whether the worker's flags leave it its default checkpoint or name that one.
fn is_demo(flags: &[String]) -> bool {
    let mut named = None;
    let mut flags = flags.iter();
    while let Some(flag) = flags.next() {
        if flag == "--model" {
            named = flags.next().map(String::as_str);
        } else if let Some(name) = flag.strip_prefix("--model=") {
            named = Some(name);
        }
    }
    named.is_none_or(|name| name == "demo")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flags(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn the_demo_checkpoint_is_never_passed_off_as_laya() {
        let address = SocketAddr::from(([127, 0, 0, 1], 8080));
        assert!(text(address, &[], false).contains("demo checkpoint"));
        assert!(text(address, &flags(&["--model", "demo"]), false).contains("demo checkpoint"));
        assert!(!text(address, &flags(&["--model=english"]), false).contains("demo checkpoint"));
    }

    #[test]
    fn an_address_that_cannot_be_asked_is_shown_as_one_that_can() {
        let address = SocketAddr::from(([0, 0, 0, 0], 9000));
        assert!(
            text(address, &[], false).contains("curl -s http://127.0.0.1:9000/v1/systemone -H")
        );
    }

    #[test]
    fn a_key_is_shown_by_its_variable_only() {
        let address = SocketAddr::from(([127, 0, 0, 1], 8080));
        assert!(text(address, &[], true).contains("Bearer $LAYA_API_KEY\""));
    }
}
