//! Clients that know what they should get.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::backend::{header, request_body};
use super::plan::{Expected, Plan};

/// Longer than any request here may take; one that takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(30);

/// What came of all requests.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// How often each plan was carried out with the right outcome.
    pub(crate) right: BTreeMap<Plan, u64>,
    pub(crate) wrong: u64,
    pub(crate) hung: u64,
    /// The first few outcomes that were not right.
    pub(crate) examples: Vec<String>,
}

/// Sends `requests` in all over `connections` at once.
pub(crate) async fn run(frontend: SocketAddr, requests: u64, connections: u64, seed: u64) -> Tally {
    let tally = Arc::new(Mutex::new(Tally::default()));
    let next = Arc::new(AtomicU64::new(0));
    let mut clients = tokio::task::JoinSet::new();
    for client in 0..connections {
        let (tally, next) = (Arc::clone(&tally), Arc::clone(&next));
        let mut random = fastrand::Rng::with_seed(seed.wrapping_add(client));
        clients.spawn(async move {
            let mut kept = None;
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= requests {
                    return;
                }
                let plan = Plan::draw(&mut random);
                let asking = ask(frontend, &mut kept, plan, number, &mut random);
                let outcome = tokio::time::timeout(PATIENCE, asking).await;
                tally
                    .lock()
                    .expect("not poisoned")
                    .count(plan, number, outcome);
                if random.u32(0..50) == 0 {
                    kept = None;
                }
            }
        });
    }
    while clients.join_next().await.is_some() {}
    std::mem::take(&mut tally.lock().expect("not poisoned"))
}

impl Tally {
    fn count(
        &mut self,
        plan: Plan,
        number: u64,
        outcome: Result<io::Result<Result<(), String>>, tokio::time::error::Elapsed>,
    ) {
        let why = match outcome {
            Ok(Ok(Ok(()))) => {
                *self.right.entry(plan).or_default() += 1;
                return;
            }
            Ok(Ok(Err(why))) => why,
            Ok(Err(error)) => format!("the connection failed: {error}"),
            Err(_) => {
                self.hung += 1;
                format!("no answer in {PATIENCE:?}")
            }
        };
        self.wrong += 1;
        if self.examples.len() < 20 {
            self.examples.push(format!("{plan:?} {number}: {why}"));
        }
    }
}

/// One request and, unless the client is to leave, its answer: right, or why not.
async fn ask(
    frontend: SocketAddr,
    kept: &mut Option<TcpStream>,
    plan: Plan,
    number: u64,
    random: &mut fastrand::Rng,
) -> io::Result<Result<(), String>> {
    let mut stream = match kept.take() {
        Some(stream) => stream,
        None => TcpStream::connect(frontend).await?,
    };
    stream.set_nodelay(true)?;
    let body = request_body(number);
    let head = format!(
        "POST /chaos HTTP/1.1\r\nhost: h\r\nx-plan: {}\r\nx-number: {number}\r\n\
         content-length: {}\r\n\r\n",
        plan.name(),
        body.len() + usize::from(plan == Plan::ClientLeavesEarly),
    );
    stream.write_all(&[head.as_bytes(), &body].concat()).await?;
    if plan.expected() == Expected::Nothing {
        tokio::time::sleep(Duration::from_millis(random.u64(0..20))).await;
        return Ok(Ok(()));
    }
    let (head, body) = read(&mut stream).await?;
    if header(&head, "connection").is_none() {
        *kept = Some(stream);
    }
    Ok(judge(plan, number, &head, &body))
}

async fn read(stream: &mut TcpStream) -> io::Result<(Vec<u8>, Vec<u8>)> {
    let mut buffer = Vec::new();
    loop {
        if let Some(head) = buffer.windows(4).position(|part| part == b"\r\n\r\n") {
            let length: usize = header(&buffer[..head], "content-length")
                .and_then(|text| text.parse().ok())
                .ok_or_else(|| io::Error::other("the answer has no length"))?;
            let mut body = buffer.split_off(head + 4);
            let have = body.len();
            if have > length {
                return Err(io::Error::other("bytes follow the answer"));
            }
            body.resize(length, 0);
            stream.read_exact(&mut body[have..]).await?;
            return Ok((buffer, body));
        }
        if stream.read_buf(&mut buffer).await? == 0 {
            return Err(io::Error::other("closed without an answer"));
        }
    }
}

fn judge(plan: Plan, number: u64, head: &[u8], body: &[u8]) -> Result<(), String> {
    let status: u16 = String::from_utf8_lossy(head)
        .get(9..12)
        .and_then(|text| text.parse().ok())
        .unwrap_or(0);
    let is_right = match plan.expected() {
        Expected::Answer(expected) => status == expected && body == plan.body(number),
        Expected::Error(expected) => {
            status == expected && body.starts_with(b"{\"detail\":{\"error_type\":")
        }
        Expected::Nothing => false,
    };
    if is_right && header(head, "x-request-id").is_some() {
        Ok(())
    } else {
        let shown = String::from_utf8_lossy(&body[..body.len().min(200)]).into_owned();
        Err(format!("{:?} but {status}: {shown}", plan.expected()))
    }
}
