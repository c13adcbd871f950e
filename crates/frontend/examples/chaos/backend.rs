//! A backend that does what each request's plan says.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::plan::{BACKEND_TIMEOUT, MAX_ANSWER, Plan};

/// What it has seen that should not be.
#[derive(Debug, Default)]
pub(crate) struct Complaints {
    /// Requests that are not as a client sent them.
    pub(crate) malformed: Mutex<Vec<String>>,
    /// Connections that were not closed although their client had left or had been
    /// told that it took too long.
    pub(crate) kept_waiting: AtomicU64,
}

/// Listens on a free port and serves for as long as the runtime runs.
pub(crate) async fn start() -> io::Result<(SocketAddr, Arc<Complaints>)> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let complaints = Arc::new(Complaints::default());
    let shared = Arc::clone(&complaints);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let complaints = Arc::clone(&shared);
            tokio::spawn(async move {
                // Its errors are the frontend's leaving, which is what it may do.
                let _ = serve(stream, &complaints).await;
            });
        }
    });
    Ok((address, complaints))
}

struct Asked {
    plan: Plan,
    number: u64,
}

async fn serve(mut stream: TcpStream, complaints: &Complaints) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer = Vec::new();
    let mut is_kept = false;
    while let Some(request) = read(&mut stream, &mut buffer).await? {
        let Some(asked) = parse(&request) else {
            let shown = String::from_utf8_lossy(&request).into_owned();
            let mut malformed = complaints.malformed.lock().expect("not poisoned");
            malformed.push(shown);
            return Ok(());
        };
        if !act(&mut stream, &asked, is_kept, complaints).await? {
            return Ok(());
        }
        is_kept = true;
    }
    Ok(())
}

/// The next request's bytes.
async fn read(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> io::Result<Option<Vec<u8>>> {
    loop {
        if let Some(head) = buffer.windows(4).position(|part| part == b"\r\n\r\n") {
            let length: usize = header(&buffer[..head], "content-length")
                .and_then(|text| text.parse().ok())
                .unwrap_or(0);
            let whole = head + 4 + length;
            if buffer.len() >= whole {
                return Ok(Some(buffer.drain(..whole).collect()));
            }
        }
        if stream.read_buf(buffer).await? == 0 {
            return Ok(None);
        }
    }
}

pub(crate) fn header(head: &[u8], name: &str) -> Option<String> {
    let head = String::from_utf8_lossy(head);
    head.split("\r\n").skip(1).find_map(|line| {
        let (found, value) = line.split_once(':')?;
        found
            .eq_ignore_ascii_case(name)
            .then(|| value.trim().to_owned())
    })
}

/// Reads a request back into what the client meant, or finds that it is not that.
fn parse(request: &[u8]) -> Option<Asked> {
    let end = request.windows(4).position(|part| part == b"\r\n\r\n")?;
    let (head, body) = request.split_at(end + 4);
    let plan = Plan::named(&header(head, "x-plan")?)?;
    let number = header(head, "x-number")?.parse().ok()?;
    let is_right = head.starts_with(b"POST /chaos HTTP/1.1\r\n")
        && header(head, "transfer-encoding").is_none()
        && body == request_body(number);
    is_right.then_some(Asked { plan, number })
}

pub(crate) fn request_body(number: u64) -> Vec<u8> {
    let length = usize::try_from(number % 500).unwrap_or(0);
    format!("{number},").bytes().cycle().take(length).collect()
}

/// Carries out a plan; says whether the connection can carry another request.
async fn act(
    stream: &mut TcpStream,
    asked: &Asked,
    is_kept: bool,
    complaints: &Complaints,
) -> io::Result<bool> {
    let plan = asked.plan;
    let body = plan.body(asked.number);
    let length = format!("content-length: {}\r\n\r\n", body.len());
    let whole = |head: &str| [head.as_bytes(), length.as_bytes(), &body].concat();
    let ok = "HTTP/1.1 200 OK\r\n";
    match plan {
        Plan::DiesIfKept if is_kept => return Ok(false),
        Plan::ResetsIfKept if is_kept => return reset(stream),
        Plan::Plain | Plan::Large | Plan::DiesIfKept | Plan::ResetsIfKept => {
            stream.write_all(&whole(ok)).await?;
        }
        Plan::OddStatus => {
            let head = "HTTP/1.1 429 Too Many Requests\r\nretry-after: 7\r\n";
            stream.write_all(&whole(head)).await?;
        }
        Plan::Chunked => stream.write_all(&chunked(&body, "0\r\n\r\n")).await?,
        Plan::UntilClose => {
            let head = format!("{ok}connection: close\r\n\r\n");
            stream.write_all(&[head.as_bytes(), &body].concat()).await?;
            return Ok(false);
        }
        Plan::Interim => {
            let head = format!(
                "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n{ok}"
            );
            stream.write_all(&whole(&head)).await?;
        }
        Plan::InPieces => {
            for piece in whole(ok).chunks(37) {
                stream.write_all(piece).await?;
                tokio::task::yield_now().await;
            }
        }
        Plan::Late => {
            tokio::time::sleep(Duration::from_millis(asked.number % 50)).await;
            stream.write_all(&whole(ok)).await?;
        }
        Plan::ThenCloses => {
            stream.write_all(&whole(ok)).await?;
            return Ok(false);
        }
        Plan::Resets => return reset(stream),
        Plan::Extra => {
            // In one piece, so that they are seen together.
            let twice = whole(ok).repeat(2);
            stream.write_all(&twice).await?;
            return Ok(false);
        }
        Plan::Stalls | Plan::ClientLeaves => return wait_for_close(stream, complaints).await,
        Plan::StallsInHead => {
            stream.write_all(&ok.as_bytes()[..9]).await?;
            return wait_for_close(stream, complaints).await;
        }
        Plan::StallsInBody => {
            let answer = whole(ok);
            stream.write_all(&answer[..answer.len() - 1]).await?;
            return wait_for_close(stream, complaints).await;
        }
        Plan::TooLate => {
            tokio::time::sleep(BACKEND_TIMEOUT * 2).await;
            stream.write_all(&whole(ok)).await?;
            return wait_for_close(stream, complaints).await;
        }
        Plan::Closes | Plan::ClientLeavesEarly => return Ok(false),
        broken => {
            stream
                .write_all(&breakage(broken, &whole(ok), &body))
                .await?;
            return Ok(false);
        }
    }
    Ok(true)
}

/// An answer that can only be refused.
fn breakage(plan: Plan, whole: &[u8], body: &[u8]) -> Vec<u8> {
    match plan {
        Plan::CutHead => whole[..12].to_vec(),
        Plan::CutBody => whole[..whole.len() - 1].to_vec(),
        Plan::CutChunks => chunked(body, ""),
        Plan::BadChunk => chunked(body, "zz\r\n0\r\n\r\n"),
        Plan::TwoLengths => {
            b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab".to_vec()
        }
        Plan::TooLarge => {
            let head = format!(
                "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n",
                MAX_ANSWER + 1
            );
            [head.as_bytes(), body].concat()
        }
        Plan::SwitchesProtocols => {
            b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n"
                .to_vec()
        }
        _ => b"\x16\x03\x01\x02\x00 this is not HTTP\r\n\r\n".to_vec(),
    }
}

fn chunked(body: &[u8], end: &str) -> Vec<u8> {
    let mut answer = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n".to_vec();
    for chunk in body.chunks(100) {
        answer.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
        answer.extend_from_slice(chunk);
        answer.extend_from_slice(b"\r\n");
    }
    answer.extend_from_slice(end.as_bytes());
    answer
}

/// Closes with a reset rather than an end.
fn reset(stream: &TcpStream) -> io::Result<bool> {
    socket2::SockRef::from(stream).set_linger(Some(Duration::ZERO))?;
    Ok(false)
}

/// Holds the connection until the frontend lets go of it.
async fn wait_for_close(stream: &mut TcpStream, complaints: &Complaints) -> io::Result<bool> {
    let mut rest = [0; 64];
    let closed = async { while matches!(stream.read(&mut rest).await, Ok(1..)) {} };
    let patience = BACKEND_TIMEOUT + Duration::from_secs(20);
    if tokio::time::timeout(patience, closed).await.is_err() {
        complaints.kept_waiting.fetch_add(1, Ordering::Relaxed);
    }
    Ok(false)
}
