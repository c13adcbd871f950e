//! The same cases before nginx, where it is installed, so that nothing here is
//! stranger than it has to be: each difference has its reason beside its case.
//!
//! The reasons are nginx 1.22's. What another version does otherwise is told, but
//! is no fault of this repository.

use std::io::Write as _;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::support::{Client, OK, PATIENCE, RawBackend, Request, eventually};
use crate::{Found, Outcome, all};

/// What nginx does with a case.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Nginx {
    /// The same, but for the words of a refusal and what becomes of its connection.
    Same,
    /// Something else, and why neither has to become like the other.
    Differs(Outcome, &'static str),
}

/// nginx with the limits of the corpus. It ends with this.
struct Server {
    child: Child,
    address: SocketAddr,
    /// As it calls itself: `nginx/1.22.1`.
    version: String,
    _folder: tempfile::TempDir,
}

impl Server {
    /// `None` where nginx is not installed.
    fn start(backend: SocketAddr) -> Option<Self> {
        let (program, version) = ["nginx", "/usr/sbin/nginx"]
            .into_iter()
            .find_map(|program| Some((program, version(program)?)))?;
        let folder = tempfile::tempdir().expect("makes a folder");
        let address = free_address();
        let file = folder.path().join("nginx.conf");
        std::fs::write(&file, settings(folder.path(), address, backend)).expect("writes");
        let mut child = Command::new(program)
            .arg("-c")
            .arg(&file)
            .arg("-p")
            .arg(folder.path())
            .arg("-e")
            .arg(folder.path().join("error.log"))
            .stdin(Stdio::null())
            .spawn()
            .expect("nginx starts");
        eventually("nginx listens", || {
            assert!(child.try_wait().unwrap().is_none(), "nginx ended at once");
            TcpStream::connect(address).is_ok()
        });
        Some(Self {
            child,
            address,
            version,
            _folder: folder,
        })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // One process, without a master: nothing is left behind.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn version(program: &str) -> Option<String> {
    let said = Command::new(program).arg("-v").output().ok()?.stderr;
    let said = String::from_utf8_lossy(&said);
    said.split_whitespace()
        .find(|word| word.starts_with("nginx/"))
        .map(str::to_owned)
}

/// nginx cannot say which free port it took, so it is told one.
fn free_address() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("binds");
    listener.local_addr().expect("has an address")
}

fn settings(folder: &Path, address: SocketAddr, backend: SocketAddr) -> String {
    let folder = folder.display();
    format!(
        "daemon off; master_process off; worker_processes 1; pid {folder}/pid;
         error_log {folder}/error.log;
         events {{ worker_connections 256; }}
         http {{
           access_log off;
           client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
           fastcgi_temp_path {folder}/fastcgi; uwsgi_temp_path {folder}/uwsgi;
           scgi_temp_path {folder}/scgi;
           client_max_body_size 1000;
           client_header_buffer_size 1k; large_client_header_buffers 4 1k;
           client_header_timeout 500ms; client_body_timeout 500ms; keepalive_timeout 500ms;
           lingering_timeout 300ms;
           upstream backend {{ server {backend}; keepalive 4; }}
           server {{
             listen {address};
             location / {{
               proxy_pass http://backend;
               proxy_http_version 1.1;
               proxy_set_header Connection \"\";
               proxy_set_header Host $http_host;
             }}
           }}
         }}"
    )
}

#[test]
fn nginx_does_the_same_or_the_difference_has_a_reason() {
    let backend = RawBackend::answering(OK);
    let Some(server) = Server::start(backend.address) else {
        // Past the test runner, which shows nothing of a test that passes.
        let _ = writeln!(
            std::io::stderr(),
            "skipped: {} cases not compared with nginx, which is not installed",
            all().count()
        );
        return;
    };
    let mut wrong = Vec::new();
    let mut differing = 0;
    for case in all() {
        let expected = match case.nginx {
            Nginx::Same => case.outcome,
            Nginx::Differs(outcome, why) => {
                assert!(!why.is_empty(), "{}", case.name);
                differing += 1;
                outcome
            }
        };
        let before = backend.seen().len();
        let mut client = Client::connect(server.address);
        let found = crate::converse(&mut client, case.send, expected.before());
        let forwarded = backend.seen().split_off(before);
        if let Err(found) = agrees(expected, found, &forwarded) {
            wrong.push(format!("{}: {found}, not {expected:?}", case.name));
        }
    }
    let (version, count) = (&server.version, wrong.len());
    let wrong = wrong.join("\n");
    assert!(
        count == 0 || !version.starts_with("nginx/1.22."),
        "{version} does {count} otherwise:\n{wrong}"
    );
    let _ = writeln!(
        std::io::stderr(),
        "compared with {version}: {} cases, {differing} known to differ, {count} other differences\n{wrong}",
        all().count()
    );
}

/// nginx may keep a connection after a refusal, so that is not compared.
fn agrees(expected: Outcome, found: Found, forwarded: &[Request]) -> Result<(), String> {
    expected.check(
        Found {
            closed: true,
            ..found
        },
        forwarded,
    )
}

#[test]
fn a_difference_is_one() {
    for case in all() {
        if let Nginx::Differs(outcome, _) = case.nginx {
            assert_ne!(
                format!("{outcome:?}"),
                format!("{:?}", case.outcome),
                "{}",
                case.name
            );
        }
    }
    assert!(PATIENCE.as_millis() > 500, "nginx's limits are shorter");
}
