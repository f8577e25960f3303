//! A Toxiproxy of our own, with a proxy before each replica.

use std::{error::Error, fs::File, path::PathBuf, process::Stdio, time::Duration};

use interop::http::{Api, free_ports};
use serde_json::json;
use tokio::{
    process::{Child, ChildStdin, Command},
    time::{sleep, timeout},
};

use crate::fault::Fault;

/// Only a failing run waits for it.
const PATIENCE: Duration = Duration::from_secs(30);

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(50);

/// Runs until it is stopped, or until this process ends: its standard input closes then.
pub(crate) struct Toxiproxy {
    api: Api,
    /// Where the proxies listen, in the order of the replicas.
    ports: Vec<u64>,
    input: ChildStdin,
    script: Child,
}

impl Toxiproxy {
    /// Starts one, with a proxy to each of these ports.
    pub(crate) async fn start(replicas: &[u16]) -> Result<Self, Box<dyn Error>> {
        let [own] = free_ports()?;
        let out = std::env::var_os("INTEROP_OUT").map_or_else(std::env::temp_dir, PathBuf::from);
        let log = File::create(out.join("faults/toxiproxy.log"))?;
        let mut script = Command::new("interop/faults/start")
            .arg(own.to_string())
            .stdin(Stdio::piped())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()?;
        let input = script.stdin.take().ok_or("no input")?;
        let api = Api::on(own);
        let ready = async {
            while api.text("/version").await.is_err() {
                sleep(PAUSE).await;
            }
        };
        timeout(PATIENCE, ready)
            .await
            .map_err(|_| "Toxiproxy does not answer")?;
        let mut ports = Vec::new();
        for (number, replica) in replicas.iter().enumerate() {
            let proxy = json!({
                "name": name(number),
                "listen": "127.0.0.1:0",
                "upstream": format!("127.0.0.1:{replica}"),
                "enabled": true,
            });
            let made = api.post("/proxies", &proxy).await?;
            let listens = made["listen"].as_str().ok_or("no address")?;
            let (_, port) = listens.rsplit_once(':').ok_or("no port")?;
            ports.push(port.parse()?);
        }
        Ok(Self {
            api,
            ports,
            input,
            script,
        })
    }

    /// Where clients connect.
    pub(crate) fn uris(&self) -> impl Iterator<Item = String> {
        self.ports.iter().map(|it| format!("http://127.0.0.1:{it}"))
    }

    /// Injects a fault before the first so many replicas.
    pub(crate) async fn inject(&self, fault: Fault, replicas: usize) -> Result<(), Box<dyn Error>> {
        for number in 0..replicas {
            let proxy = format!("/proxies/{}", name(number));
            if fault == Fault::Refused {
                self.api.post(&proxy, &json!({"enabled": false})).await?;
            }
            for toxic in fault.toxics() {
                self.api.post(&format!("{proxy}/toxics"), &toxic).await?;
            }
        }
        Ok(())
    }

    /// Ends all faults.
    pub(crate) async fn clear(&self) -> Result<(), Box<dyn Error>> {
        self.api.post("/reset", &json!({})).await.map(drop)
    }

    /// Ends it.
    pub(crate) async fn stop(mut self) -> Result<(), Box<dyn Error>> {
        drop(self.input);
        timeout(PATIENCE, self.script.wait()).await??;
        Ok(())
    }
}

fn name(replica: usize) -> String {
    format!("replica{replica}")
}
