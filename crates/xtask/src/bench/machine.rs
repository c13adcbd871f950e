//! The machine that is measured: what it is, what it has, and the one core that everything runs on.

use std::collections::BTreeSet;
use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use serde::Serialize;

/// What a reader of the numbers needs to know of where they come from.
#[derive(Debug, Serialize)]
pub(crate) struct Environment {
    pub(crate) date: String,
    pub(crate) commit: String,
    pub(crate) cpu: String,
    pub(crate) cores: usize,
    pub(crate) core: usize,
    pub(crate) kernel: String,
    /// The one-minute load average before the measurement began.
    pub(crate) load_before: f64,
    /// Names and versions of the programs that take part.
    pub(crate) programs: Vec<String>,
}

impl Environment {
    /// Looks around; what cannot be found out is `unknown`, since no number depends on it.
    pub(crate) fn record(
        root: &Path,
        core: usize,
        load_before: f64,
        programs: Vec<String>,
    ) -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let unknown = || "unknown".to_owned();
        Self {
            date: first_line(Command::new("date").args(["-u", "+%Y-%m-%d %H:%M UTC"]))
                .unwrap_or_else(unknown),
            commit: commit(root).unwrap_or_else(unknown),
            cpu: cpu_model(&read("/proc/cpuinfo")).unwrap_or_else(unknown),
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            core,
            kernel: first_line(Command::new("uname").args(["-s", "-r", "-m"]))
                .unwrap_or_else(unknown),
            load_before,
            programs,
        }
    }
}

/// The mean number of processes that wanted a core in the last minute.
pub(crate) fn load() -> f64 {
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let first = load.split(' ').next().and_then(|first| first.parse().ok());
    first.unwrap_or(f64::NAN)
}

/// The paths of `names`, in their order.
///
/// # Errors
///
/// Names every program that is missing, with `how` to get it.
pub(crate) fn need<const N: usize>(names: [&str; N], how: &str) -> anyhow::Result<[PathBuf; N]> {
    // Debian keeps nginx where only root's PATH looks.
    let path = env::var_os("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> = env::split_paths(&path)
        .chain(["/usr/sbin", "/usr/local/sbin", "/sbin"].map(PathBuf::from))
        .collect();
    let found = names.map(|name| {
        folders
            .iter()
            .map(|folder| folder.join(name))
            .find(|file| file.is_file())
            .ok_or(name)
    });
    let missing: Vec<&str> = found
        .iter()
        .filter_map(|path| path.as_ref().err().copied())
        .collect();
    if !missing.is_empty() {
        bail!("this benchmark needs {}: {how}", missing.join(" and "));
    }
    Ok(found.map(Result::unwrap_or_default))
}

/// The last of the cores that this process may use: the first is where interrupts tend to go.
pub(crate) fn last_core() -> anyhow::Result<usize> {
    allowed_cores()?
        .last()
        .copied()
        .context("no core to run on")
}

/// Keeps this thread, and every program that it starts from now on, on one core.
pub(crate) fn pin(taskset: &Path, core: usize) -> anyhow::Result<()> {
    let allowed = allowed_cores()?;
    if !allowed.contains(&core) {
        bail!("core {core} is not one of those that this process may use: {allowed:?}");
    }
    let process = OsString::from(std::process::id().to_string());
    let done = Command::new(taskset)
        .args(["--cpu-list", "--pid", &core.to_string()])
        .arg(process)
        .stdout(Stdio::null())
        .status()
        .context("cannot start taskset")?;
    if !done.success() {
        bail!("taskset cannot keep this process on core {core} ({done})");
    }
    Ok(())
}

fn allowed_cores() -> anyhow::Result<BTreeSet<usize>> {
    let status =
        fs::read_to_string("/proc/self/status").context("cannot read /proc/self/status")?;
    status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"))
        .and_then(parse_cores)
        .context("/proc/self/status has no list of cores")
}

/// Cores as the kernel lists them: `0-2,5`.
fn parse_cores(list: &str) -> Option<BTreeSet<usize>> {
    let mut cores = BTreeSet::new();
    for range in list.trim().split(',') {
        let (from, to) = range.split_once('-').unwrap_or((range, range));
        cores.extend(from.parse::<usize>().ok()?..=to.parse().ok()?);
    }
    Some(cores)
}

/// Lets this process, and every program that it starts from now on, open at least `files` at once.
pub(crate) fn allow_open_files(files: u64) -> anyhow::Result<()> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).context("cannot read the file limit")?;
    if soft >= files {
        return Ok(());
    }
    if hard < files {
        bail!(
            "this benchmark needs {files} open files, and the hard limit is {hard}: raise `ulimit -Hn`"
        );
    }
    setrlimit(Resource::RLIMIT_NOFILE, files, hard).context("cannot raise the file limit")
}

/// The first line of what a program says of its version, wherever it says it.
pub(crate) fn version(command: &mut Command) -> String {
    command.output().map_or_else(
        |_| "unknown".to_owned(),
        |output| {
            let text = [output.stdout, output.stderr].concat();
            let text = String::from_utf8_lossy(&text);
            text.lines().next().unwrap_or("unknown").trim().to_owned()
        },
    )
}

fn first_line(command: &mut Command) -> Option<String> {
    let output = command.stderr(Stdio::null()).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let line = text.lines().next()?.trim().to_owned();
    output.status.success().then_some(line)
}

fn commit(root: &Path) -> Option<String> {
    let git = |args: &[&str]| {
        let mut git = Command::new("git");
        git.current_dir(root).args(args);
        git
    };
    let commit = first_line(&mut git(&["rev-parse", "--short=12", "HEAD"]))?;
    let changed = first_line(&mut git(&["status", "--porcelain", "--untracked-files=no"]));
    Some(match changed {
        Some(_) => format!("{commit} with uncommitted changes"),
        None => commit,
    })
}

fn cpu_model(cpuinfo: &str) -> Option<String> {
    let line = cpuinfo
        .lines()
        .find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_cores_may_hold_ranges() {
        let cores = parse_cores("\t0-2,5\n").unwrap();
        assert_eq!(cores, BTreeSet::from([0, 1, 2, 5]));
        assert!(parse_cores("all").is_none());
    }

    #[test]
    fn every_missing_program_is_named_in_one_line() {
        let error = need(["sh", "no-such-a", "no-such-b"], "install them").unwrap_err();
        let expected = "this benchmark needs no-such-a and no-such-b: install them";
        assert_eq!(error.to_string(), expected);
        assert!(need(["sh"], "").is_ok());
    }

    #[test]
    fn the_cpu_is_the_first_one_listed() {
        let cpuinfo = "processor\t: 0\nmodel name\t: A CPU @ 2 GHz\nmodel name\t: Another\n";
        assert_eq!(cpu_model(cpuinfo).unwrap(), "A CPU @ 2 GHz");
    }
}
