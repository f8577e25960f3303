//! A TCP proxy that cuts its connections when a test, or a seeded generator, says so.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::broadcast,
    task::JoinHandle,
};

/// Passes bytes on to one address. Dropping it cuts all its connections.
pub struct Proxy {
    pub addr: SocketAddr,
    cut: broadcast::Sender<()>,
    cuts: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl Proxy {
    pub async fn to(target: SocketAddr) -> Self {
        Self::cutting(target, 0.0, 0).await
    }

    /// Cuts a connection at the given share of its reads, by a generator of this seed. What was
    /// read is passed on first, or lost, as the generator has it.
    pub async fn cutting(target: SocketAddr, share: f64, seed: u64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let cut = broadcast::Sender::new(1);
        let cuts = Arc::new(AtomicUsize::new(0));
        let (sender, counter) = (cut.clone(), Arc::clone(&cuts));
        let task = tokio::spawn(async move {
            let mut random = fastrand::Rng::with_seed(seed);
            loop {
                let Ok((client, _)) = listener.accept().await else {
                    continue;
                };
                let pipe = Pipe {
                    share,
                    random: random.fork(),
                    counter: Arc::clone(&counter),
                };
                tokio::spawn(pipe.run(client, target, sender.subscribe()));
            }
        });
        Self {
            addr,
            cut,
            cuts,
            task,
        }
    }

    /// Cuts all connections that are open.
    pub fn cut(&self) {
        // Nobody listens where none is open.
        let _ = self.cut.send(());
    }

    /// Connections that were cut.
    pub fn cuts(&self) -> usize {
        self.cuts.load(Ordering::SeqCst)
    }

    pub fn uri(&self) -> String {
        format!("http://{}", self.addr)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
        self.cut();
    }
}

struct Pipe {
    share: f64,
    random: fastrand::Rng,
    counter: Arc<AtomicUsize>,
}

impl Pipe {
    async fn run(
        mut self,
        mut client: TcpStream,
        target: SocketAddr,
        mut cut: broadcast::Receiver<()>,
    ) {
        let Ok(mut server) = TcpStream::connect(target).await else {
            return;
        };
        // A reset, not a farewell.
        let _ = client.set_zero_linger();
        let (mut up, mut down) = (vec![0; 16 << 10], vec![0; 16 << 10]);
        loop {
            let (read, upwards) = tokio::select! {
                read = client.read(&mut up) => (read, true),
                read = server.read(&mut down) => (read, false),
                _ = cut.recv() => break,
            };
            let Ok(length @ 1..) = read else { return };
            let cuts = self.random.f64() < self.share;
            if cuts && self.random.bool() {
                break;
            }
            let written = match upwards {
                true => server.write_all(&up[..length]).await,
                false => client.write_all(&down[..length]).await,
            };
            if written.is_err() {
                return;
            }
            if cuts {
                // The other side has what it needs to act on it, sometimes.
                if self.random.bool() {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                break;
            }
        }
        self.counter.fetch_add(1, Ordering::SeqCst);
    }
}
