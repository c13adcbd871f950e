//! Orphans of a container: the first process of a PID namespace inherits them, and has to wait for
//! each when it ends, or it stays in the process table for ever.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
#[cfg(target_os = "linux")]
use std::{fs, io, thread, time::Duration};

/// The workers' own processes, which their supervisors wait for.
static OWNED: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());

fn owned() -> MutexGuard<'static, BTreeSet<u32>> {
    OWNED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A process that its supervisor waits for, while this lives.
#[derive(Debug)]
pub(crate) struct Owned(u32);

impl Owned {
    pub(crate) fn new(pid: u32) -> Self {
        owned().insert(pid);
        Self(pid)
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        owned().remove(&self.0);
    }
}

/// Waits, on a thread of its own, for the children of this process that nobody else waits for, if
/// it is the first process of a PID namespace; says whether it is.
///
/// # Errors
///
/// When the system gives no thread.
#[cfg(target_os = "linux")]
pub fn reap_orphans() -> io::Result<bool> {
    if std::process::id() != 1 {
        return Ok(false);
    }
    thread::Builder::new().name("reap".to_owned()).spawn(|| {
        let mut seen = BTreeSet::new();
        loop {
            thread::sleep(Duration::from_secs(1));
            seen = reap(&seen);
        }
    })?;
    Ok(true)
}

/// There are no PID namespaces here.
///
/// # Errors
///
/// None.
#[cfg(not(target_os = "linux"))]
pub fn reap_orphans() -> std::io::Result<bool> {
    Ok(false)
}

/// Waits for the dead that were seen before, and returns those that are new: a process just
/// spawned may end before it is known to have an owner.
#[cfg(target_os = "linux")]
fn reap(seen: &BTreeSet<u32>) -> BTreeSet<u32> {
    use nix::sys::wait::{WaitPidFlag, waitpid};
    use nix::unistd::Pid;

    let mut dead = dead_children();
    for pid in owned().iter() {
        dead.remove(pid);
    }
    for pid in dead.intersection(seen) {
        if let Ok(pid) = i32::try_from(*pid) {
            // Gone already is as good.
            let _ = waitpid(Pid::from_raw(pid), Some(WaitPidFlag::WNOHANG));
        }
    }
    dead
}

/// The children of this process that ended and were not waited for.
#[cfg(target_os = "linux")]
fn dead_children() -> BTreeSet<u32> {
    let own = std::process::id().to_string();
    let Ok(entries) = fs::read_dir("/proc") else {
        return BTreeSet::new();
    };
    let mut found = BTreeSet::new();
    for entry in entries.flatten() {
        let pid = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok());
        let (Some(pid), Ok(stat)) = (pid, fs::read_to_string(entry.path().join("stat"))) else {
            continue;
        };
        // The name in parentheses may hold anything, so the fields are counted from its end.
        let mut fields = stat
            .rsplit(')')
            .next()
            .unwrap_or_default()
            .split_whitespace();
        if fields.next() == Some("Z") && fields.next() == Some(own.as_str()) {
            found.insert(pid);
        }
    }
    found
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use std::process::Command;
    use std::time::Instant;

    use super::*;

    /// Waits until the child is dead, but not waited for.
    fn dead_child() -> (std::process::Child, u32) {
        let child = Command::new("true").spawn().unwrap();
        let pid = child.id();
        let begun = Instant::now();
        while !dead_children().contains(&pid) {
            assert!(begun.elapsed() < Duration::from_mins(1));
            thread::sleep(Duration::from_millis(5));
        }
        (child, pid)
    }

    #[test]
    fn a_dead_child_is_waited_for_the_second_time_unless_it_is_owned() {
        let (_child, orphan) = dead_child();
        let (mut kept, with_owner) = dead_child();
        let owner = Owned::new(with_owner);
        // Only these two: other tests of this process have children of their own.
        let ours = |seen: BTreeSet<u32>| -> BTreeSet<u32> {
            seen.intersection(&BTreeSet::from([orphan, with_owner]))
                .copied()
                .collect()
        };
        let seen = ours(reap(&BTreeSet::new()));
        assert_eq!(seen, BTreeSet::from([orphan]));
        reap(&seen);
        assert!(!dead_children().contains(&orphan));
        reap(&BTreeSet::from([with_owner]));
        assert!(dead_children().contains(&with_owner));
        drop(owner);
        assert!(kept.wait().unwrap().success());
    }
}
