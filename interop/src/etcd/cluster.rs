//! Three nodes of etcd on free ports of the loopback, that can be stopped and woken, and what they
//! count themselves.

use std::{error::Error, fs::File, path::PathBuf, process::Stdio, time::Duration};

use interop::http::{Api, free_ports};
use rustix::process::{Pid, Signal, kill_process};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, ChildStdin, Command},
    time::{Instant, sleep, sleep_until, timeout},
};
use tonic::transport::Endpoint;

use crate::kv::{RangeRequest, kv_client::KvClient};

/// Nodes.
pub(crate) const NODES: usize = 3;

/// The first start on a busy machine; only a failing run waits for it.
const PATIENCE: Duration = Duration::from_secs(30);

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(100);

/// From one stop to the next.
const PERIOD: Duration = Duration::from_secs(10);

/// How long a stop lasts.
pub(crate) const STOP: Duration = Duration::from_secs(2);

/// A cluster. It stops when it is dropped: the nodes' standard inputs close.
pub(crate) struct Cluster {
    nodes: Vec<Node>,
}

struct Node {
    name: String,
    port: u16,
    pid: Pid,
    api: Api,
    /// Held open for as long as it is to run.
    input: ChildStdin,
    script: Child,
}

impl Cluster {
    /// Starts one, and waits until each node answers with the agreement of the others.
    pub(crate) async fn start() -> Result<Self, Box<dyn Error>> {
        let ports: [u16; 2 * NODES] = free_ports()?;
        let (clients, peers) = ports.split_at(NODES);
        let name = |number: usize| format!("node{number}");
        let members: Vec<_> = (0..NODES)
            .map(|number| format!("{}=http://127.0.0.1:{}", name(number), peers[number]))
            .collect();
        let members = members.join(",");
        let mut nodes = Vec::new();
        for number in 0..NODES {
            nodes.push(Node::start(name(number), clients[number], peers[number], &members).await?);
        }
        let cluster = Self { nodes };
        for node in &cluster.nodes {
            let ready = timeout(PATIENCE, node.ready()).await;
            ready.map_err(|_| format!("{} does not answer: {}", node.name, node.log()))?;
        }
        Ok(cluster)
    }

    /// Where the nodes are.
    pub(crate) fn uris(&self) -> impl Iterator<Item = String> {
        self.nodes.iter().map(Node::uri)
    }

    /// Stops one node for two seconds of each ten, each in its turn, the leader first. It ends
    /// after so many stops, with all of them awake.
    pub(crate) async fn stop_in_turn(&self, stops: usize) -> Result<(), Box<dyn Error>> {
        let mut leader = 0;
        for number in 0..NODES {
            if self.nodes[number].sum("etcd_server_is_leader", "").await? > 0.0 {
                leader = number;
            }
        }
        let mut next = Instant::now();
        for number in (leader..).take(stops) {
            // In the middle of its ten seconds, so that there is a time before it and one after.
            sleep_until(next + (PERIOD - STOP) / 2).await;
            let stopped = Stopped::new(&self.nodes[number % NODES])?;
            sleep(STOP).await;
            drop(stopped);
            next += PERIOD;
            sleep_until(next).await;
        }
        Ok(())
    }

    /// Requests of a method that the nodes have begun to serve, once none is under way.
    pub(crate) async fn requests(&self, method: &str) -> Result<u64, Box<dyn Error>> {
        let label = format!("grpc_method=\"{method}\"");
        let settled = async {
            let mut before = None;
            loop {
                let started = self.sum("grpc_server_started_total", &label).await?;
                let handled = self.sum("grpc_server_handled_total", &label).await?;
                // What a node has not read yet is in neither.
                if started == handled && before == Some(started) {
                    return Ok(started);
                }
                before = Some(started);
                sleep(5 * PAUSE).await;
            }
        };
        let settled = timeout(PATIENCE, settled).await;
        settled.unwrap_or_else(|_| Err("etcd's requests do not end".into()))
    }

    async fn sum(&self, metric: &str, label: &str) -> Result<u64, Box<dyn Error>> {
        let mut sum = 0.0;
        for node in &self.nodes {
            sum += node.sum(metric, label).await?;
        }
        // A count of requests.
        Ok(sum as u64)
    }

    /// Ends it.
    pub(crate) async fn stop(self) -> Result<(), Box<dyn Error>> {
        for node in self.nodes {
            let Node {
                input, mut script, ..
            } = node;
            drop(input);
            timeout(PATIENCE, script.wait()).await??;
        }
        Ok(())
    }
}

impl Node {
    async fn start(
        name: String,
        port: u16,
        peer_port: u16,
        members: &str,
    ) -> Result<Self, Box<dyn Error>> {
        let client = format!("http://127.0.0.1:{port}");
        let peer = format!("http://127.0.0.1:{peer_port}");
        let mut script = Command::new("interop/etcd/start")
            .args(["--name", &name])
            .args(["--listen-client-urls", &client])
            .args(["--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer])
            .args(["--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", members])
            .args(["--logger", "zap", "--log-level", "warn"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(File::create(log(&name))?)
            .spawn()?;
        let input = script.stdin.take().ok_or("no input")?;
        let output = script.stdout.take().ok_or("no output")?;
        let pid = BufReader::new(output).lines().next_line().await?;
        let pid = pid.ok_or("etcd did not start")?.parse()?;
        Ok(Self {
            name,
            port,
            pid: Pid::from_raw(pid).ok_or("no process id")?,
            api: Api::on(port),
            input,
            script,
        })
    }

    fn uri(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    async fn ready(&self) {
        while self.read().await.is_err() {
            sleep(PAUSE).await;
        }
    }

    async fn read(&self) -> Result<(), Box<dyn Error>> {
        let channel = Endpoint::new(self.uri())?.connect().await?;
        let read = RangeRequest {
            key: b"ready".into(),
            ..RangeRequest::default()
        };
        KvClient::new(channel).range(read).await?;
        Ok(())
    }

    /// The sum of the series of a metric that have this label; 0 if there is none yet.
    async fn sum(&self, metric: &str, label: &str) -> Result<f64, Box<dyn Error>> {
        let mut sum = 0.0;
        for line in self.api.text("/metrics").await?.lines() {
            if let Some((series, value)) = line.rsplit_once(' ')
                && series.starts_with(metric)
                && series.contains(label)
            {
                sum += value.parse::<f64>()?;
            }
        }
        Ok(sum)
    }

    /// What it said.
    fn log(&self) -> String {
        std::fs::read_to_string(log(&self.name)).unwrap_or_default()
    }
}

/// Where a node's log is, for whoever wants to know why.
fn log(name: &str) -> PathBuf {
    let out = std::env::var_os("INTEROP_OUT").map_or_else(std::env::temp_dir, PathBuf::from);
    out.join(format!("etcd/{name}.log"))
}

/// A node that does nothing, as in a long collection of garbage, until this is dropped.
struct Stopped<'a>(&'a Node);

impl<'a> Stopped<'a> {
    fn new(node: &'a Node) -> Result<Self, Box<dyn Error>> {
        kill_process(node.pid, Signal::STOP)?;
        Ok(Self(node))
    }
}

impl Drop for Stopped<'_> {
    fn drop(&mut self) {
        if let Err(error) = kill_process(self.0.pid, Signal::CONT) {
            eprintln!("{} cannot be woken: {error}", self.0.name);
        }
    }
}
