//! Whom an `https://` backend has to be vouched for by.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::{self, ClientConfig, RootCertStore};

/// Why no roots could be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RootsError {
    /// The platform has none, or none that can be read.
    #[error("the platform has no certificate roots to check an https backend by{0}")]
    Platform(String),
    /// The file has none, or cannot be read.
    #[error("{} holds no readable certificate (PEM)", .0.display())]
    File(PathBuf),
    /// The library refuses its own settings.
    #[error("TLS cannot be set up: {0}")]
    Library(#[from] rustls::Error),
}

/// Settings of TLS with the platform's roots, or those of `file` alone.
pub(crate) fn load(file: Option<&Path>) -> Result<Arc<ClientConfig>, RootsError> {
    let mut roots = RootCertStore::empty();
    if let Some(file) = file {
        let unreadable = || RootsError::File(file.to_owned());
        let certificates = CertificateDer::pem_file_iter(file).map_err(|_| unreadable())?;
        for certificate in certificates {
            let certificate = certificate.map_err(|_| unreadable())?;
            roots.add(certificate).map_err(|_| unreadable())?;
        }
        if roots.is_empty() {
            return Err(unreadable());
        }
    } else {
        let platform = rustls_native_certs::load_native_certs();
        // One that cannot be parsed is the platform's matter; the others still count.
        let _ = roots.add_parsable_certificates(platform.certs);
        if roots.is_empty() {
            let why = platform
                .errors
                .iter()
                .fold(String::new(), |mut text, error| {
                    let _ = write!(text, "; {error}");
                    text
                });
            return Err(RootsError::Platform(why));
        }
    }
    let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}
