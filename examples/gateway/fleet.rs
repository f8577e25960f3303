//! Six model replicas in two regions, each a server of its own.

use std::{io, sync::Arc};

use tonic::transport::Endpoint;
use tonic_hedge::EndpointSpec;

use crate::{
    api::chat_server::ChatServer,
    model::{Model, SLOTS},
    region::{REGIONS, Region},
    replica::Replica,
    tokens::Tokens,
};

/// Running replicas.
pub(crate) struct Fleet {
    pub(crate) regions: Vec<Arc<Region>>,
    pub(crate) tokens: Arc<Tokens>,
    /// With the place of each one's region.
    replicas: Vec<(usize, String, Replica)>,
}

impl Fleet {
    pub(crate) async fn start() -> io::Result<Self> {
        let tokens = Arc::new(Tokens::default());
        let mut fleet = Self {
            regions: Vec::new(),
            tokens: Arc::clone(&tokens),
            replicas: Vec::new(),
        };
        for (place, (name, count)) in REGIONS.into_iter().enumerate() {
            let region = Arc::new(Region::new(name));
            for number in 1..=count {
                let name = format!("{name}-{number}");
                let model = Model::new(name.clone(), Arc::clone(&region), Arc::clone(&tokens));
                let replica = Replica::start(ChatServer::new(model)).await?;
                fleet.replicas.push((place, name, replica));
            }
            fleet.regions.push(region);
        }
        Ok(fleet)
    }

    pub(crate) fn endpoints(&self) -> Result<Vec<EndpointSpec>, tonic::transport::Error> {
        let endpoint = |(place, name, replica): &(usize, String, Replica)| {
            let endpoint = Endpoint::from_shared(replica.uri())?;
            let spec = EndpointSpec::new(endpoint).named(name.as_str());
            Ok(spec.locality(self.regions[*place].name))
        };
        self.replicas.iter().map(endpoint).collect()
    }

    pub(crate) fn region(&self, name: &str) -> Option<&Arc<Region>> {
        self.regions.iter().find(|region| region.name == name)
    }

    /// Where the replicas are, for the one who has started them.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = (&str, String)> {
        let replicas = self.replicas.iter();
        replicas.map(|(_, name, replica)| (name.as_str(), replica.uri()))
    }

    /// Streams that all replicas write at once.
    pub(crate) fn slots() -> usize {
        REGIONS.iter().map(|(_, count)| count * SLOTS).sum()
    }
}
