//! What systemd is told (`sd_notify(3)`), where the service is of `Type=notify`: one datagram for each change, to the
//! socket that `NOTIFY_SOCKET` names. Without that variable nothing is sent.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Arc;

use omni_jev_frontend::Backend;
use omni_jev_supervisor::{Handle, WorkerState, WorkerStatus};
use tokio::sync::watch;

use crate::backends::first_of;

/// How much more time a start that makes progress asks for, in microseconds: as long as a worker may be without any.
const MORE_TIME: u64 = 600_000_000;

/// Clones send to the same socket.
#[derive(Debug, Clone)]
pub(crate) struct Notifier(Option<Arc<Socket>>);

#[derive(Debug)]
struct Socket {
    from: UnixDatagram,
    to: SocketAddr,
}

impl Notifier {
    /// To the socket that the environment names. One that cannot be used is said in the log and then left alone: a
    /// service that works is worth more than a manager that knows it.
    pub(crate) fn from_environment() -> Self {
        let Some(name) = std::env::var_os("NOTIFY_SOCKET").filter(|name| !name.is_empty()) else {
            return Self(None);
        };
        let socket = address(&name).and_then(|to| Ok((UnixDatagram::unbound()?, to)));
        match socket {
            Ok((from, to)) => Self(Some(Arc::new(Socket { from, to }))),
            Err(error) => {
                tracing::warn!(%error, "NOTIFY_SOCKET cannot be used: the service manager is told nothing");
                Self(None)
            }
        }
    }

    /// The service can be used.
    pub(crate) fn ready(&self) {
        self.send("READY=1\nSTATUS=ready");
    }

    /// The service ends.
    pub(crate) fn stopping(&self) {
        self.send("STOPPING=1\nSTATUS=finishing what is in flight");
    }

    /// Tells each change of the status of the workers that answer, and the first time that one of them is ready, as
    /// `/readyz` does: after the frontend has been told so, since whoever hears it sends a request at once.
    pub(crate) async fn follow(
        self,
        workers: Vec<watch::Receiver<Handle>>,
        mut frontend: watch::Receiver<Backend>,
    ) {
        if self.0.is_none() {
            return;
        }
        let mut workers: Vec<_> = workers.into_iter().map(Followed::new).collect();
        let (mut ready, mut last) = (false, String::new());
        loop {
            let now: Vec<_> = workers.iter_mut().map(Followed::look).collect();
            let serving = now.iter().any(|worker| worker.state.is_serving());
            let message = summary(&now);
            if message != last {
                if serving && !ready && frontend.wait_for(Backend::is_ready).await.is_err() {
                    return;
                }
                let start = match (ready, serving) {
                    (false, true) => "READY=1\n".to_owned(),
                    (false, false) => format!("EXTEND_TIMEOUT_USEC={MORE_TIME}\n"),
                    (true, _) => String::new(),
                };
                ready |= serving;
                self.send(&format!("{start}STATUS={message}"));
                last = message;
            }
            let changes = workers.iter_mut().map(|worker| Box::pin(worker.changed()));
            if first_of(changes.collect()).await.is_err() {
                return;
            }
        }
    }

    fn send(&self, text: &str) {
        if let Some(socket) = &self.0
            && let Err(error) = socket.from.send_to_addr(text.as_bytes(), &socket.to)
        {
            tracing::warn!(%error, "the service manager cannot be told of a change");
        }
    }
}

/// A worker's status, under whichever supervision it is.
struct Followed {
    handles: watch::Receiver<Handle>,
    status: watch::Receiver<WorkerStatus>,
}

impl Followed {
    fn new(mut handles: watch::Receiver<Handle>) -> Self {
        let status = handles.borrow_and_update().status();
        Self { handles, status }
    }

    fn look(&mut self) -> WorkerStatus {
        self.status.borrow_and_update().clone()
    }

    /// Waits for another status; an error when nobody supervises it any more.
    async fn changed(&mut self) -> Result<(), watch::error::RecvError> {
        tokio::select! {
            Ok(()) = self.status.changed() => return Ok(()),
            changed = self.handles.changed() => changed?,
        }
        self.status = self.handles.borrow_and_update().status();
        Ok(())
    }
}

/// One worker's own words, or which of several are not as they should be.
fn summary(workers: &[WorkerStatus]) -> String {
    if let [only] = workers {
        return only.message.clone();
    }
    let others = workers.iter().filter(|it| it.state != WorkerState::Ready);
    let others = others.map(|worker| format!("{}: {}", worker.name, worker.message));
    let others = others.collect::<Vec<_>>().join("; ");
    if others.is_empty() {
        "all lanes are ready".to_owned()
    } else if workers.iter().any(|it| it.state.is_serving()) {
        format!("ready, except {others}")
    } else {
        others
    }
}

/// A path, or after an `@` a name of Linux's own namespace for sockets.
fn address(name: &OsString) -> std::io::Result<SocketAddr> {
    #[cfg(target_os = "linux")]
    if let Some(abstract_name) = name.as_bytes().strip_prefix(b"@") {
        use std::os::linux::net::SocketAddrExt as _;
        return SocketAddr::from_abstract_name(abstract_name);
    }
    #[cfg(not(target_os = "linux"))]
    let _ = name.as_bytes();
    SocketAddr::from_pathname(name)
}
