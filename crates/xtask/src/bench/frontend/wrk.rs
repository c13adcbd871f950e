//! wrk: 64 connections that each ask again as soon as they are answered.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, bail};
use serde::{Deserialize, Serialize};

use crate::bench::interrupt;
use crate::bench::process::Group;

/// The connections that are open at once.
pub(super) const CONNECTIONS: u32 = 64;

/// What begins the line that the script prints.
const MARK: &str = "bench: ";

/// How long wrk may take beyond its time before it counts as stuck.
const GRACE: Duration = Duration::from_secs(15);

/// Where wrk and its script are.
pub(super) struct Wrk {
    pub(super) program: PathBuf,
    pub(super) script: PathBuf,
}

/// One run, as wrk's script reports it.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Load {
    microseconds: u32,
    pub(super) requests: u32,
    connect_errors: u32,
    read_errors: u32,
    write_errors: u32,
    /// Answers of 400 and over.
    status_errors: u32,
    timeouts: u32,
    pub(super) p50_us: u32,
    pub(super) p99_us: u32,
}

impl Load {
    pub(super) fn requests_per_second(&self) -> f64 {
        f64::from(self.requests) * 1e6 / f64::from(self.microseconds)
    }

    /// A run of a second without errors.
    #[cfg(test)]
    pub(super) fn of_one_second(requests: u32) -> Self {
        Self {
            microseconds: 1_000_000,
            requests,
            connect_errors: 0,
            read_errors: 0,
            write_errors: 0,
            status_errors: 0,
            timeouts: 0,
            p50_us: 1,
            p99_us: 2,
        }
    }

    pub(super) fn errors(&self) -> u32 {
        self.connect_errors
            + self.read_errors
            + self.write_errors
            + self.status_errors
            + self.timeouts
    }
}

impl Wrk {
    /// Puts the server under load for whole `seconds`.
    ///
    /// # Errors
    ///
    /// When wrk fails, prints no result, has not one answer, or does not end in time. Requests that
    /// fail are counted in the result.
    pub(super) fn run(
        &self,
        address: SocketAddr,
        seconds: u32,
        folder: &Path,
    ) -> anyhow::Result<Load> {
        let output = folder.join("wrk.txt");
        let file =
            File::create(&output).with_context(|| format!("cannot write {}", output.display()))?;
        let mut command = Command::new(&self.program);
        command
            .args(["--threads", "1", "--timeout", "5s"])
            .args(["--connections", &CONNECTIONS.to_string()])
            .args(["--duration", &format!("{seconds}s")])
            .arg("--script")
            .arg(&self.script)
            .arg(format!("http://{address}/v1/systemone"))
            .stderr(file.try_clone().context("cannot share wrk's output file")?)
            .stdout(file);
        let mut wrk = Group::start("wrk", &mut command)?;
        let limit = Duration::from_secs(seconds.into()) + GRACE;
        let status = interrupt::wait_for(limit, || wrk.ended())?
            .with_context(|| format!("wrk did not end within {} s", limit.as_secs()))?;
        let text = fs::read_to_string(&output).context("cannot read wrk's output")?;
        if !status.success() {
            bail!("wrk failed ({status}): {}", text.trim());
        }
        parse(&text)
    }
}

/// Finds the script's line among wrk's own.
fn parse(output: &str) -> anyhow::Result<Load> {
    let line = output
        .lines()
        .find_map(|line| line.strip_prefix(MARK))
        .with_context(|| format!("wrk's script printed no result: {}", output.trim()))?;
    let load: Load = serde_json::from_str(line)
        .with_context(|| format!("wrk's script printed what cannot be read: {line}"))?;
    if load.requests == 0 || load.microseconds == 0 {
        bail!("wrk got no answer at all: {load:?}");
    }
    Ok(load)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "Running 2s test @ http://127.0.0.1:4100/v1/systemone\n  \
        1 threads and 64 connections\n  Thread Stats   Avg      Stdev     Max   +/- Stdev\n    \
        Latency     4.05ms    1.01ms  20.60ms   95.15%\n  31744 requests in 2.00s, 9.87MB read\n\
        Requests/sec:  15867.73\nTransfer/sec:      4.93MB\n\
        bench: {\"microseconds\":2000000,\"requests\":31744,\"connect_errors\":1,\"read_errors\":2,\
        \"write_errors\":3,\"status_errors\":4,\"timeouts\":5,\"p50_us\":3911,\"p99_us\":7211}\n";

    #[test]
    fn the_scripts_line_is_found_among_wrks_own_and_every_kind_of_error_counts() {
        let load = parse(OUTPUT).unwrap();
        assert!((load.requests_per_second() - 15872.0).abs() < 1e-9);
        assert_eq!(load.errors(), 15);
        assert_eq!((load.p50_us, load.p99_us), (3911, 7211));
    }

    #[test]
    fn output_without_the_line_or_without_an_answer_is_an_error() {
        assert!(parse("unable to connect to 127.0.0.1:1 Connection refused\n").is_err());
        assert!(parse("bench: {\"requests\":1}\n").is_err());
        assert!(parse(&OUTPUT.replace("31744,", "0,")).is_err());
    }
}
