//! Replicas, and what a call asks of them by its number.

use std::{error::Error, time::Duration};

use h2::Reason;
use tokio::{net::TcpListener, task::JoinHandle, time::sleep};
use tonic::Status;

use crate::script::{Arrival, Script};

/// What an attempt takes in milliseconds, unless it is asked for something else.
const USUAL: std::ops::Range<u64> = 2..7;

/// What becomes of a call's attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Each answers soon.
    Quick,
    /// The original pauses: what hedging is for.
    Pauses,
    /// All take long: a hedge comes too late.
    Slow,
    /// The original takes long, and its hedge fails.
    HedgeFails,
    /// The original fails, and a retry does not.
    FailsOnce,
    /// The first fails, in a way that no other attempt could better.
    Fails,
    /// None answers in time.
    Never,
}

impl Fate {
    const ALL: [Self; 7] = [
        Self::Quick,
        Self::Pauses,
        Self::Slow,
        Self::HedgeFails,
        Self::FailsOnce,
        Self::Fails,
        Self::Never,
    ];

    /// The number of the `index`th call that is to meet this fate.
    pub(crate) fn call(self, index: u64) -> u64 {
        let fates = Self::ALL.len() as u64;
        let at = Self::ALL.iter().position(|fate| *fate == self);
        index * fates + at.unwrap_or_default() as u64
    }

    fn of(call: u64) -> Self {
        Self::ALL[(call % Self::ALL.len() as u64) as usize]
    }
}

pub(crate) struct AsAsked;

impl Script for AsAsked {
    async fn answer(&self, arrival: Arrival) -> Result<(), Status> {
        let original = arrival.before == 0;
        let usual = Duration::from_millis(arrival.draws().u64(USUAL));
        let takes = match Fate::of(arrival.call) {
            Fate::Pauses if original => Duration::from_millis(150),
            Fate::HedgeFails if original => Duration::from_millis(150),
            Fate::Slow => Duration::from_millis(60),
            Fate::Never => Duration::from_secs(60),
            _ => usual,
        };
        sleep(takes).await;
        match Fate::of(arrival.call) {
            Fate::HedgeFails if !original => Err(Status::unavailable("as asked")),
            Fate::FailsOnce if original => Err(Status::unavailable("as asked")),
            Fate::Fails => Err(Status::internal("as asked")),
            _ => Ok(()),
        }
    }
}

/// A server that refuses every stream before it looks at it, as one that is about to stop does.
/// Dropped, it is gone.
pub(crate) struct Refuser {
    port: u16,
    server: JoinHandle<()>,
}

impl Refuser {
    pub(crate) async fn start() -> Result<Self, Box<dyn Error>> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let port = listener.local_addr()?.port();
        let server = tokio::spawn(async move {
            while let Ok((connection, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let mut connection = h2::server::handshake(connection).await?;
                    while let Some(stream) = connection.accept().await {
                        stream?.1.send_reset(Reason::REFUSED_STREAM);
                    }
                    Ok::<_, h2::Error>(())
                });
            }
        });
        Ok(Self { port, server })
    }

    pub(crate) fn uri(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }
}

impl Drop for Refuser {
    fn drop(&mut self) {
        self.server.abort();
    }
}
