//! Which memory allocator the program has.
//!
//! jemalloc serves more requests a second than the C library's allocator, from less memory, and gives memory
//! back after large bodies. It needs `make` where it is built, so it is an option: `cargo xtask` turns it on
//! wherever it can be built. Its settings stand in `.cargo/config.toml`, since it reads them before `main`.

use omni_jev_frontend::Registry;
use prometheus_client::metrics::info::Info;

#[cfg(all(feature = "jemalloc", target_os = "linux"))]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// The allocator's name, for the log and the metrics.
pub(crate) const NAME: &str = if cfg!(all(feature = "jemalloc", target_os = "linux")) {
    "jemalloc"
} else {
    "system"
};

/// Adds `omni_jev_build_info`, with the version and the allocator.
pub(crate) fn register(registry: &mut Registry) {
    let labels = vec![("version", env!("CARGO_PKG_VERSION")), ("allocator", NAME)];
    registry.register("omni_jev_build", "What this program is", Info::new(labels));
}
