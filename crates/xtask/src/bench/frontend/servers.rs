//! What is measured, each started afresh: nginx, omni-jev, and the backend that both have behind them.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, bail};
use serde::Serialize;
use serde_json::Value;
use tempfile::TempDir;

use super::client::{Client, post};
use crate::bench::interrupt;
use crate::bench::process::Group;

/// How long a program may take until it listens, and then until it answers.
const START_LIMIT: Duration = Duration::from_secs(10);

/// The settings that omni-jev runs with, besides its two addresses and its backend.
pub(super) const SETTINGS: [(&str, &str); 4] = [
    ("OMNI_JEV_LOG", "info"),
    ("OMNI_JEV_LOG_FORMAT", "json"),
    // The defaults are 512 and 4,096; a thousand requests in flight are measured.
    ("OMNI_JEV_MAX_IN_FLIGHT", "2000"),
    ("OMNI_JEV_MAX_CONNECTIONS", "4096"),
];

/// What a request is sent to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Target {
    Nginx,
    OmniJev,
    /// The backend, without a proxy.
    Direct,
}

impl Target {
    pub(super) const ALL: [Self; 3] = [Self::Nginx, Self::OmniJev, Self::Direct];
    pub(super) const PROXIES: [Self; 2] = [Self::Nginx, Self::OmniJev];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Nginx => "nginx",
            Self::OmniJev => "omni-jev",
            Self::Direct => "direct",
        }
    }
}

/// The programs and files to start them with.
pub(super) struct Programs {
    pub(super) nginx: PathBuf,
    /// nginx's configuration, with names between at signs to fill in.
    pub(super) nginx_template: String,
    pub(super) omni_jev: PathBuf,
    pub(super) backend: PathBuf,
}

/// A server that answers, with a folder for its files; gone when this is dropped.
pub(super) struct Server {
    pub(super) address: SocketAddr,
    group: Option<Group>,
    // After the group: its files go when it has ended.
    folder: TempDir,
}

impl Server {
    /// The proxy's processes; none where there is no proxy.
    pub(super) fn proxy(&self) -> Option<&Group> {
        self.group.as_ref()
    }

    /// A folder that goes with the server.
    pub(super) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Fails when the proxy has ended by itself.
    pub(super) fn expect_running(&mut self) -> anyhow::Result<()> {
        self.group.as_mut().map_or(Ok(()), Group::expect_running)
    }
}

/// Starts the backend that answers everything.
pub(super) fn start_backend(programs: &Programs) -> anyhow::Result<Server> {
    let folder = folder()?;
    let output = folder.path().join("output.txt");
    let mut command = Command::new(&programs.backend);
    let mut group = Group::start("the backend", command.stdout(create(&output)?))?;
    let address = listening(&mut group, &output, |line| {
        line.strip_prefix("listening ")?.parse().ok()
    })?;
    answering(Server {
        address,
        group: Some(group),
        folder,
    })
}

/// Starts what stands before the backend and waits until it forwards.
pub(super) fn start(
    programs: &Programs,
    target: Target,
    backend: SocketAddr,
) -> anyhow::Result<Server> {
    match target {
        Target::Nginx => start_nginx(programs, backend),
        Target::OmniJev => start_omni_jev(programs, backend),
        Target::Direct => Ok(Server {
            address: backend,
            group: None,
            folder: folder()?,
        }),
    }
}

/// nginx cannot be given port 0, so another program may take the free port first: it is tried again.
fn start_nginx(programs: &Programs, backend: SocketAddr) -> anyhow::Result<Server> {
    let mut last = try_nginx(programs, backend);
    for _ in 0..2 {
        if last.is_ok() {
            break;
        }
        interrupt::check()?;
        last = try_nginx(programs, backend);
    }
    last
}

fn try_nginx(programs: &Programs, backend: SocketAddr) -> anyhow::Result<Server> {
    let folder = folder()?;
    let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .and_then(|listener| listener.local_addr())
        .context("cannot find a free port")?;
    let settings = programs
        .nginx_template
        .replace("@FOLDER@", &folder.path().display().to_string())
        .replace("@ADDRESS@", &address.to_string())
        .replace("@BACKEND@", &backend.to_string());
    let file = folder.path().join("nginx.conf");
    fs::write(&file, settings).with_context(|| format!("cannot write {}", file.display()))?;
    let errors = folder.path().join("start.txt");
    let mut command = Command::new(&programs.nginx);
    command
        // Before it has read its configuration, too, it must not write to the system's log.
        .args(["-e", "stderr", "-p"])
        .arg(folder.path())
        .arg("-c")
        .arg(&file)
        .stderr(create(&errors)?);
    let group = Group::start("nginx", &mut command)?;
    let server = Server {
        address,
        group: Some(group),
        folder,
    };
    answering(server).with_context(|| format!("nginx says: {}", tail(&errors)))
}

fn start_omni_jev(programs: &Programs, backend: SocketAddr) -> anyhow::Result<Server> {
    let folder = folder()?;
    let log = folder.path().join("log.json");
    let mut command = Command::new(&programs.omni_jev);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("OMNI_JEV_") {
            command.env_remove(name);
        }
    }
    command
        // Where there is no omni-jev.toml.
        .current_dir(folder.path())
        .env("OMNI_JEV_BIND", "127.0.0.1:0")
        .env("OMNI_JEV_ADMIN_BIND", "127.0.0.1:0")
        .env("OMNI_JEV_BACKEND_URL", format!("http://{backend}"))
        .envs(SETTINGS)
        .stderr(create(&log)?);
    let mut group = Group::start("omni-jev", &mut command)?;
    let address = listening(&mut group, &log, listening_address)
        .with_context(|| format!("omni-jev says: {}", tail(&log)))?;
    let server = Server {
        address,
        group: Some(group),
        folder,
    };
    answering(server).with_context(|| format!("omni-jev says: {}", tail(&log)))
}

/// The address in the log line that says where the frontend listens.
fn listening_address(line: &str) -> Option<SocketAddr> {
    let line: Value = serde_json::from_str(line).ok()?;
    let fields = line.get("fields").unwrap_or(&line);
    let is_it = fields["message"] == "listening" && fields["listener"] == "frontend";
    is_it.then(|| fields["address"].as_str()?.parse().ok())?
}

/// Reads a program's output again until one of its whole lines tells its address.
fn listening(
    group: &mut Group,
    output: &Path,
    address: impl Fn(&str) -> Option<SocketAddr>,
) -> anyhow::Result<SocketAddr> {
    let found = interrupt::wait_for(START_LIMIT, || {
        let text = fs::read_to_string(output)
            .with_context(|| format!("cannot read {}", output.display()))?;
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        let found = whole.lines().find_map(&address);
        if found.is_none() {
            group.expect_running()?;
        }
        Ok(found)
    })?;
    found.with_context(|| format!("it does not say within {START_LIMIT:?} where it listens"))
}

/// Waits until a request is answered.
fn answering(mut server: Server) -> anyhow::Result<Server> {
    let request = post("/v1/systemone");
    let mut last = None;
    let address = server.address;
    let answered = interrupt::wait_for(START_LIMIT, || {
        server.expect_running()?;
        match Client::connect(address).and_then(|mut client| client.ask(&request)) {
            Ok(_) => Ok(Some(())),
            Err(error) => {
                last = Some(error);
                Ok(None)
            }
        }
    })?;
    match (answered, last) {
        (Some(()), _) => Ok(server),
        (None, Some(error)) => Err(error.context("it listens and does not answer")),
        (None, None) => bail!("it was never asked"),
    }
}

/// A folder that nginx's worker, which is another user where its master is root, may enter.
fn folder() -> anyhow::Result<TempDir> {
    use std::os::unix::fs::PermissionsExt as _;
    tempfile::Builder::new()
        .prefix("omni-jev-bench-")
        .permissions(fs::Permissions::from_mode(0o755))
        .tempdir()
        .context("cannot make a temporary folder")
}

fn create(path: &Path) -> anyhow::Result<File> {
    File::create(path).with_context(|| format!("cannot write {}", path.display()))
}

/// The last line of a program's output, for an error.
fn tail(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.trim_end()
        .lines()
        .next_back()
        .unwrap_or("nothing")
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_frontends_address_is_found_and_not_the_admin_listeners() {
        let line = |listener: &str| {
            format!(
                r#"{{"level":"INFO","fields":{{"message":"listening","listener":"{listener}","address":"127.0.0.1:41"}}}}"#
            )
        };
        let expected = "127.0.0.1:41".parse().unwrap();
        assert_eq!(listening_address(&line("frontend")), Some(expected));
        assert_eq!(listening_address(&line("admin")), None);
        assert_eq!(listening_address("not JSON"), None);
    }

    #[test]
    fn the_address_may_stand_beside_the_level_too() {
        let line = r#"{"message":"listening","listener":"frontend","address":"[::1]:41"}"#;
        assert_eq!(listening_address(line), Some("[::1]:41".parse().unwrap()));
    }
}
