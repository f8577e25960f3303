//! A slow way to a replica: a TCP relay that holds back what comes from it.

use std::{
    error::Error,
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::mpsc,
    task::{JoinHandle, JoinSet},
    time::Instant,
};

/// What is read from a replica at once.
const CHUNK: usize = 16 << 10;

/// Chunks on their way: more than the largest answer of any case, so that the delay is a delay
/// and not a bandwidth.
const IN_FLIGHT: usize = 1 << 10;

/// Passes on what both sides send, what the replica sends later than it came. Dropping it cuts its
/// connections.
#[derive(Debug)]
pub(crate) struct Relay {
    pub(crate) port: u16,
    delay_ms: Arc<AtomicU64>,
    task: JoinHandle<()>,
}

impl Relay {
    /// One to this port of 127.0.0.1, without a delay.
    pub(crate) async fn to(replica: u16) -> Result<Self, Box<dyn Error>> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let port = listener.local_addr()?.port();
        let delay_ms = Arc::new(AtomicU64::new(0));
        let delay = Arc::clone(&delay_ms);
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                connections.spawn(connection(client, replica, Arc::clone(&delay)));
            }
        });
        Ok(Self {
            port,
            delay_ms,
            task,
        })
    }

    /// From now on it holds back for so long, in whole milliseconds.
    pub(crate) fn delay(&self, delay: Duration) {
        let delay = delay.as_millis().try_into().unwrap_or(u64::MAX);
        // Only a number: what is read next uses it or the one before.
        self.delay_ms.store(delay, Ordering::Relaxed);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Ends with the first side that does.
async fn connection(client: TcpStream, replica: u16, delay: Arc<AtomicU64>) -> io::Result<()> {
    let server = TcpStream::connect(("127.0.0.1", replica)).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (mut client_reads, mut client_writes) = client.into_split();
    let (mut server_reads, mut server_writes) = server.into_split();
    let (held, mut due) = mpsc::channel::<(Instant, Vec<u8>)>(IN_FLIGHT);
    let up = async { tokio::io::copy(&mut client_reads, &mut server_writes).await };
    let hold = async {
        loop {
            let mut chunk = vec![0; CHUNK];
            let length = server_reads.read(&mut chunk).await?;
            if length == 0 {
                return Ok::<_, io::Error>(());
            }
            chunk.truncate(length);
            let delay = Duration::from_millis(delay.load(Ordering::Relaxed));
            if held.send((Instant::now() + delay, chunk)).await.is_err() {
                return Ok(());
            }
        }
    };
    let pass_on = async {
        while let Some((at, chunk)) = due.recv().await {
            tokio::time::sleep_until(at).await;
            client_writes.write_all(&chunk).await?;
        }
        Ok::<_, io::Error>(())
    };
    tokio::select! {
        ended = up => ended.map(drop),
        ended = hold => ended,
        ended = pass_on => ended,
    }
}
