//! The generated code of `proto/gateway/v1/chat.proto`.

#![allow(missing_docs, unreachable_pub)]

tonic::include_proto!("gateway.v1");

/// The method that is hedged, as the channel names it.
pub(crate) const METHOD: &str = "gateway.v1.Chat/Stream";
