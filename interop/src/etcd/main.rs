//! Calls a real three-node etcd, one node of which is stopped for two seconds of each ten.
//!
//! `interop-etcd CASE|all`; `interop/run etcd` prepares what it needs and calls this. etcd's protos are
//! not ours: nothing in them says that `Range` may be repeated, so each channel's builder does.

mod callers;
mod cluster;
mod linearizable;
mod puts;
mod ranges;

use std::{env, error::Error, process::ExitCode, time::Duration};

use interop::Report;

use cluster::Cluster;

/// What is called of etcd.
#[allow(missing_docs, unreachable_pub, dead_code)]
mod kv {
    tonic::include_proto!("etcdserverpb");
}

const CASES: [&str; 3] = ["linearizable_range", "serializable_range", "put_once"];

/// A case takes half a minute of calls.
const PATIENCE: Duration = Duration::from_secs(120);

#[tokio::main]
async fn main() -> Result<ExitCode, Box<dyn Error>> {
    let wanted = env::args().nth(1).ok_or("usage: interop-etcd CASE|all")?;
    let chosen = CASES.iter().filter(|it| wanted == "all" || wanted == **it);
    let chosen: Vec<_> = chosen.copied().collect();
    if chosen.is_empty() {
        return Err(format!("no case {wanted}; there are: {}", CASES.join(", ")).into());
    }
    let mut report = Report::new("etcd");
    for case in chosen {
        // Nodes of its own, so that no case sees what another left behind.
        let cluster = Cluster::start().await?;
        let run = tokio::time::timeout(PATIENCE, run(case, &cluster, &mut report)).await;
        if let Err(error) = run.unwrap_or_else(|_| Err(format!("no end after {PATIENCE:?}").into()))
        {
            report.add(case, Err(error));
        }
        cluster.stop().await?;
    }
    Ok(report.close()?)
}

async fn run(case: &str, cluster: &Cluster, report: &mut Report) -> Result<(), Box<dyn Error>> {
    match case {
        "linearizable_range" => linearizable::run(cluster, report).await,
        "serializable_range" => ranges::run(cluster, report).await,
        "put_once" => puts::run(cluster, report).await,
        _ => Err("not listed".into()),
    }
}
