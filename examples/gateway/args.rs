//! The command line.

use std::{
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    time::Duration,
};

/// What `--help` prints.
pub(crate) const HELP: &str = "\
A small LLM gateway: two regions of model replicas, hedged first tokens, lanes, and a live page.

Usage: cargo run --release --example gateway -- [--learned FILE]
       cargo run --release --example gateway -- --replay [--json] [--serve]
       cargo run --release --example gateway -- --load http://PAGE [--seconds N]

  --replay       play the incident of docs/gateway.md, in two and a half minutes; the page can be
                 watched meanwhile. The exit status says whether all that must hold does
  --json         print its outcome as one JSON object instead of a table; addresses go to the
                 standard error
  --serve        stay when the replay is over
  --load URL     play the incident to a gateway that runs, by the address of its page; stopped, it
                 leaves it well
  --seconds N    in so long, 5 to 3600 (default 150)
  --learned FILE go on from what an earlier gateway has learnt, if the file is there, and write there
                 what this one has when it is stopped
  --grpc PORT    of the front (default: one that is free)
  --web PORT     of the page (default: one that is free)
  --help         print this

JSON: {seed, scale, seconds, cpu_share, table: [{metric, unit, document: {before, after}, ours: {before,
after}}], breaker_and_budget, hedges_and_lanes: {phases, batch, tokens, sent}, holds}.
What is called before has breaker and budget only, what is called after hedges and lanes besides. Seconds
in the table are of chat, scale times as long as here.
";

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Args {
    Help,
    Serve(Serve),
    Load(Load),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Serve {
    pub(crate) grpc: SocketAddr,
    pub(crate) web: SocketAddr,
    pub(crate) learned: Option<PathBuf>,
    pub(crate) replay: bool,
    pub(crate) json: bool,
    /// Until it is stopped.
    pub(crate) stay: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Load {
    /// Of the page.
    pub(crate) uri: String,
    pub(crate) length: Duration,
}

/// Reads the arguments; the error says what is wrong with the first that is.
pub(crate) fn parse(args: impl IntoIterator<Item = String>) -> Result<Args, String> {
    let (mut replay, mut json, mut serve) = (false, false, false);
    let (mut grpc, mut web) = (0, 0);
    let (mut load, mut seconds, mut learned) = (None, None, None);
    let mut args = args.into_iter();
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or_else(|| format!("{arg} wants a value"));
        match arg.as_str() {
            "--help" | "-h" => return Ok(Args::Help),
            "--replay" => replay = true,
            "--json" => json = true,
            "--serve" => serve = true,
            "--load" => load = Some(value()?),
            "--seconds" => {
                let number = value()?.parse().ok();
                let number = number.filter(|seconds| (5..=3_600).contains(seconds));
                seconds = Some(number.ok_or("--seconds takes a number in [5, 3600]")?);
            }
            "--learned" => learned = Some(PathBuf::from(value()?)),
            "--grpc" => grpc = port(&arg, &value()?)?,
            "--web" => web = port(&arg, &value()?)?,
            _ => return Err(format!("unknown argument: {arg}")),
        }
    }
    if json && !replay {
        return Err("--json goes with --replay".to_owned());
    }
    if learned.is_some() && (replay || load.is_some()) {
        return Err("--learned goes without --replay and --load".to_owned());
    }
    match load {
        Some(_) if replay || serve => Err("--load goes without --replay and --serve".to_owned()),
        Some(uri) => Ok(Args::Load(Load {
            uri,
            length: Duration::from_secs(seconds.unwrap_or(150)),
        })),
        None if seconds.is_some() => Err("--seconds goes with --load".to_owned()),
        None => Ok(Args::Serve(Serve {
            grpc: loopback(grpc),
            web: loopback(web),
            learned,
            replay,
            json,
            stay: serve || !replay,
        })),
    }
}

fn port(name: &str, text: &str) -> Result<u16, String> {
    let wrong = |_| format!("{name}: {text} is not a port");
    text.parse().map_err(wrong)
}

/// Nobody else's business.
fn loopback(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments() {
        let parse = |args: &[&str]| parse(args.iter().map(ToString::to_string));
        let served = |args: &[&str]| match parse(args) {
            Ok(Args::Serve(serve)) => serve,
            other => panic!("{other:?}"),
        };
        let alone = served(&[]);
        assert!(alone.stay && !alone.replay && !alone.json);
        let replay = served(&["--replay", "--json"]);
        assert!(!replay.stay && replay.replay && replay.json);
        assert!(served(&["--replay", "--serve"]).stay);
        assert_eq!(served(&["--web", "8080"]).web.port(), 8080);
        let load = Load {
            uri: "http://a:1".to_owned(),
            length: Duration::from_secs(5),
        };
        let loaded = parse(&["--load", "http://a:1", "--seconds", "5"]);
        assert_eq!(loaded, Ok(Args::Load(load)));
        for wrong in [
            &["--json"][..],
            &["--web"],
            &["--web", "70000"],
            &["--seconds", "5"],
            &["--load", "http://a:1", "--replay"],
            &["--load", "http://a:1", "--seconds", "4"],
            &["--learned"],
            &["--learned", "file", "--replay"],
            &["--fast"],
        ] {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
    }
}
