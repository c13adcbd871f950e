//! `cargo xtask soak`: half an hour of random faults under load, and an account of every request; and
//! `cargo xtask soak worker`, an hour of real decisions.
//!
//! The binary runs with a fake worker that can be given a vice while it runs. Clients ask all the
//! time, each request with a number of its own that the right answer repeats. Meanwhile one fault
//! after another is done to the worker, or to the binary itself. In the end every request is
//! accounted for; one whose answer was wrong or never came makes the soak fail.

mod account;
mod client;
mod faults;
mod subject;
mod worker;

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::{Args, Subcommand};

use self::account::Account;
use self::faults::Fault;
use self::subject::Subject;
use crate::bench::interrupt;
use crate::{release, step};

/// What `cargo xtask soak` takes: options of the faults, or another soak.
#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Soak {
    #[command(subcommand)]
    of: Option<Of>,
    #[command(flatten)]
    faults: Options,
}

/// What can be soaked beside the supervision.
#[derive(Subcommand)]
enum Of {
    /// An hour of decisions of every kind and length: each answer checked, the memory watched.
    Worker(worker::Options),
}

/// What the soak with faults takes.
#[derive(Args)]
struct Options {
    /// How long.
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..))]
    minutes: u64,
    /// Clients that ask one after the other.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..=256))]
    clients: u64,
    /// Decides the order of the faults; printed, so that a run can be done again.
    #[arg(long)]
    seed: Option<u64>,
    /// The `omni-jev` to run, in place of one that is built for it.
    #[arg(long, value_name = "FILE")]
    binary: Option<std::path::PathBuf>,
}

/// Runs it and prints the account as Markdown on standard output.
///
/// # Errors
///
/// When the binary cannot be built or started, or when it is interrupted. Requests that were wrong
/// or lost are in the account and in the exit code.
pub(crate) fn run(root: &Path, soak: &Soak) -> anyhow::Result<ExitCode> {
    match &soak.of {
        Some(Of::Worker(options)) => worker::run(root, options),
        None => with_faults(root, &soak.faults),
    }
}

fn with_faults(root: &Path, options: &Options) -> anyhow::Result<ExitCode> {
    interrupt::watch()?;
    let binary = match &options.binary {
        Some(binary) => binary.clone(),
        None => release::build(root)?,
    };
    let seed = options.seed.unwrap_or_else(|| fastrand::u64(..));
    step::say(&format!(
        "Soaking {} for {} minutes with seed {seed}",
        binary.display(),
        options.minutes
    ));
    let account = Arc::new(Account::default());
    let mut subject = Subject::start(root, &binary)?;
    // Before it listens there is nobody whose refusals could be judged.
    subject.wait_until_healed()?;
    let end = Instant::now() + Duration::from_mins(options.minutes);
    let over = Arc::new(AtomicBool::new(false));
    let clients: Vec<_> = (0..options.clients)
        .map(|number| {
            let (account, address, over) =
                (Arc::clone(&account), subject.address(), Arc::clone(&over));
            thread::spawn(move || client::ask_until(&over, number, &address, &account))
        })
        .collect();
    let outcome = trouble(subject, end, seed, &account);
    over.store(true, Ordering::Relaxed);
    for client in clients {
        client.join().ok().context("a client failed")?;
    }
    outcome?;
    account.print(options.minutes, options.clients, seed);
    Ok(account.verdict())
}

/// Does one fault after the other until the time is over, and sees each one healed.
fn trouble(mut subject: Subject, end: Instant, seed: u64, account: &Account) -> anyhow::Result<()> {
    let mut random = fastrand::Rng::with_seed(seed);
    while Instant::now() < end {
        // Some work is done in peace between two faults.
        interrupt::sleep(Duration::from_millis(random.u64(500..3000)))?;
        let fault = Fault::ALL[random.usize(..Fault::ALL.len())];
        let begun = Instant::now();
        subject
            .suffer(fault, account, &mut random)
            .and_then(|()| subject.wait_until_healed())
            .with_context(|| format!("after: {}", fault.name()))?;
        account.healed(fault, begun.elapsed());
    }
    subject.finish(account)
}
