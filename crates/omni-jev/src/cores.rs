//! The processor's cores, and how several workers share them.

use tracing::info;

/// The worker's own flag for its threads on the CPU.
const THREADS: &str = "--threads";
/// The one for what it computes on.
const DEVICE: &str = "--device";

/// A worker that computes on the CPU, as far as its flags tell.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sharer<'a> {
    pub(crate) name: &'a str,
    pub(crate) flags: &'a [String],
}

/// The threads of each of these workers where they are too many for the worker's own choice, which
/// is all cores but one: nothing for one that says itself how many it takes or computes on another device, and nothing
/// at all where no other is left.
pub(crate) fn shares(cores: usize, workers: &[Sharer<'_>]) -> Vec<Option<usize>> {
    let is_elsewhere = |worker: &Sharer<'_>| {
        value(worker.flags, DEVICE).is_some_and(|device| device != "cpu" && device != "auto")
    };
    let here = || workers.iter().filter(|worker| !is_elsewhere(worker));
    let asked: Vec<_> = here()
        .filter_map(|worker| value(worker.flags, THREADS))
        .collect();
    let left = here().count() - asked.len();
    if here().count() < 2 || left == 0 {
        return vec![None; workers.len()];
    }
    let taken: usize = asked
        .iter()
        .filter_map(|text| text.parse::<usize>().ok())
        .sum();
    let free = all(cores).saturating_sub(taken);
    let mut place = 0;
    let share = |worker: &Sharer<'_>| {
        if is_elsewhere(worker) || value(worker.flags, THREADS).is_some() {
            return None;
        }
        place += 1;
        // The first ones get what does not divide.
        Some((free / left + usize::from(place <= free % left)).max(1))
    };
    workers.iter().map(share).collect()
}

/// What the worker alone would take: all cores but one, which is the frontend's, or both of two.
fn all(cores: usize) -> usize {
    cores.saturating_sub(1).max(cores.min(2))
}

/// The flag that gives a worker its share.
pub(crate) fn flags(share: Option<usize>) -> Vec<String> {
    let flags = share.map(|threads| vec![THREADS.to_owned(), threads.to_string()]);
    flags.unwrap_or_default()
}

/// Says who got what.
pub(crate) fn log(cores: usize, workers: &[Sharer<'_>], shares: &[Option<usize>]) {
    let told = workers
        .iter()
        .zip(shares)
        .filter_map(|(worker, share)| Some(format!("{}: {}", worker.name, (*share)?)));
    let threads = told.collect::<Vec<_>>().join(", ");
    if !threads.is_empty() {
        info!(
            cores,
            threads, "the workers share the cores; --threads among a worker's flags is its own"
        );
    }
}

/// The value of a flag, the last one where it is given twice.
fn value<'a>(flags: &'a [String], name: &str) -> Option<&'a str> {
    let mut found = None;
    let mut flags = flags.iter();
    while let Some(flag) = flags.next() {
        if flag == name {
            found = flags.next().map(String::as_str);
        } else if let Some(value) = flag
            .strip_prefix(name)
            .and_then(|rest| rest.strip_prefix('='))
        {
            found = Some(value);
        }
    }
    found
}

/// The physical cores that this process may use, one at least, counted as the worker counts them: a second thread on the
/// same core adds nothing to a product of matrices.
pub(crate) fn physical() -> usize {
    // With what a container may use of them.
    let usable = std::thread::available_parallelism().map_or(1, usize::from);
    counted().map_or(usable, |cores| cores.clamp(1, usable))
}

#[cfg(target_os = "linux")]
fn counted() -> Option<usize> {
    use std::collections::HashSet;

    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let allowed = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    let siblings = |number: usize| {
        let topology = format!("/sys/devices/system/cpu/cpu{number}/topology/thread_siblings_list");
        std::fs::read_to_string(topology).ok()
    };
    let cores: Option<HashSet<String>> = numbers(allowed)?.into_iter().map(siblings).collect();
    Some(cores?.len())
}

/// The numbers of a list such as `0-3,8`.
#[cfg(target_os = "linux")]
fn numbers(ranges: &str) -> Option<Vec<usize>> {
    let mut found = Vec::new();
    for part in ranges.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        found.extend(first..=last);
    }
    Some(found)
}

#[cfg(not(target_os = "linux"))]
fn counted() -> Option<usize> {
    let told = std::process::Command::new("/usr/sbin/sysctl")
        .args(["-n", "hw.physicalcpu"])
        .output()
        .ok()?;
    String::from_utf8(told.stdout).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shared(cores: usize, flags: &[&str]) -> Vec<Option<usize>> {
        let flags: Vec<Vec<String>> = flags
            .iter()
            .map(|flags| flags.split_whitespace().map(str::to_owned).collect())
            .collect();
        let workers: Vec<_> = flags
            .iter()
            .map(|flags| Sharer { name: "w", flags })
            .collect();
        shares(cores, &workers)
    }

    #[test]
    fn workers_share_what_one_alone_would_take_and_each_gets_a_core() {
        assert_eq!(shared(2, &["", ""]), [Some(1), Some(1)]);
        assert_eq!(shared(8, &["", "--device cpu"]), [Some(4), Some(3)]);
        assert_eq!(
            shared(8, &["", "--device auto", ""]),
            [Some(3), Some(2), Some(2)]
        );
        assert_eq!(shared(1, &["", ""]), [Some(1), Some(1)]);
    }

    #[test]
    fn one_alone_chooses_itself() {
        assert_eq!(shared(8, &[""]), [None]);
        assert_eq!(shared(8, &["", "--device=mps"]), [None, None]);
        assert_eq!(shared(8, &[]), []);
    }

    #[test]
    fn what_is_asked_for_is_left_and_the_others_share_the_rest() {
        assert_eq!(shared(8, &["--threads 2", ""]), [None, Some(5)]);
        assert_eq!(
            shared(8, &["--threads=7", "", ""]),
            [None, Some(1), Some(1)]
        );
        assert_eq!(shared(8, &["--threads 4", "--threads 4"]), [None, None]);
        // It will be told so itself.
        assert_eq!(shared(8, &["--threads many", ""]), [None, Some(7)]);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_list_of_processors_is_read_with_its_ranges() {
        assert_eq!(numbers("\t0-2,7\n"), Some(vec![0, 1, 2, 7]));
        assert_eq!(numbers("x"), None);
    }

    #[test]
    fn this_machine_has_a_core() {
        let cores = physical();
        assert!((1..=4096).contains(&cores), "{cores}");
    }
}
