//! The frontend as a process of its own, so that its memory is nobody else's.

use std::io::{self, BufRead as _, BufReader, Read as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use omni_jev_frontend::{Backend, Config, Frontend, Registry};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::plan::{BACKEND_TIMEOUT, MAX_ANSWER};

pub(crate) fn config() -> Config {
    let free = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    Config {
        bind: free,
        admin_bind: Some(free),
        backend_timeout: BACKEND_TIMEOUT,
        pool_idle: Duration::from_secs(1),
        max_response_bytes: MAX_ANSWER,
        ..Config::default()
    }
}

/// Serves until its standard input ends.
pub(crate) fn serve(backend: &str) -> Result<(), String> {
    let endpoint = format!("http://{backend}")
        .parse()
        .map_err(|error| format!("{error}"))?;
    let (_state, seen) = tokio::sync::watch::channel(Backend::ready(endpoint, 1));
    let frontend =
        Frontend::start(config(), seen, Registry::default()).map_err(|error| error.to_string())?;
    let admin = frontend.admin_address().ok_or("no admin pages")?;
    println!("{} {admin}", frontend.address());
    let mut rest = Vec::new();
    io::stdin()
        .read_to_end(&mut rest)
        .map_err(|error| error.to_string())?;
    Ok(())
}

/// Ends with this value.
pub(crate) struct Process {
    child: Child,
    pub(crate) address: SocketAddr,
    admin: SocketAddr,
}

impl Process {
    pub(crate) fn start(backend: SocketAddr) -> io::Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .arg("--serve")
            .arg(backend.to_string())
            // Without it, what is free goes back to the system only while there is
            // work to do, and what is left in use cannot be seen. macOS has none.
            .env("_RJEM_MALLOC_CONF", "background_thread:true")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        if let Some(output) = child.stdout.take() {
            BufReader::new(output).read_line(&mut line)?;
        }
        let mut addresses = line.split_whitespace().map(str::parse);
        match (addresses.next(), addresses.next()) {
            (Some(Ok(address)), Some(Ok(admin))) => Ok(Self {
                child,
                address,
                admin,
            }),
            _ => Err(io::Error::other("the frontend did not start")),
        }
    }

    /// Bytes of memory that it has in use.
    pub(crate) fn resident(&self) -> Result<u64, String> {
        let output = Command::new("ps")
            .args(["-o", "rss=", "-p", &self.child.id().to_string()])
            .output()
            .map_err(|error| format!("ps: {error}"))?;
        let kib: u64 = String::from_utf8_lossy(&output.stdout)
            .trim()
            .parse()
            .map_err(|_| "the frontend is gone".to_owned())?;
        Ok(kib * 1024)
    }

    /// One of its metrics, by its name without what all have in common.
    pub(crate) async fn metric(&self, name: &str) -> Result<String, String> {
        let page = page(self.admin).await.map_err(|error| error.to_string())?;
        let whole = format!("omni_jev_frontend_{name} ");
        page.lines()
            .find_map(|line| line.strip_prefix(whole.as_str()))
            .map(str::to_owned)
            .ok_or(format!("there is no metric {name}"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

async fn page(admin: SocketAddr) -> io::Result<String> {
    let mut stream = TcpStream::connect(admin).await?;
    stream
        .write_all(b"GET /metrics HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n")
        .await?;
    let mut page = String::new();
    stream.read_to_string(&mut page).await?;
    Ok(page)
}
