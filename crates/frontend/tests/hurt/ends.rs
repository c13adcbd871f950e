//! The last moments of a listener.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use omni_jev_frontend::Config;

use crate::support::*;

/// How one connection went that was opened while the frontend drained.
enum Ended {
    Answered,
    /// It never was a connection.
    Refused,
    /// It was one, and got no answer.
    Lost(ErrorKind),
}

fn once(address: SocketAddr) -> Ended {
    let Ok(mut stream) = TcpStream::connect_timeout(&address, PATIENCE) else {
        return Ended::Refused;
    };
    let mut answer = [0; 12];
    let outcome = stream
        .write_all(post("/", "x").as_bytes())
        .and_then(|()| stream.set_read_timeout(Some(PATIENCE)))
        .and_then(|()| stream.read_exact(&mut answer));
    match outcome {
        Ok(()) if &answer == b"HTTP/1.1 200" => Ended::Answered,
        Ok(()) => Ended::Lost(ErrorKind::Other),
        Err(error) => Ended::Lost(error.kind()),
    }
}

#[test]
#[cfg_attr(
    not(any(target_os = "linux", target_os = "android")),
    ignore = "only there can a listener be closed without such a window"
)]
fn no_connection_is_lost_between_the_last_accept_and_the_close() {
    let backend = RawBackend::answering(OK);
    // Side by side: a client that comes too late waits a second to be refused.
    std::thread::scope(|scope| {
        for _ in 0..10 {
            scope.spawn(|| drain_under_load(&backend));
        }
    });
}

fn drain_under_load(backend: &RawBackend) {
    let config = Config {
        drain_grace: Duration::from_millis(5),
        ..config()
    };
    let fixture = start(config, backend.ready());
    let address = fixture.frontend.address();
    let answered = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                loop {
                    match once(address) {
                        Ended::Answered => answered.fetch_add(1, Ordering::Relaxed),
                        Ended::Refused => return,
                        Ended::Lost(how) => panic!("a request was lost: {how}"),
                    };
                }
            });
        }
        eventually("there is load", || answered.load(Ordering::Relaxed) > 20);
        fixture.frontend.drain();
    });
}
