//! One server of a peer: a child process that says on its output what it sees.

use std::{error::Error, process::Stdio, sync::Arc, time::Duration};

use parking_lot::Mutex;
use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
    sync::Notify,
    task::JoinHandle,
};

/// A virtual machine that starts cold on a busy machine needs seconds.
const START: Duration = Duration::from_secs(60);

/// How long an event may take; only a failing case waits for it.
const EVENT: Duration = Duration::from_secs(20);

/// What a server is said to have done when its output ends.
const ENDED: &str = "ended";

/// One server. It stops when it is dropped: its standard input closes, and it is killed.
#[derive(Debug)]
pub struct Peer {
    /// What it calls itself in its replies.
    pub name: &'static str,
    /// Where it listens, on 127.0.0.1.
    pub port: u16,
    seen: Arc<Seen>,
    input: ChildStdin,
    child: Child,
    listener: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Seen {
    events: Mutex<Vec<Event>>,
    changed: Notify,
}

/// What a server saw of one call.
#[derive(Clone, Debug)]
pub struct Event {
    /// `arrived`, `finished` or `cancelled` of a call; `drained` of the server.
    pub kind: String,
    /// The request's id. Empty for what is no call's.
    pub id: String,
    /// `grpc-previous-rpc-attempts`; `None` without the header. Of an arrival, as all below.
    pub previous_attempts: Option<u64>,
    /// What was left of the deadline.
    pub timeout: Option<Duration>,
    /// Of `ready`.
    port: Option<u16>,
}

impl Peer {
    /// Starts one by `command`, with these variables in its environment.
    ///
    /// # Errors
    /// It did not say in time where it listens.
    pub async fn start(
        name: &'static str,
        command: &[String],
        environment: &[(&str, &str)],
    ) -> Result<Self, Box<dyn Error>> {
        Self::start_at(name, command, environment, None).await
    }

    /// As [`start`](Self::start), on a port of the caller's choice, if it has one.
    ///
    /// # Errors
    /// It did not say in time where it listens.
    pub async fn start_at(
        name: &'static str,
        command: &[String],
        environment: &[(&str, &str)],
        port: Option<u16>,
    ) -> Result<Self, Box<dyn Error>> {
        let (program, arguments) = command.split_first().ok_or("no command")?;
        let mut child = Command::new(program)
            .args(arguments)
            .arg(name)
            .args(port.map(|port| port.to_string()))
            .envs(environment.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let input = child.stdin.take().ok_or("no input")?;
        let output = child.stdout.take().ok_or("no output")?;
        let lines = BufReader::new(output).lines();
        let seen = Arc::new(Seen::default());
        // It may serve before it says so.
        let listener = tokio::spawn(listen(lines, Arc::clone(&seen)));
        let ready = seen.wait(START, |event| event.kind == "ready" || event.kind == ENDED);
        let ready = ready.await.and_then(|event| event.port);
        Ok(Self {
            name,
            port: ready.ok_or_else(|| format!("replica {name} did not start"))?,
            seen,
            input,
            child,
            listener: Some(listener),
        })
    }

    /// Gives it a line on its standard input.
    ///
    /// # Errors
    /// It does not read any more.
    pub async fn tell(&mut self, line: &str) -> Result<(), Box<dyn Error>> {
        self.input.write_all(format!("{line}\n").as_bytes()).await?;
        Ok(self.input.flush().await?)
    }

    /// Kills it (SIGKILL), and waits until it is gone and all that it has said is known.
    ///
    /// # Errors
    /// The system does not let it be killed.
    pub async fn kill(&mut self) -> Result<(), Box<dyn Error>> {
        self.child.kill().await?;
        if let Some(listener) = self.listener.take() {
            listener.await?;
        }
        Ok(())
    }

    /// All that it has seen of one kind so far.
    pub fn events_of(&self, kind: &str) -> Vec<Event> {
        let events = self.seen.events.lock();
        events.iter().filter(|e| e.kind == kind).cloned().collect()
    }

    /// What it saw of the call `id` so far.
    pub fn events(&self, kind: &str, id: &str) -> Vec<Event> {
        let events = self.seen.events.lock();
        let of_call = events.iter().filter(|e| e.kind == kind && e.id == id);
        of_call.cloned().collect()
    }

    /// Waits until it has seen `kind` of the call `id`.
    ///
    /// # Errors
    /// It did not in time.
    pub async fn event(&self, kind: &str, id: &str) -> Result<Event, Box<dyn Error>> {
        let is = |event: &Event| event.kind == kind && event.id == id;
        let seen = self.seen.wait(EVENT, is).await;
        seen.ok_or_else(|| format!("replica {} saw no {kind} of {id}", self.name).into())
    }

    /// Waits until it has seen `kind` of any call whose id begins so.
    ///
    /// # Errors
    /// It did not in time.
    pub async fn any(&self, kind: &str, ids: &str) -> Result<Event, Box<dyn Error>> {
        let is = |event: &Event| event.kind == kind && event.id.starts_with(ids);
        let seen = self.seen.wait(EVENT, is).await;
        seen.ok_or_else(|| format!("replica {} saw no {kind}", self.name).into())
    }
}

impl Seen {
    fn add(&self, event: Event) {
        self.events.lock().push(event);
        self.changed.notify_waiters();
    }

    /// The first such event, now or within that time.
    async fn wait(&self, patience: Duration, is: impl Fn(&Event) -> bool) -> Option<Event> {
        let wait = async {
            loop {
                let changed = self.changed.notified();
                tokio::pin!(changed);
                // Before the look, or an event between the look and the wait would be missed.
                changed.as_mut().enable();
                let found = self.events.lock().iter().find(|event| is(event)).cloned();
                if let Some(event) = found {
                    return event;
                }
                changed.await;
            }
        };
        tokio::time::timeout(patience, wait).await.ok()
    }
}

async fn listen(mut lines: Lines<BufReader<ChildStdout>>, seen: Arc<Seen>) {
    while let Ok(Some(line)) = lines.next_line().await {
        let value: Value = match serde_json::from_str(&line) {
            Ok(value) => value,
            // Not an event: what a runtime prints for its user.
            Err(_) => {
                eprintln!("{line}");
                continue;
            }
        };
        let text = |field: &str| value[field].as_str().unwrap_or_default().to_owned();
        seen.add(Event {
            kind: text("event"),
            id: text("id"),
            previous_attempts: value["previous_attempts"].as_u64(),
            timeout: value["timeout_ms"].as_u64().map(Duration::from_millis),
            port: value["port"].as_u64().and_then(|port| port.try_into().ok()),
        });
    }
    seen.add(Event {
        kind: ENDED.to_owned(),
        id: String::new(),
        previous_attempts: None,
        timeout: None,
        port: None,
    });
}
