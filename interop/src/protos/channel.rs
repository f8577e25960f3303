//! What a channel makes of a set, as far as its builder tells.

use tonic_hedge::{BuildError, Builder, Hedge, HedgedChannel, MethodPolicy};

/// A channel can be made with this set.
///
/// # Errors
/// Why not.
pub(crate) fn accepts(set: &[u8], get_is_trusted: bool) -> Result<(), BuildError> {
    builder(set, get_is_trusted).build().map(drop)
}

/// Why the method cannot have a hedge policy; `None` if it can.
pub(crate) fn refuses_to_hedge(set: &[u8], get_is_trusted: bool, path: &str) -> Option<String> {
    let policy = MethodPolicy::new().hedge(Hedge::at(0.95));
    let built = builder(set, get_is_trusted).method(path, policy).build();
    built.err().map(|error| error.to_string())
}

fn builder(set: &[u8], get_is_trusted: bool) -> Builder {
    // No call is made: a port where nothing listens.
    let builder = HedgedChannel::builder()
        .endpoints(["http://127.0.0.1:1"])
        .descriptors(set);
    match get_is_trusted {
        true => builder.http_get_is_idempotent(),
        false => builder,
    }
}
