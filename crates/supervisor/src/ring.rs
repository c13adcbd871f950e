//! The last lines of a worker, kept for whoever asks later.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

/// The most lines that are kept.
const MAX_LINES: usize = 1000;
/// The most text that is kept, in bytes.
const MAX_BYTES: usize = 1024 * 1024;
/// The most of one line that is kept, in characters.
const MAX_LINE: usize = 4096;

/// One line of a worker's log, or of the supervisor's about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogEntry {
    /// When it was read.
    pub at: SystemTime,
    /// The process that wrote it; none for the supervisor's own between two processes.
    pub pid: Option<u32>,
    /// `trace`, `debug`, `info`, `warn` or `error`.
    pub level: &'static str,
    /// Its text, cut where it is very long. The worker's own, unless `supervisor`.
    pub text: String,
    /// Whether the supervisor wrote it.
    pub supervisor: bool,
}

/// The last entries, within bounds. Clones share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ring(Arc<Mutex<Entries>>);

#[derive(Debug, Default)]
struct Entries {
    list: VecDeque<LogEntry>,
    bytes: usize,
}

impl Ring {
    pub(crate) fn push(&self, mut entry: LogEntry) {
        if let Some((end, _)) = entry.text.char_indices().nth(MAX_LINE) {
            entry.text.truncate(end);
        }
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        entries.bytes += entry.text.len();
        entries.list.push_back(entry);
        while entries.list.len() > MAX_LINES || entries.bytes > MAX_BYTES {
            let Some(oldest) = entries.list.pop_front() else {
                break;
            };
            entries.bytes -= oldest.text.len();
        }
    }

    /// The last `most` of them, oldest first.
    pub(crate) fn last(&self, most: usize) -> Vec<LogEntry> {
        let entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let skipped = entries.list.len().saturating_sub(most);
        entries.list.iter().skip(skipped).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(text: String) -> LogEntry {
        LogEntry {
            at: SystemTime::UNIX_EPOCH,
            pid: None,
            level: "info",
            text,
            supervisor: false,
        }
    }

    #[test]
    fn the_last_lines_are_kept_in_order() {
        let ring = Ring::default();
        for number in 0..MAX_LINES + 5 {
            ring.push(entry(number.to_string()));
        }
        let all = ring.last(usize::MAX);
        assert_eq!(all.len(), MAX_LINES);
        assert_eq!(all[0].text, "5");
        let two = ring.last(2);
        assert_eq!(two[1].text, (MAX_LINES + 4).to_string());
    }

    #[test]
    fn long_lines_are_cut_and_many_bytes_push_out_old_lines() {
        let ring = Ring::default();
        for _ in 0..MAX_LINES {
            ring.push(entry("\u{e9}".repeat(100_000)));
        }
        let all = ring.last(usize::MAX);
        assert_eq!(all[0].text.chars().count(), MAX_LINE);
        assert!(all.iter().map(|entry| entry.text.len()).sum::<usize>() <= MAX_BYTES);
        assert!(all.len() > 100);
    }
}
