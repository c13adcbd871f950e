//! The handle: start, drain, stop.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, mpsc as sync_mpsc};
use std::thread::JoinHandle;
use std::time::Instant;

use omni_jev_lanes::CountTokens;
use prometheus_client::registry::Registry;
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::{mpsc, watch};

use crate::admit::Gate;
use crate::lanes::metrics::LaneMetrics;
use crate::lanes::trace::Trace;
use crate::lanes::{LaneBackend, Lanes};
use crate::life::Life;
use crate::listen::{self, Source};
use crate::metrics::Metrics;
use crate::shard::{self, Common};
use crate::{Backend, Config, FrontendError, Requests, StartError, admin, forward, way};

/// A running frontend. Dropping it ends everything at once.
#[derive(Debug)]
pub struct Frontend {
    address: SocketAddr,
    admin_address: Option<SocketAddr>,
    life: watch::Sender<Life>,
    /// What waits for each backend.
    requests: Vec<Requests>,
    /// Told when a lane is not the one that was measured.
    stray: Option<watch::Receiver<Option<String>>>,
    /// What each forwarding thread says at its end.
    reports: mpsc::UnboundedReceiver<Result<usize, FrontendError>>,
    threads: Vec<JoinHandle<()>>,
    /// Threads that have not reported.
    running: usize,
    abandoned: usize,
}

/// How a drain went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Drained {
    /// Connections that were still open when the time was over, and were cut off.
    pub abandoned: usize,
}

impl Frontend {
    /// Listens, then serves from its own threads until it is drained, stopped or dropped.
    ///
    /// `backend` may change at any time. `registry` is what `/metrics` shows: the
    /// caller's metrics, if it registered any, beside those of the data path.
    ///
    /// # Errors
    ///
    /// When a setting cannot work or an address cannot be listened at: known
    /// before this returns, as is the port that was taken for port 0.
    pub fn start(
        config: Config,
        backend: watch::Receiver<Backend>,
        registry: Registry,
    ) -> Result<Self, StartError> {
        Self::start_with(config, vec![backend], None, registry)
    }

    /// The same before several backends, of which each takes a part of the requests: each request
    /// goes to the lane that is chosen for it, and its answer says which that was. What is no
    /// decision goes to the first one that is ready. `counter` counts tokens on the forwarding threads;
    /// without one they are judged by the texts' lengths.
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start), and when there is no lane or the trace cannot be written.
    pub fn start_lanes(
        config: Config,
        lanes: Vec<LaneBackend>,
        counter: Option<Arc<dyn CountTokens>>,
        mut registry: Registry,
    ) -> Result<Self, StartError> {
        let trace = config.trace.as_ref().map(|path| {
            Trace::open(path).map_err(|source| StartError::Trace {
                path: path.clone(),
                source,
            })
        });
        let trace = trace.transpose()?;
        let (mut specs, mut measured, mut backends) = (Vec::new(), Vec::new(), Vec::new());
        for lane in lanes {
            specs.push(lane.spec);
            measured.push(lane.measured);
            backends.push(lane.backend);
        }
        let lanes = Arc::new(Lanes::new(specs, measured, counter, trace));
        let registered = registry.sub_registry_with_prefix("omni_jev_frontend");
        registered.register_collector(Box::new(LaneMetrics {
            chooser: lanes.chooser(),
            dropped: lanes.trace.as_ref().map(Trace::dropped),
        }));
        Self::start_with(config, backends, Some(lanes), registry)
    }

    fn start_with(
        config: Config,
        backends: Vec<watch::Receiver<Backend>>,
        lanes: Option<Arc<Lanes>>,
        mut registry: Registry,
    ) -> Result<Self, StartError> {
        config.check()?;
        if backends.is_empty() {
            return Err(StartError::NoLane);
        }
        for backend in &backends {
            check_roots(&config, &backend.borrow())?;
        }
        let (listener, address) = bind(config.bind).map_err(|source| StartError::Bind {
            address: config.bind,
            source,
        })?;
        let admin = config.admin_bind.map(|address| {
            bind(address).map_err(|source| StartError::AdminBind { address, source })
        });
        let admin = admin.transpose()?;

        let (life, life_seen) = watch::channel(Life::Serving);
        let metrics = Arc::new(Metrics::new(&mut registry));
        let config = Arc::new(config);
        let common = Common {
            gate: Arc::new(Gate::new(&config, Arc::clone(&metrics))),
            config,
            metrics,
            backends: Vec::new(),
            lanes,
            life: life_seen,
        };
        let (report, reports) = mpsc::unbounded_channel();
        let threads = common.config.threads;
        let (requests, mut signs) = way::signs(&backends, &common.config, threads);
        let mut frontend = Self {
            address,
            admin_address: admin.as_ref().map(|(_, address)| *address),
            life,
            requests,
            stray: common.lanes.as_ref().map(|lanes| lanes.stray()),
            reports,
            threads: Vec::new(),
            running: 0,
            abandoned: 0,
        };
        // An error from here on drops the handle, which ends the threads it has.
        for (number, source) in sources(listener, threads).into_iter().enumerate() {
            let common = Common {
                backends: std::mem::take(&mut signs[number]),
                ..common.clone()
            };
            frontend.start_shard(number, common, source, report.clone())?;
        }
        if let Some((listener, _)) = admin {
            let chooser = common.lanes.as_ref().map(|lanes| lanes.chooser());
            let pages = admin::Pages::new(registry, backends, chooser, common.life);
            frontend.start_admin(listener, pages)?;
        }
        Ok(frontend)
    }

    /// Where clients connect: the real port, if port 0 was asked for.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where the admin pages are, if anywhere.
    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.admin_address
    }

    /// What waits for the backend, for whoever looks after the backend's process.
    pub fn requests(&self) -> Requests {
        self.requests[0].clone()
    }

    /// What waits for one of several backends, in the order in which they were given.
    pub fn lane_requests(&self, lane: usize) -> Option<Requests> {
        self.requests.get(lane).cloned()
    }

    /// Waits until a lane turns out to serve something else than was measured there, and says what.
    pub async fn stray_profile(&self) -> String {
        if let Some(mut stray) = self.stray.clone()
            && let Ok(found) = stray.wait_for(Option::is_some).await
        {
            return found.clone().unwrap_or_default();
        }
        std::future::pending().await
    }

    /// Begins to end: `/readyz` says so at once, after the grace no connection is
    /// accepted, what is in flight is finished, and idle connections are closed.
    /// Told twice, it goes on as it was.
    pub fn drain(&self) {
        self.life.send_if_modified(|life| {
            let serving = *life == Life::Serving;
            if serving {
                *life = Life::Draining(Instant::now());
            }
            serving
        });
    }

    /// Ends at once: whatever is in flight is cut off.
    pub fn stop(&self) {
        self.life.send_replace(Life::Stopped);
    }

    /// Waits until everything has ended, after [`drain`](Self::drain) or
    /// [`stop`](Self::stop); without either, until a thread fails. May be dropped
    /// and called again.
    ///
    /// # Errors
    ///
    /// [`FrontendError::ThreadFailed`] as soon as one has, while others may still run.
    pub async fn finished(&mut self) -> Result<Drained, FrontendError> {
        while self.running > 0 {
            match self.reports.recv().await {
                Some(report) => {
                    let abandoned = report?;
                    self.running -= 1;
                    self.abandoned += abandoned;
                }
                None => return Err(FrontendError::ThreadFailed),
            }
        }
        // The admin pages answer until the very end of a drain.
        self.stop();
        for thread in self.threads.drain(..) {
            // Each has said its last word, so this does not wait.
            thread.join().map_err(|_| FrontendError::ThreadFailed)?;
        }
        Ok(Drained {
            abandoned: self.abandoned,
        })
    }

    fn start_shard(
        &mut self,
        number: usize,
        common: Common,
        source: Source,
        report: mpsc::UnboundedSender<Result<usize, FrontendError>>,
    ) -> Result<(), StartError> {
        let report = Report(report);
        self.start_thread(format!("forward-{number}"), move |runtime| {
            let abandoned = runtime.block_on(shard::run(common, source));
            // What is still open is dropped before the last word is said. A name
            // that is still being looked up is not waited for.
            runtime.shutdown_background();
            report.say(abandoned);
        })?;
        self.running += 1;
        Ok(())
    }

    fn start_admin(
        &mut self,
        listener: std::net::TcpListener,
        pages: admin::Pages,
    ) -> Result<(), StartError> {
        self.start_thread("admin".to_owned(), move |runtime| {
            runtime.block_on(admin::run(listener, pages));
            runtime.shutdown_background();
        })
    }

    /// Starts a thread with a runtime of its own; an error of either is given back.
    fn start_thread(
        &mut self,
        name: String,
        work: impl FnOnce(tokio::runtime::LocalRuntime) + Send + 'static,
    ) -> Result<(), StartError> {
        let (ready, started) = sync_mpsc::channel();
        let thread = std::thread::Builder::new()
            .name(name)
            .spawn(move || {
                let runtime = Builder::new_current_thread()
                    .enable_all()
                    .build_local(LocalOptions::default());
                match runtime {
                    Ok(runtime) => {
                        let _ = ready.send(Ok(()));
                        work(runtime);
                    }
                    Err(error) => {
                        let _ = ready.send(Err(error));
                    }
                }
            })
            .map_err(StartError::Thread)?;
        self.threads.push(thread);
        let gone = |_| io::Error::other("it ended at once");
        started
            .recv()
            .map_err(gone)
            .and_then(|started| started)
            .map_err(StartError::Thread)
    }
}

/// A forwarding thread's last word, said by its panic if by nothing else.
struct Report(mpsc::UnboundedSender<Result<usize, FrontendError>>);

impl Report {
    fn say(&self, abandoned: usize) {
        let _ = self.0.send(Ok(abandoned));
    }
}

impl Drop for Report {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = self.0.send(Err(FrontendError::ThreadFailed));
        }
    }
}

impl Drop for Frontend {
    fn drop(&mut self) {
        self.stop();
    }
}

fn bind(address: SocketAddr) -> io::Result<(std::net::TcpListener, SocketAddr)> {
    let listener = listen::bind(address)?;
    let address = listener.local_addr()?;
    Ok((listener, address))
}

/// The first thread listens and hands the others their share.
fn sources(listener: std::net::TcpListener, threads: usize) -> Vec<Source> {
    let (senders, receivers): (Vec<_>, Vec<_>) =
        (1..threads).map(|_| mpsc::unbounded_channel()).unzip();
    let first = Source::Listener {
        listener,
        others: senders,
    };
    std::iter::once(first)
        .chain(receivers.into_iter().map(Source::Other))
        .collect()
}

/// Roots that cannot be read stop the start, not the first request.
fn check_roots(config: &Config, backend: &Backend) -> Result<(), StartError> {
    let is_tls = matches!(backend, Backend::Ready { endpoint, .. } if endpoint.is_tls());
    if is_tls || config.backend_roots.is_some() {
        forward::load_roots(config.backend_roots.as_deref())
            .map_err(|error| StartError::Roots(error.to_string()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_panics_says_so_at_once() {
        let (sender, mut reports) = mpsc::unbounded_channel();
        let _other = sender.clone();
        let thread = std::thread::spawn(|| {
            let _report = Report(sender);
            panic!("brought in by the test");
        });
        assert!(thread.join().is_err());
        assert_eq!(reports.try_recv(), Ok(Err(FrontendError::ThreadFailed)));
    }
}
