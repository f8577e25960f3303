mod replica;

mod search {
    tonic::include_proto!("search");
}

use search::{FindRequest, search_client::SearchClient};
use tonic_hedge::{Hedge, HedgedChannel, ResponseExt};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Two replicas in this process, so that it runs on its own.
    let replicas = [replica::start().await?, replica::start().await?];

    let channel = HedgedChannel::builder()
        .endpoints(replicas)
        .descriptors(search::FILE_DESCRIPTOR_SET)
        .hedge(Hedge::at(0.95))
        .build()?;
    let mut client = SearchClient::new(channel.clone());

    for number in 0..200 {
        let query = format!("query {number}");
        let response = client.find(FindRequest { query }).await?;
        if response.hedged()
            && let Some(log) = response.call_log()
        {
            println!("query {number}: {log}");
        }
    }
    for method in channel.measured().methods {
        println!("{}: {} calls", method.method, method.calls);
        println!("{} hedges, {} won", method.hedges, method.hedges_won);
    }
    Ok(())
}
