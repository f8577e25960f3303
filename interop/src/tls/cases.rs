//! The cases: who is believed, who is not, and what a caller sees of it.

use std::error::Error;

use interop::{Mode, Outcome, ensure};
use tonic::{Code, Status, transport::ClientTlsConfig};
use tonic_hedge::EndpointState;

use crate::{
    authority::{Authority, Issued},
    client::{Client, NAME},
    go,
    servers::{Replica, slowness},
};

/// All cases, in the order in which they run.
pub(crate) const CASES: &[&str] = &[
    "tls",
    "unknown_ca",
    "mutual_tls",
    "no_client_certificate",
    "no_client_certificate_one",
    "wrong_name_one",
    "expired_one",
    "other_ca_one",
    "wrong_certificate_all",
    "by_address",
    "go_tls",
    "go_mutual_tls",
    "go_no_client_certificate",
];

/// What makes a server's certificate a wrong one, and what is said of it.
#[derive(Clone, Copy)]
enum Wrong {
    Name,
    Expired,
    Authority,
}

impl Wrong {
    const ALL: [Self; 3] = [Self::Name, Self::Expired, Self::Authority];

    fn issue(self, authority: &Authority) -> Result<Issued, Box<dyn Error>> {
        match self {
            Self::Name => authority.issue("somebody-else.internal"),
            Self::Expired => authority.issue_expired(NAME),
            Self::Authority => Authority::new()?.issue(NAME),
        }
    }

    /// In rustls's words.
    fn reason(self) -> &'static str {
        match self {
            Self::Name => "not valid for name",
            Self::Expired => "certificate expired",
            Self::Authority => "UnknownIssuer",
        }
    }
}

pub(crate) async fn run(case: &str, mode: Mode, go: &[String]) -> Outcome {
    match case {
        "tls" => tls(mode).await,
        "unknown_ca" => unknown_ca(mode).await,
        "mutual_tls" => mutual_tls(mode).await,
        "no_client_certificate" => no_client_certificate(mode).await,
        "no_client_certificate_one" => no_client_certificate_one(mode).await,
        "wrong_name_one" => wrong_certificate(mode, Wrong::Name).await,
        "expired_one" => wrong_certificate(mode, Wrong::Expired).await,
        "other_ca_one" => wrong_certificate(mode, Wrong::Authority).await,
        "wrong_certificate_all" => wrong_certificate_all(mode).await,
        "by_address" => by_address(mode).await,
        "go_tls" => go::tls(mode, go).await,
        "go_mutual_tls" => go::mutual_tls(mode, go).await,
        "go_no_client_certificate" => go::no_client_certificate(mode, go).await,
        _ => Err("listed but not written".into()),
    }
}

/// The servers are known by an authority of the user's own.
async fn tls(mode: Mode) -> Outcome {
    let authority = Authority::new()?;
    let replicas = replicas(&authority, mode, false).await?;
    serves(&mut Client::new(
        &ports(&replicas),
        &trust(&authority),
        mode,
    )?)
    .await
}

/// Whose authority nobody knows is not spoken with.
async fn unknown_ca(mode: Mode) -> Outcome {
    let replicas = replicas(&Authority::new()?, mode, false).await?;
    let trust = trust(&Authority::new()?);
    refused(
        Client::new(&ports(&replicas), &trust, mode)?,
        Wrong::Authority.reason(),
    )
    .await
}

/// The servers ask for a certificate, and get it.
async fn mutual_tls(mode: Mode) -> Outcome {
    let authority = Authority::new()?;
    let replicas = replicas(&authority, mode, true).await?;
    let trust = trust(&authority).identity(authority.issue("client")?.identity());
    serves(&mut Client::new(&ports(&replicas), &trust, mode)?).await
}

/// The servers ask for a certificate, and there is none.
async fn no_client_certificate(mode: Mode) -> Outcome {
    let authority = Authority::new()?;
    let replicas = replicas(&authority, mode, true).await?;
    let client = Client::new(&ports(&replicas), &trust(&authority), mode)?;
    refused(client, NO_CLIENT_CERTIFICATE).await
}

/// One of three asks for a certificate that the client does not have.
async fn no_client_certificate_one(mode: Mode) -> Outcome {
    let authority = Authority::new()?;
    let mut replicas = replicas(&authority, mode, false).await?;
    let certificate = authority.issue(NAME)?;
    let strict = Some(authority.certificate());
    let strict = Replica::start(&certificate, strict, slowness(mode, 0)).await?;
    let bad = strict.port();
    replicas.insert(0, strict);
    let client = Client::new(&ports(&replicas), &trust(&authority), mode)?;
    others_answer(client, bad, NO_CLIENT_CERTIFICATE).await
}

/// One of three has a wrong certificate: the others answer every call.
async fn wrong_certificate(mode: Mode, wrong: Wrong) -> Outcome {
    let authority = Authority::new()?;
    let mut replicas = replicas(&authority, mode, false).await?;
    let wrong_one = Replica::start(&wrong.issue(&authority)?, None, slowness(mode, 0)).await?;
    let bad = wrong_one.port();
    // First in the list: no order saves the caller.
    replicas.insert(0, wrong_one);
    let client = Client::new(&ports(&replicas), &trust(&authority), mode)?;
    others_answer(client, bad, wrong.reason()).await
}

/// All have a wrong one: a call fails at once, and says why.
async fn wrong_certificate_all(mode: Mode) -> Outcome {
    let authority = Authority::new()?;
    for wrong in Wrong::ALL {
        let mut replicas = Vec::new();
        for index in 0..2 {
            let certificate = wrong.issue(&authority)?;
            replicas.push(Replica::start(&certificate, None, slowness(mode, index)).await?);
        }
        let client = Client::new(&ports(&replicas), &trust(&authority), mode)?;
        refused(client, wrong.reason()).await?;
    }
    Ok(())
}

/// Without a name of its own an endpoint is known by its address: a certificate for a name only is
/// a wrong one, and one for the address is right.
async fn by_address(mode: Mode) -> Outcome {
    let authority = Authority::new()?;
    let nameless = ClientTlsConfig::new().ca_certificate(authority.certificate());
    let named = replicas(&authority, mode, false).await?;
    let client = Client::new(&ports(&named), &nameless, mode)?;
    refused(client, Wrong::Name.reason()).await?;

    let mut replicas = Vec::new();
    for index in 0..2 {
        let certificate = authority.issue("127.0.0.1")?;
        replicas.push(Replica::start(&certificate, None, slowness(mode, index)).await?);
    }
    serves(&mut Client::new(&ports(&replicas), &nameless, mode)?).await
}

/// What is said where a server hangs up on a client without a certificate.
pub(crate) const NO_CLIENT_CERTIFICATE: &str = "client certificate";

/// Two servers with right certificates.
async fn replicas(
    authority: &Authority,
    mode: Mode,
    mutual: bool,
) -> Result<Vec<Replica>, Box<dyn Error>> {
    let mut replicas = Vec::new();
    for index in 0..2 {
        let clients = mutual.then(|| authority.certificate());
        let certificate = authority.issue(NAME)?;
        replicas.push(Replica::start(&certificate, clients, slowness(mode, index)).await?);
    }
    Ok(replicas)
}

fn ports(replicas: &[Replica]) -> Vec<u16> {
    replicas.iter().map(Replica::port).collect()
}

/// What a client trusts, and the name that it asks for in place of an address.
pub(crate) fn trust(authority: &Authority) -> ClientTlsConfig {
    ClientTlsConfig::new()
        .ca_certificate(authority.certificate())
        .domain_name(NAME)
}

/// Every call is answered, by a hedge where it should be.
pub(crate) async fn serves(client: &mut Client) -> Outcome {
    client.settle().await?;
    client.calls().await.map(drop)
}

/// Every call fails at once, whatever its method, and says why.
pub(crate) async fn refused(mut client: Client, reason: &str) -> Outcome {
    // Between two connects, during one, and after many failures.
    for _ in 0..10 {
        is_refused(client.call().await.map(drop), reason)?;
        is_refused(client.put().await, reason)?;
    }
    Ok(())
}

fn is_refused(result: Result<(), Status>, reason: &str) -> Outcome {
    let Err(status) = result else {
        return Err("OK over a connection that should not be".into());
    };
    ensure!(status.code() == Code::Unavailable, "{status:?}");
    ensure!(status.message().contains(reason), "{status:?}");
    Ok(())
}

/// No call fails, the bad one answers none, and the channel says what is wrong with it.
async fn others_answer(mut client: Client, bad: u16, reason: &str) -> Outcome {
    client.settle().await?;
    let answered = client.calls().await?;
    let name = format!("127.0.0.1:{bad}");
    ensure!(!answered.contains(&name), "{answered:?}");
    let endpoint = client.endpoint(bad)?;
    ensure!(endpoint.state != EndpointState::Ready, "{endpoint:?}");
    let error = endpoint.last_error.as_deref().unwrap_or_default();
    ensure!(error.contains(reason), "{endpoint:?}");
    Ok(())
}
