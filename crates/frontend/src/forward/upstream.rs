//! The backend as one thread sees it.

use std::time::Duration;

use http::header::HeaderValue;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

use super::roots;
use crate::{Backend, Config, Endpoint};

/// Where requests go, or what their clients are told.
pub(crate) enum Upstream {
    Ready(Target),
    Unavailable {
        message: String,
        retry_after: Duration,
    },
}

/// All that is needed to connect and to write a request, worked out once.
pub(crate) struct Target {
    pub(crate) endpoint: Endpoint,
    pub(crate) generation: u64,
    pub(crate) prefix: String,
    pub(crate) host: HeaderValue,
    pub(crate) tls: Option<Tls>,
}

pub(crate) struct Tls {
    pub(crate) connector: TlsConnector,
    pub(crate) name: ServerName<'static>,
}

impl Upstream {
    pub(crate) fn new(backend: &Backend, config: &Config) -> Self {
        match backend {
            Backend::Unavailable {
                message,
                retry_after,
                ..
            } => Self::Unavailable {
                message: message.clone(),
                retry_after: *retry_after,
            },
            Backend::Ready {
                endpoint,
                generation,
                ..
            } => match Target::new(endpoint, *generation, config) {
                Ok(target) => Self::Ready(target),
                Err(error) => {
                    tracing::error!(%error, "the backend cannot be used");
                    Self::Unavailable {
                        message: "The backend's address cannot be used; the log says why."
                            .to_owned(),
                        retry_after: Duration::from_secs(10),
                    }
                }
            },
        }
    }
}

impl Target {
    /// Whether it is behind a Unix socket, as a worker is.
    pub(crate) fn is_unix(&self) -> bool {
        self.endpoint.socket_path().is_some()
    }

    fn new(
        endpoint: &Endpoint,
        generation: u64,
        config: &Config,
    ) -> Result<Self, Box<dyn std::error::Error>> {
        let tls = match endpoint.host() {
            Some(host) if endpoint.is_tls() => Some(Tls {
                connector: TlsConnector::from(roots::load(config.backend_roots.as_deref())?),
                name: ServerName::try_from(host.to_owned())?,
            }),
            _ => None,
        };
        Ok(Self {
            generation,
            prefix: endpoint.prefix().to_owned(),
            host: HeaderValue::from_str(endpoint.host_header())?,
            endpoint: endpoint.clone(),
            tls,
        })
    }
}
