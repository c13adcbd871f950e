//! A program in a process group of its own: its CPU time, its memory, and its certain end.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::{Pid, SysconfVar, sysconf};

/// How long a program may take to end once it is asked to.
const STOP_LIMIT: Duration = Duration::from_secs(1);

/// A started program and all the processes that it starts in turn, killed when this is dropped.
///
/// The group is its own, so that Ctrl-C at the terminal reaches this process alone, which then ends the
/// programs itself, those included whose parent is gone (a worker of nginx outlives its master).
pub(crate) struct Group {
    name: &'static str,
    leader: Child,
    id: Pid,
}

impl Group {
    /// Starts the program, without standard input.
    pub(crate) fn start(name: &'static str, command: &mut Command) -> anyhow::Result<Self> {
        let leader = command
            .stdin(Stdio::null())
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot start {name}"))?;
        let id = Pid::from_raw(leader.id().try_into().context("a process id over 2^31")?);
        Ok(Self { name, leader, id })
    }

    /// The program's exit status if it has ended.
    pub(crate) fn ended(&mut self) -> anyhow::Result<Option<ExitStatus>> {
        self.leader
            .try_wait()
            .with_context(|| format!("cannot ask whether {} has ended", self.name))
    }

    /// Fails when the program has ended: a server must not.
    pub(crate) fn expect_running(&mut self) -> anyhow::Result<()> {
        match self.ended()? {
            Some(status) => bail!("{} ended by itself ({status})", self.name),
            None => Ok(()),
        }
    }

    /// The CPU time, user and system, that the group's living processes have used since they started.
    ///
    /// The kernel counts it in ticks, usually of 10 ms: take differences over seconds.
    pub(crate) fn cpu_time(&self) -> anyhow::Result<Duration> {
        let per_second = sysconf(SysconfVar::CLK_TCK)
            .ok()
            .flatten()
            .and_then(|ticks| u32::try_from(ticks).ok())
            .context("the system does not say how long a clock tick is")?;
        let ticks: u32 = self.members()?.iter().map(|stat| stat.cpu_ticks).sum();
        Ok(Duration::from_secs(1) * ticks / per_second)
    }

    /// The resident memory of the group's processes in kB (1,024 bytes). A page that two of them share
    /// counts twice.
    pub(crate) fn resident_kb(&self) -> anyhow::Result<u32> {
        let mut total = 0;
        for member in self.members()? {
            // The kernel keeps `VmRSS` of `status` only roughly; this file it counts page by page.
            let path = format!("/proc/{}/smaps_rollup", member.pid);
            let text = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
            total += parse_resident(&text).with_context(|| format!("{path} has no Rss line"))?;
        }
        Ok(total)
    }

    fn members(&self) -> anyhow::Result<Vec<Stat>> {
        let mut members = Vec::new();
        for entry in fs::read_dir("/proc").context("cannot list /proc")? {
            let folder = entry.context("cannot list /proc")?;
            if !folder.file_name().as_encoded_bytes()[0].is_ascii_digit() {
                continue;
            }
            match fs::read_to_string(folder.path().join("stat")) {
                Ok(text) => members.extend(
                    Stat::parse(&text).filter(|stat| stat.group == self.id.as_raw() && !stat.dead),
                ),
                Err(error) if has_ended(&error) => {}
                Err(error) => {
                    let path = folder.path();
                    return Err(error).with_context(|| format!("cannot read {}", path.display()));
                }
            }
        }
        if members.is_empty() {
            bail!("{} has no process left", self.name);
        }
        Ok(members)
    }
}

/// Whether a file of `/proc` cannot be read because its process has ended.
fn has_ended(error: &io::Error) -> bool {
    error.kind() == ErrorKind::NotFound || error.raw_os_error() == Some(nix::libc::ESRCH)
}

impl Drop for Group {
    fn drop(&mut self) {
        // Asked first, a master collects its workers; whatever is left then is not asked. Either signal
        // fails only when there is nobody to get it.
        let _ = kill(self.id, Signal::SIGTERM);
        let end = Instant::now() + STOP_LIMIT;
        while matches!(self.leader.try_wait(), Ok(None)) && Instant::now() < end {
            thread::sleep(Duration::from_millis(5));
        }
        let _ = killpg(self.id, Signal::SIGKILL);
        let _ = self.leader.wait();
    }
}

/// What is needed of `/proc/<pid>/stat` (proc(5)).
#[derive(Debug, PartialEq)]
struct Stat {
    pid: i32,
    dead: bool,
    group: i32,
    cpu_ticks: u32,
}

impl Stat {
    fn parse(line: &str) -> Option<Self> {
        // The second field is a name in brackets, which may hold spaces and brackets itself.
        let (pid, rest) = line.split_once(" (")?;
        let fields: Vec<&str> = rest.rsplit_once(") ")?.1.split_ascii_whitespace().collect();
        let ticks = |at: usize| fields.get(at)?.parse::<u32>().ok();
        Some(Self {
            pid: pid.parse().ok()?,
            dead: matches!(*fields.first()?, "Z" | "X"),
            group: fields.get(2)?.parse().ok()?,
            cpu_ticks: ticks(11)? + ticks(12)?,
        })
    }
}

fn parse_resident(smaps_rollup: &str) -> Option<u32> {
    let line = smaps_rollup
        .lines()
        .find_map(|line| line.strip_prefix("Rss:"))?;
    line.trim().strip_suffix("kB")?.trim_end().parse().ok()
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    #[test]
    fn a_stat_line_gives_group_and_user_plus_system_ticks_whatever_the_name() {
        let line = "88 (a) b (c) S 80 77 8014 0 -1 4194304 96 0 0 0 31 11 5 6 20 0 1 0 82336 1 2 3";
        let expected = Stat {
            pid: 88,
            dead: false,
            group: 77,
            cpu_ticks: 42,
        };
        assert_eq!(Stat::parse(line), Some(expected));
        assert_eq!(Stat::parse("88 (cut"), None);
    }

    #[test]
    fn the_resident_line_of_a_rollup_is_read_and_not_its_neighbours() {
        let rollup = "5581-7fff ---p 00000000 00:00 0 [rollup]\nRss:    2016 kB\nPss:    170 kB\n";
        assert_eq!(parse_resident(rollup), Some(2016));
        assert_eq!(parse_resident("Pss: 170 kB\n"), None);
    }

    #[test]
    fn dropping_a_group_ends_the_children_of_its_program_too() {
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 60 & sleep 60"]);
        let mut group = Group::start("a shell", command.stdout(Stdio::piped())).unwrap();
        let mut output = group.leader.stdout.take().unwrap();
        let start = Instant::now();
        drop(group);
        // The pipe ends when the last process that could write to it has ended.
        output.read_to_end(&mut Vec::new()).unwrap();
        assert!(start.elapsed() < Duration::from_secs(40));
    }
}
