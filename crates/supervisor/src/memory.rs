//! How much of the machine's memory a worker holds, with the processes that it has started.

use std::collections::{BTreeMap, BTreeSet};

/// A process of the system's table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry {
    pid: u32,
    parent: u32,
    group: u32,
}

/// The resident memory in bytes of a process, of those of its group, and of all that any of them has started; none
/// where that cannot be told.
#[cfg(target_os = "linux")]
pub(crate) fn resident(pid: u32) -> std::future::Ready<Option<u64>> {
    // Reads from /proc never wait.
    std::future::ready(linux::resident(pid))
}

/// The resident memory in bytes of a process, of those of its group, and of all that any of them has started; none
/// where that cannot be told.
#[cfg(not(target_os = "linux"))]
pub(crate) async fn resident(pid: u32) -> Option<u64> {
    let output = tokio::process::Command::new("ps")
        .args(["-A", "-o", "pid=,ppid=,pgid=,rss="])
        .stdin(std::process::Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .ok()?;
    listed(pid, std::str::from_utf8(&output.stdout).ok()?)
}

/// The same by the lines of `ps -A -o pid=,ppid=,pgid=,rss=`.
#[cfg(any(test, not(target_os = "linux")))]
fn listed(pid: u32, lines: &str) -> Option<u64> {
    let entry = |line: &str| {
        let mut words = line.split_whitespace();
        let mut number = || words.next()?.parse::<u64>().ok();
        let mut id = || u32::try_from(number()?).ok();
        let entry = Entry {
            pid: id()?,
            parent: id()?,
            group: id()?,
        };
        Some((entry, number()?))
    };
    let found: Vec<(Entry, u64)> = lines.lines().filter_map(entry).collect();
    let sizes: BTreeMap<u32, u64> = found
        .iter()
        .map(|(entry, size)| (entry.pid, *size))
        .collect();
    let entries: Vec<Entry> = found.iter().map(|(entry, _)| *entry).collect();
    sizes.get(&pid)?;
    let members = family(pid, &entries);
    let total: u64 = members.iter().filter_map(|member| sizes.get(member)).sum();
    total.checked_mul(1024)
}

/// The processes of this one's group, and all that descend from any of them.
fn family(pid: u32, all: &[Entry]) -> BTreeSet<u32> {
    let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for entry in all {
        children.entry(entry.parent).or_default().push(entry.pid);
    }
    let of_the_group = all.iter().filter(|entry| entry.group == pid);
    let mut open: Vec<u32> = of_the_group.map(|entry| entry.pid).collect();
    open.push(pid);
    let mut members = BTreeSet::new();
    while let Some(member) = open.pop() {
        if members.insert(member) {
            open.extend(children.get(&member).into_iter().flatten());
        }
    }
    members
}

#[cfg(target_os = "linux")]
mod linux {
    use std::fs;

    use super::{Entry, family};

    pub(super) fn resident(pid: u32) -> Option<u64> {
        let own = held(pid)?;
        let entries = fs::read_dir("/proc").ok()?;
        let entries = entries.flatten().filter_map(|entry| {
            let pid = entry.file_name().to_str()?.parse().ok()?;
            parsed(pid, &fs::read_to_string(entry.path().join("stat")).ok()?)
        });
        let entries: Vec<Entry> = entries.collect();
        let others = family(pid, &entries).into_iter();
        // One that has just ended holds nothing.
        let others = others.filter(|other| *other != pid).filter_map(held);
        Some(own + others.sum::<u64>())
    }

    fn held(pid: u32) -> Option<u64> {
        let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
        kibibytes.checked_mul(1024)
    }

    /// Reads `/proc/PID/stat`, whose name in parentheses may hold anything: the fields are counted from its end.
    fn parsed(pid: u32, stat: &str) -> Option<Entry> {
        let mut fields = stat.rsplit(')').next()?.split_whitespace().skip(1);
        Some(Entry {
            pid,
            parent: fields.next()?.parse().ok()?,
            group: fields.next()?.parse().ok()?,
        })
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn a_name_with_parentheses_and_spaces_hides_no_field() {
            let entry = Entry {
                pid: 7,
                parent: 3,
                group: 5,
            };
            assert_eq!(parsed(7, "7 (a) S 9 (b) S 3 5 5 0 -1"), Some(entry));
            assert_eq!(parsed(7, "7 (a) S"), None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn this_process_holds_some_memory_and_nobody_holds_none() {
        let own = resident(std::process::id()).await.unwrap();
        assert!(own > 1024 * 1024, "{own}");
        assert!(own < 1 << 40, "{own}");
        assert_eq!(resident(0x7fff_fff0).await, None);
    }

    #[test]
    fn a_processs_memory_is_that_of_its_group_and_of_all_that_it_started() {
        let table = "
            1     0     1   1000
           10     1    10     16
           11    10    10      8
           12    11    12      4
           13     1    10      2
           14     1    14   2000
        ";
        assert_eq!(listed(10, table), Some((16 + 8 + 4 + 2) * 1024));
        assert_eq!(listed(12, table), Some(4 * 1024));
        assert_eq!(listed(99, table), None);
    }
}
