//! omni-jev as a process of its own, as people run it.

use std::collections::HashMap;
use std::io::{self, BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};

use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::plan::{BACKEND_TIMEOUT, MAX_ANSWER};

/// Ends with this value.
pub(crate) struct Process {
    child: Child,
    pub(crate) address: SocketAddr,
    admin: SocketAddr,
}

impl Process {
    pub(crate) fn start(binary: &Path, backend: SocketAddr) -> io::Result<Self> {
        let mut child = Command::new(binary)
            .env("OMNI_JEV_BIND", "127.0.0.1:0")
            .env("OMNI_JEV_ADMIN_BIND", "127.0.0.1:0")
            .env("OMNI_JEV_BACKEND_URL", format!("http://{backend}"))
            .env(
                "OMNI_JEV_BACKEND_TIMEOUT",
                format!("{}ms", BACKEND_TIMEOUT.as_millis()),
            )
            .env("OMNI_JEV_MAX_RESPONSE_BYTES", MAX_ANSWER.to_string())
            .env("OMNI_JEV_LOG", "info")
            .env("OMNI_JEV_LOG_FORMAT", "json")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()?;
        let mut log = BufReader::new(child.stderr.take().ok_or(io::ErrorKind::BrokenPipe)?);
        match listeners(&mut log) {
            Ok((address, admin)) => {
                // A line for each request, which somebody has to take.
                std::thread::spawn(move || io::copy(&mut log, &mut io::sink()));
                Ok(Self {
                    child,
                    address,
                    admin,
                })
            }
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                Err(error)
            }
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

/// Where it listens, for clients and for its admin pages, as its log says.
fn listeners(log: &mut BufReader<ChildStderr>) -> io::Result<(SocketAddr, SocketAddr)> {
    let mut found = HashMap::new();
    for line in log.lines() {
        let line: Value = serde_json::from_str(&line?)?;
        if let (Some(listener), Some(Ok(address))) = (
            line["listener"].as_str(),
            line["address"].as_str().map(str::parse),
        ) {
            found.insert(listener.to_owned(), address);
        }
        if let (Some(&address), Some(&admin)) = (found.get("frontend"), found.get("admin")) {
            return Ok((address, admin));
        }
    }
    Err(io::Error::other("omni-jev did not start"))
}
