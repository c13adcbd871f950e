//! What the frontend forwards to, and who tells it of each: one backend, or several lanes.

use std::sync::Arc;

use omni_jev_frontend::{
    Backend, Config, CountTokens, Frontend, LaneBackend, LaneSpec, Limits, Prior, Registry,
    StartError,
};
use tokio::sync::watch;
use tracing::{info, warn};

use crate::settings::{Lane, Settings};
use crate::team::Team;
use crate::worker;

/// The backends in the order in which the frontend has them, and whether it chooses between them.
pub(crate) struct Backends {
    members: Vec<Member>,
    has_lanes: bool,
}

/// One of them.
struct Member {
    /// Its place among the workers, if it is one.
    worker: Option<usize>,
    lane: Lane,
    state: watch::Sender<Backend>,
}

impl Backends {
    /// Those of the settings, before anything is known of a worker.
    pub(crate) fn of(settings: &Settings) -> Self {
        let lanes = match &settings.backend_url {
            Some(url) => vec![(0, only(url.clone()))],
            None => settings.lanes(),
        };
        let members = lanes.into_iter().map(|(place, lane)| {
            let (worker, first) = match &lane.url {
                Some(url) => (None, Backend::ready(url.clone(), 1)),
                None => (Some(place), worker::not_started()),
            };
            Member {
                worker,
                lane,
                state: watch::channel(first).0,
            }
        });
        Self {
            members: members.collect(),
            has_lanes: settings.has_lanes(),
        }
    }

    /// The places of the workers that answer requests.
    pub(crate) fn workers(&self) -> Vec<usize> {
        self.members
            .iter()
            .filter_map(|member| member.worker)
            .collect()
    }

    /// Starts a frontend before them.
    pub(crate) fn frontend(
        &self,
        config: Config,
        counter: Option<Arc<dyn CountTokens>>,
        registry: Registry,
    ) -> Result<Frontend, StartError> {
        if self.has_lanes {
            let lanes = self.members.iter().map(|member| LaneBackend {
                spec: LaneSpec {
                    helps: member.lane.helps,
                    prior: member.lane.prior.clone(),
                    ..LaneSpec::new(&member.lane.name, member.lane.limits)
                },
                measured: member.lane.measured.clone(),
                backend: member.state.subscribe(),
            });
            return Frontend::start_lanes(config, lanes.collect(), counter, registry);
        }
        let only = self.members.first().ok_or(StartError::NoLane)?;
        Frontend::start(config, only.state.subscribe(), registry)
    }

    /// Says what is forwarded where, as far as it is not a worker's own story.
    pub(crate) fn log(&self) {
        for Member { lane, worker, .. } in &self.members {
            let Lane {
                name,
                limits,
                helps,
                url,
                measured,
                ..
            } = lane;
            match url {
                Some(url) if !self.has_lanes => {
                    info!(backend = %url, "forwarding to a backend that is not supervised");
                }
                _ if !self.has_lanes => {}
                _ => info!(
                    lane = name,
                    backend = url.as_ref().map(ToString::to_string),
                    supervised = worker.is_some(),
                    max_tokens = limits.max_tokens,
                    max_questions = limits.max_questions,
                    helps,
                    measured = measured.is_some(),
                    "a lane"
                ),
            }
        }
    }

    /// Says so where some requests have no lane: each is told, but who set it up may not have meant it.
    pub(crate) fn warn_of_gaps(&self) {
        let has_all = |member: &Member| member.lane.helps || !member.lane.limits.any();
        if self.has_lanes && !self.members.iter().any(has_all) {
            warn!("no lane takes every decision: what is beyond the limits of all is answered 422");
        }
    }

    /// Keeps the frontend told of the workers, and their supervisors of the requests.
    pub(crate) fn wire(&self, team: &Team, frontend: &Frontend) {
        for (place, member) in self.members.iter().enumerate() {
            let supervision = member.worker.and_then(|worker| team.supervision(worker));
            if let (Some(supervision), Some(requests)) =
                (supervision, frontend.lane_requests(place))
            {
                tokio::spawn(worker::wire(supervision, member.state.clone(), requests));
            }
        }
    }

    /// The first of them that is ready, or the first one if none is.
    pub(crate) fn any(&self) -> watch::Receiver<Backend> {
        let mut seen: Vec<_> = self
            .members
            .iter()
            .map(|member| member.state.subscribe())
            .collect();
        if seen.len() == 1 {
            return seen.swap_remove(0);
        }
        let (any, receiver) = watch::channel(best(&mut seen));
        tokio::spawn(async move {
            loop {
                let changes = seen.iter_mut().map(|backend| Box::pin(backend.changed()));
                if first_of(changes.collect()).await.is_err() {
                    return;
                }
                any.send_replace(best(&mut seen));
            }
        });
        receiver
    }
}

fn only(url: omni_jev_frontend::Endpoint) -> Lane {
    Lane {
        name: "backend".to_owned(),
        limits: Limits::NONE,
        helps: false,
        prior: Prior::built_in(),
        measured: None,
        url: Some(url),
    }
}

fn best(backends: &mut [watch::Receiver<Backend>]) -> Backend {
    let mut now = backends
        .iter_mut()
        .map(|backend| backend.borrow_and_update().clone());
    let first = now.next();
    let ready = first.iter().cloned().chain(now).find(Backend::is_ready);
    ready.or(first).unwrap_or_else(worker::not_started)
}

/// The first of several futures to end.
pub(crate) async fn first_of<F: Future + Unpin>(mut all: Vec<F>) -> F::Output {
    std::future::poll_fn(move |cx| {
        let ended = all
            .iter_mut()
            .find_map(|each| match std::pin::Pin::new(each).poll(cx) {
                std::task::Poll::Ready(output) => Some(output),
                std::task::Poll::Pending => None,
            });
        ended.map_or(std::task::Poll::Pending, std::task::Poll::Ready)
    })
    .await
}
