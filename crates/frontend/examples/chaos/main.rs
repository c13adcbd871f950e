//! Many requests before a backend that closes, stalls, cuts, lies and comes late.
//!
//! Each request tells the backend what to do with it, so its client knows what it
//! must get. The frontend is omni-jev itself, with its log and metrics on; its memory is
//! looked at before and after.
//!
//!     cargo run --release -p omni-jev-frontend --example chaos -- \
//!         --binary target/release/omni-jev --requests 500000 --connections 256 --seed 1
//!
//! It exits with 1 if any outcome was wrong, anything hung, or memory did not come
//! back to within 10 MB.

// What it finds is printed for whoever started it, and a run that cannot go on ends.
#![allow(clippy::print_stdout, clippy::print_stderr)]

mod backend;
mod clients;
mod frontend;
mod plan;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use frontend::Process;
use plan::Plan;

/// How much more memory than at the beginning may be left in use, in bytes.
const MAY_REMAIN: u64 = 10_000_000;

struct Options {
    binary: PathBuf,
    requests: u64,
    connections: u64,
    seed: u64,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let outcome = parse(&arguments).and_then(|options| {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| error.to_string())?;
        runtime.block_on(run(&options))
    });
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("chaos: {why}");
            ExitCode::FAILURE
        }
    }
}

fn parse(arguments: &[String]) -> Result<Options, String> {
    let mut options = Options {
        binary: PathBuf::from("target/release/omni-jev"),
        requests: 500_000,
        connections: 256,
        seed: 1,
    };
    for pair in arguments.chunks(2) {
        let [name, value] = pair else {
            return Err(format!("{} has no value", pair[0]));
        };
        if name == "--binary" {
            options.binary = PathBuf::from(value);
            continue;
        }
        let value = value
            .parse()
            .map_err(|_| format!("{name} is a whole number, not {value}"))?;
        match name.as_str() {
            "--requests" => options.requests = value,
            "--connections" => options.connections = value,
            "--seed" => options.seed = value,
            _ => return Err(format!("{name} is not known")),
        }
    }
    Ok(options)
}

async fn run(options: &Options) -> Result<bool, String> {
    let told = |error: std::io::Error| error.to_string();
    let (backend, complaints) = backend::start().await.map_err(told)?;
    let process = Process::start(&options.binary, backend)
        .map_err(|error| format!("{}: {error}", options.binary.display()))?;
    // One request, so that what is made only once is there.
    let first = clients::run(process.address, 1, 1, options.seed).await;
    let before = process.resident()?;
    let begun = Instant::now();
    let tally = clients::run(
        process.address,
        options.requests,
        options.connections,
        options.seed,
    )
    .await;
    let took = begun.elapsed();
    let loaded = process.resident()?;
    let after = settle(&process, before).await?;

    println!("| plan | must be | right |\n| --- | --- | --- |");
    for plan in Plan::all() {
        let right = tally.right.get(&plan).copied().unwrap_or_default();
        println!("| {} | {:?} | {right} |", plan.name(), plan.expected());
    }
    let malformed = complaints.malformed.lock().expect("not poisoned").clone();
    let kept_waiting = complaints.kept_waiting.load(Ordering::Relaxed);
    println!(
        "\n{} requests, {} connections, seed {}, {:.1} s",
        options.requests,
        options.connections,
        options.seed,
        took.as_secs_f64()
    );
    println!(
        "wrong {}, of these hung {}",
        tally.wrong + first.wrong,
        tally.hung
    );
    println!(
        "malformed at the backend {}, kept waiting after the client left {kept_waiting}",
        malformed.len()
    );
    for name in [
        "retries_total",
        "backend_reuses_total",
        "in_flight_requests",
        "connections",
    ] {
        println!("{name} {}", process.metric(name).await?);
    }
    let mb = |bytes: u64| f64::from(u32::try_from(bytes / 1000).unwrap_or(u32::MAX)) / 1000.0;
    println!(
        "resident MB: before {:.1}, at the end of the load {:.1}, after {:.1}",
        mb(before),
        mb(loaded),
        mb(after)
    );
    for example in &tally.examples {
        println!("wrong: {example}");
    }
    for request in malformed.iter().take(5) {
        println!("malformed: {request:?}");
    }
    let is_idle = process.metric("in_flight_requests").await? == "0";
    Ok(tally.wrong + first.wrong + kept_waiting == 0
        && malformed.is_empty()
        && is_idle
        && after <= before + MAY_REMAIN)
}

/// Waits for connections and memory to be let go, and gives what is left in use.
async fn settle(process: &Process, before: u64) -> Result<u64, String> {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let now = process.resident()?;
        let is_over = process.metric("connections").await? == "0" && now <= before + MAY_REMAIN;
        if is_over || Instant::now() > deadline {
            return Ok(now);
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}
