//! What became of every request.

// The account is what the soak is for.
#![allow(clippy::print_stdout)]

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::faults::Fault;
use crate::step;

/// How many faults of a request are written out.
const MAX_SHOWN: usize = 20;
/// How long after the binary was gone, or not listening yet, a connection may break for that alone.
const MARGIN: Duration = Duration::from_millis(500);

/// What became of one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// 200, with its own number.
    Answered,
    /// One of the frontend's own errors, whole and in its shape.
    Refused(u16),
    /// Its connection was refused or broke. Whether that was honest depends on when.
    Cut { from: Instant, to: Instant },
    /// Anything else.
    Wrong(String),
}

/// Shared by all clients and by whoever does the faults.
#[derive(Debug, Default)]
pub(crate) struct Account {
    inner: Mutex<Inner>,
    /// Whether the clients are to send nothing for a while.
    quiet: AtomicBool,
}

#[derive(Debug, Default)]
struct Inner {
    sent: u64,
    answered: u64,
    refused: BTreeMap<u16, u64>,
    cuts: Vec<(Instant, Instant)>,
    wrong: Vec<String>,
    longest: Duration,
    /// When the binary was down, as the soak itself brought about.
    downs: Vec<(Instant, Instant)>,
    faults: BTreeMap<Fault, (u64, Duration)>,
}

/// The cut connections, judged.
struct Cuts {
    while_down: u64,
    lost: u64,
}

impl Account {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks the clients for silence, or to go on.
    pub(crate) fn hush(&self, quiet: bool) {
        self.quiet.store(quiet, Ordering::Relaxed);
    }

    pub(crate) fn is_quiet(&self) -> bool {
        self.quiet.load(Ordering::Relaxed)
    }

    pub(crate) fn request(&self, fate: Fate, took: Duration) {
        let mut inner = self.lock();
        inner.sent += 1;
        inner.longest = inner.longest.max(took);
        match fate {
            Fate::Answered => inner.answered += 1,
            Fate::Refused(status) => *inner.refused.entry(status).or_default() += 1,
            Fate::Cut { from, to } => inner.cuts.push((from, to)),
            Fate::Wrong(why) => {
                if inner.wrong.len() < MAX_SHOWN {
                    step::say_error(&format!("wrong: {why}"));
                }
                inner.wrong.push(why);
            }
        }
    }

    /// The binary was ended at the first moment, and listened again at the second.
    pub(crate) fn was_down(&self, from: Instant, to: Instant) {
        self.lock().downs.push((from, to));
    }

    pub(crate) fn healed(&self, fault: Fault, took: Duration) {
        let mut inner = self.lock();
        let entry = inner.faults.entry(fault).or_default();
        entry.0 += 1;
        entry.1 = entry.1.max(took);
    }

    /// Success if nothing was wrong or lost.
    pub(crate) fn verdict(&self) -> ExitCode {
        let inner = self.lock();
        if inner.wrong.is_empty() && inner.cuts().lost == 0 {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        }
    }

    /// The account as Markdown.
    pub(crate) fn print(&self, minutes: u64, clients: u64, seed: u64) {
        let inner = self.lock();
        let cuts = inner.cuts();
        let count = |status| inner.refused.get(&status).copied().unwrap_or(0);
        let refused: u64 = inner.refused.values().sum();
        println!("{minutes} minutes, {clients} clients, seed {seed}\n");
        println!("| requests | |\n| --- | ---: |");
        println!("| sent | {} |", inner.sent);
        println!("| answered (200, the right answer) | {} |", inner.answered);
        println!("| refused honestly | {refused} |");
        println!("| … 503 with `Retry-After` | {} |", count(503));
        println!("| … 502 with the reason | {} |", count(502));
        println!("| … 504 | {} |", count(504));
        println!(
            "| cut off or not connected while the frontend itself was killed or stopped | {} |",
            cuts.while_down
        );
        println!(
            "| **wrong or lost** | **{}** |",
            inner.wrong.len() as u64 + cuts.lost
        );
        println!(
            "\nThe longest wait of a client was {:.1} s.\n",
            inner.longest.as_secs_f64()
        );
        println!("| fault | times | longest until healed |\n| --- | ---: | ---: |");
        for (fault, (times, longest)) in &inner.faults {
            println!(
                "| {} | {times} | {:.1} s |",
                fault.name(),
                longest.as_secs_f64()
            );
        }
    }
}

impl Inner {
    /// A connection that broke is honest only if it overlaps a time when the binary was down.
    fn cuts(&self) -> Cuts {
        let overlaps = |(from, to): &(Instant, Instant)| {
            self.downs
                .iter()
                .any(|(down, up)| *from <= *up + MARGIN && *to + MARGIN >= *down)
        };
        let honest = self.cuts.iter().filter(|cut| overlaps(cut)).count() as u64;
        Cuts {
            while_down: honest,
            lost: self.cuts.len() as u64 - honest,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_connection_is_lost_unless_the_frontend_was_down() {
        let account = Account::default();
        let start = Instant::now();
        let second = Duration::from_secs(1);
        account.was_down(start + 10 * second, start + 12 * second);
        let cut = |from, to| Fate::Cut {
            from: start + from * second,
            to: start + to * second,
        };
        account.request(cut(8, 10), second);
        account.request(cut(11, 11), second);
        assert_eq!(account.lock().cuts().lost, 0);
        account.request(cut(5, 6), second);
        account.request(cut(20, 21), second);
        let cuts = account.lock().cuts();
        assert_eq!((cuts.while_down, cuts.lost), (2, 2));
        assert_eq!(account.verdict(), ExitCode::FAILURE);
    }

    #[test]
    fn a_wrong_answer_fails_the_soak() {
        let account = Account::default();
        account.request(Fate::Answered, Duration::ZERO);
        account.request(Fate::Refused(503), Duration::ZERO);
        assert_eq!(account.verdict(), ExitCode::SUCCESS);
        account.request(Fate::Wrong("another's answer".to_owned()), Duration::ZERO);
        assert_eq!(account.verdict(), ExitCode::FAILURE);
    }
}
