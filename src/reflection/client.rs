//! The questions to a server: its services, and the files that declare them.

use std::{
    collections::{BTreeMap, HashSet},
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use futures_core::Stream;
use http::uri::PathAndQuery;
use prost::{Message, bytes::Bytes};
use tokio::{sync::mpsc, time::timeout};
use tonic::{Code, Request, Status, Streaming, client::Grpc, transport::Channel};
use tonic_prost::ProstCodec;
use tonic_reflection::pb::v1::{
    ServerReflectionRequest as Question, ServerReflectionResponse as Answer,
    server_reflection_request::MessageRequest as Ask,
    server_reflection_response::MessageResponse as Said,
};

/// The two versions are the same but for their name.
const VERSIONS: [&str; 2] = [
    "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
];

/// Its own service says nothing of the user's methods.
const OWN: &str = "grpc.reflection.";

/// What every protobuf library brings along, and servers often leave out: it declares no service,
/// and cannot import our options.
const WELL_KNOWN: &str = "google/protobuf/";

/// The answer to one question.
const PATIENCE: Duration = Duration::from_secs(10);

/// More than any server has; without a bound an endless one would fill the memory.
const MOST_FILES: usize = 10_000;
const MOST_BYTES: usize = 64 << 20;

/// Why there is no descriptor set.
pub(super) enum Failed {
    /// Neither version is served.
    Unsupported,
    /// Something is missing: what is left could say less than there is, such as a veto.
    Incomplete(String),
    /// Worth another try.
    Status(Status),
}

/// A server's descriptor set, as bytes: decoded and encoded again it could lose extensions.
pub(super) async fn ask(server: &Channel) -> Result<Vec<u8>, Failed> {
    for path in VERSIONS {
        match version(server, PathAndQuery::from_static(path)).await {
            Err(Failed::Status(status)) if status.code() == Code::Unimplemented => {}
            result => return result,
        }
    }
    Err(Failed::Unsupported)
}

async fn version(server: &Channel, path: PathAndQuery) -> Result<Vec<u8>, Failed> {
    let mut dialogue = Dialogue::start(server, path).await?;
    let mut files = Files::default();
    for service in dialogue.services().await? {
        if !service.starts_with(OWN) {
            let found = dialogue
                .files(Ask::FileContainingSymbol(service.clone()))
                .await?;
            let found =
                found.ok_or_else(|| Failed::Incomplete(format!("no file declares {service}")))?;
            files.add(found)?;
        }
    }
    // Through a public import a file may see options that it does not import itself.
    while let Some(name) = files.missing.pop() {
        if files.known.contains_key(&name) || name.starts_with(WELL_KNOWN) {
            continue;
        }
        let found = dialogue.files(Ask::FileByFilename(name.clone())).await?;
        files.add(found.ok_or_else(|| Failed::Incomplete(format!("there is no file {name}")))?)?;
        if !files.known.contains_key(&name) {
            return Err(Failed::Incomplete(format!(
                "another file than {name} was given"
            )));
        }
    }
    Ok(files.into_set())
}

/// One stream, a question at a time.
struct Dialogue {
    questions: mpsc::Sender<Question>,
    answers: Streaming<Answer>,
}

impl Dialogue {
    async fn start(server: &Channel, path: PathAndQuery) -> Result<Self, Failed> {
        let (questions, receiver) = mpsc::channel(1);
        // Some servers send their head with the first answer only, so the first question goes first.
        let list = question(Ask::ListServices(String::new()));
        questions.try_send(list).map_err(|_| lost())?;
        let mut grpc = Grpc::new(server.clone()).max_decoding_message_size(MOST_BYTES);
        let ready = grpc.ready().await;
        ready.map_err(|error| Failed::Status(Status::from_error(error.into())))?;
        let codec = ProstCodec::<Question, Answer>::default();
        let asked = grpc.streaming(Request::new(Questions(receiver)), path, codec);
        let asked = timeout(PATIENCE, asked).await.map_err(|_| silent())?;
        let answers = asked.map_err(Failed::Status)?.into_inner();
        Ok(Self { questions, answers })
    }

    /// The answer to the first question.
    async fn services(&mut self) -> Result<Vec<String>, Failed> {
        match self.answer().await? {
            Said::ListServicesResponse(list) => Ok(list
                .service
                .into_iter()
                .map(|service| service.name)
                .collect()),
            other => Err(unexpected(&other)),
        }
    }

    /// Encoded files; `None` if the server does not know what was asked for.
    async fn files(&mut self, ask: Ask) -> Result<Option<Vec<Bytes>>, Failed> {
        self.questions
            .send(question(ask))
            .await
            .map_err(|_| lost())?;
        match self.answer().await? {
            Said::FileDescriptorResponse(found) => Ok(Some(
                found
                    .file_descriptor_proto
                    .into_iter()
                    .map(Bytes::from)
                    .collect(),
            )),
            Said::ErrorResponse(error) if error.error_code == Code::NotFound as i32 => Ok(None),
            other => Err(unexpected(&other)),
        }
    }

    async fn answer(&mut self) -> Result<Said, Failed> {
        let answer = timeout(PATIENCE, self.answers.message()).await;
        let answer = answer.map_err(|_| silent())?.map_err(Failed::Status)?;
        answer
            .and_then(|answer| answer.message_response)
            .ok_or_else(lost)
    }
}

fn question(ask: Ask) -> Question {
    Question {
        host: String::new(),
        message_request: Some(ask),
    }
}

fn lost() -> Failed {
    Failed::Status(Status::unavailable("the reflection stream ended early"))
}

fn silent() -> Failed {
    Failed::Status(Status::deadline_exceeded(format!(
        "no answer to a question in {PATIENCE:?}"
    )))
}

fn unexpected(said: &Said) -> Failed {
    Failed::Status(match said {
        Said::ErrorResponse(error) => {
            Status::new(Code::from(error.error_code), error.error_message.clone())
        }
        _ => Status::internal("reflection answered another question"),
    })
}

/// The questions of one stream.
struct Questions(mpsc::Receiver<Question>);

impl Stream for Questions {
    type Item = Question;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Question>> {
        self.0.poll_recv(cx)
    }
}

/// What of a file descriptor tells which others there are.
#[derive(Clone, PartialEq, Message)]
struct File {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, repeated, tag = "3")]
    dependency: Vec<String>,
}

/// A `google.protobuf.FileDescriptorSet`.
#[derive(Clone, PartialEq, Message)]
struct Set {
    #[prost(bytes = "bytes", repeated, tag = "1")]
    file: Vec<Bytes>,
}

#[derive(Default)]
struct Files {
    known: BTreeMap<String, Bytes>,
    missing: Vec<String>,
    asked: HashSet<String>,
    bytes: usize,
}

impl Files {
    fn add(&mut self, found: Vec<Bytes>) -> Result<(), Failed> {
        for bytes in found {
            let file = File::decode(bytes.clone())
                .map_err(|error| Failed::Incomplete(format!("a file cannot be read: {error}")))?;
            if self.known.contains_key(&file.name) {
                continue;
            }
            self.bytes += bytes.len();
            if self.known.len() >= MOST_FILES || self.bytes > MOST_BYTES {
                return Err(Failed::Incomplete(format!(
                    "more than {MOST_FILES} files or {MOST_BYTES} bytes"
                )));
            }
            for name in file.dependency {
                if self.asked.insert(name.clone()) {
                    self.missing.push(name);
                }
            }
            self.known.insert(file.name, bytes);
        }
        Ok(())
    }

    fn into_set(self) -> Vec<u8> {
        let file = self.known.into_values().collect();
        Set { file }.encode_to_vec()
    }
}
