//! The same with two servers of grpc-go.

use std::{error::Error, path::PathBuf};

use interop::{Mode, Outcome, peer::Peer, probe};

use crate::{
    authority::Authority,
    cases::{NO_CLIENT_CERTIFICATE, refused, serves, trust},
    client::{Client, NAME},
};

/// Two servers, and the folder that they have read their certificates from.
struct Servers {
    peers: [Peer; 2],
    folder: PathBuf,
}

pub(crate) async fn tls(mode: Mode, command: &[String]) -> Outcome {
    let authority = Authority::new()?;
    let servers = Servers::start(command, &authority, false).await?;
    serves(&mut Client::new(
        &servers.ports(),
        &trust(&authority),
        mode,
    )?)
    .await
}

pub(crate) async fn mutual_tls(mode: Mode, command: &[String]) -> Outcome {
    let authority = Authority::new()?;
    let servers = Servers::start(command, &authority, true).await?;
    let trust = trust(&authority).identity(authority.issue("client")?.identity());
    serves(&mut Client::new(&servers.ports(), &trust, mode)?).await
}

pub(crate) async fn no_client_certificate(mode: Mode, command: &[String]) -> Outcome {
    let authority = Authority::new()?;
    let servers = Servers::start(command, &authority, true).await?;
    let client = Client::new(&servers.ports(), &trust(&authority), mode)?;
    refused(client, NO_CLIENT_CERTIFICATE).await
}

impl Servers {
    async fn start(
        command: &[String],
        authority: &Authority,
        mutual: bool,
    ) -> Result<Self, Box<dyn Error>> {
        let folder = std::env::temp_dir().join(format!("interop-tls-{}", std::process::id()));
        std::fs::create_dir_all(&folder)?;
        let write = |name: &str, contents: &[u8]| {
            let path = folder.join(name);
            std::fs::write(&path, contents)?;
            path.into_os_string()
                .into_string()
                .map_err(|_| "not a path of text".into())
        };
        let write = |name: &str, contents: &[u8]| -> Result<String, Box<dyn Error>> {
            write(name, contents)
        };
        let issued = authority.issue(NAME)?;
        let certificate = write("certificate.pem", issued.certificate.as_bytes())?;
        let key = write("key.pem", issued.key.as_bytes())?;
        let clients = write("clients.pem", authority.pem().as_bytes())?;
        let descriptors = write("descriptors.binpb", probe::FILE_DESCRIPTOR_SET)?;
        let environment = [
            ("INTEROP_DESCRIPTORS", &*descriptors),
            ("INTEROP_TLS_CERTIFICATE", &certificate),
            ("INTEROP_TLS_KEY", &key),
            ("INTEROP_TLS_CLIENTS", if mutual { &clients } else { "" }),
        ];
        let start = |name| Peer::start(name, command, &environment);
        let (a, b) = tokio::try_join!(start("a"), start("b"))?;
        Ok(Self {
            peers: [a, b],
            folder,
        })
    }

    fn ports(&self) -> Vec<u16> {
        self.peers.iter().map(|peer| peer.port).collect()
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        // What cannot be removed is the system's to remove.
        let _gone = std::fs::remove_dir_all(&self.folder);
    }
}
