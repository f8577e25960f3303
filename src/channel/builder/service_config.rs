//! Takes gRPC's service config, and says what each of its fields means here.

use std::{fs, path::Path};

use super::Builder;
use crate::{error::Kind, service_config::ServiceConfig};

impl Builder {
    /// gRPC's service config, in its JSON form (gRFC A6), from a string. What it says of a method
    /// goes before what this builder says, and after what the `.proto` says.
    ///
    /// Of `methodConfig`, one entry is a method's: the one that names it, else the one for its
    /// service, else the one for all (`{}`), and it counts whole.
    ///
    /// - `hedgingPolicy`: [`Hedge::after`](crate::Hedge::after) its `hedgingDelay`, with `maxAttempts`
    ///   both in all and at once. A failure starts the next attempt at once, without a backoff. Gates
    ///   and holds stay as they are: a hedge goes to an endpoint that the call has not used, or not
    ///   at all.
    /// - `retryPolicy`: no hedging, and retries with its backoffs, drawn from the whole range below
    ///   them ([`Retry`](crate::Retry)); A6 draws from 0.8 to 1.2 times the backoff.
    /// - `nonFatalStatusCodes`, `retryableStatusCodes`: exactly the codes that are failures;
    ///   UNAVAILABLE is among them only if it is listed. `maxAttempts` over 5 is 5.
    /// - `timeout`: the call's deadline is the sooner of this and the caller's. It is the one thing
    ///   that holds for calls that stream as well, and for methods that nobody knows.
    /// - `retryThrottling`: the channel's budget, in place of [`budget`](Self::budget). Capacity and
    ///   initial tokens are half of `maxTokens`, at least 1: A6 stops at the other half. The ratio is
    ///   `tokenRatio`, at most 1. Unlike A6's count, each call adds to it and not each success, and
    ///   each further attempt costs a token and not each failure: it bounds the load that further
    ///   attempts make, also where they succeed.
    ///
    /// gRPC takes a policy as the permission to send a call twice. Here a policy declares a method
    /// idempotent, as [`MethodPolicy::idempotent`](crate::MethodPolicy::idempotent) does, where its
    /// entry names this very method and nobody vetoes it; a veto leaves it with one attempt and is no
    /// error, since the config may come from elsewhere. An entry for a service or for all methods
    /// applies to those that are declared otherwise. A method has a policy only if a descriptor set or
    /// [`method`](Self::method) knows it, for it may stream; a policy of one that streams is read
    /// over, unless the first message of its answer is hedged.
    ///
    /// Other keys are read over, `loadBalancingConfig` and `waitForReady` among them. Nothing is
    /// looked for in DNS (gRFC A2): the system's resolver gives addresses, not TXT records.
    ///
    /// It is a mistake, whose text names the path, the value and the bound, if the text is no JSON
    /// object or if any value in it is out of A6's bounds; then nothing of it is taken. So are two
    /// configs, and `retryThrottling` together with [`shared_budget`](Self::shared_budget) or
    /// [`tower_budget`](Self::tower_budget).
    ///
    /// ```
    /// # use tonic_hedge::{BuildError, HedgedChannel, MethodPolicy};
    /// # fn build() -> Result<HedgedChannel, BuildError> {
    /// HedgedChannel::builder()
    ///     .endpoints(["http://10.0.0.1:50051", "http://10.0.0.2:50051"])
    ///     // Without a descriptor set: that it is unary.
    ///     .method("search.Search/Find", MethodPolicy::new())
    ///     .service_config(
    ///         r#"{"methodConfig": [{
    ///             "name": [{"service": "search.Search", "method": "Find"}],
    ///             "timeout": "2s",
    ///             "hedgingPolicy": {
    ///                 "maxAttempts": 2,
    ///                 "hedgingDelay": "0.05s",
    ///                 "nonFatalStatusCodes": ["UNAVAILABLE"]
    ///             }
    ///         }]}"#,
    ///     )
    ///     .build()
    /// # }
    /// # build().unwrap();
    /// let wrong = r#"{"methodConfig": [{"hedgingPolicy": {"maxAttempts": 1}}]}"#;
    /// let error = HedgedChannel::builder().service_config(wrong).build().unwrap_err();
    /// assert_eq!(
    ///     error.to_string(),
    ///     "HedgedChannel.service_config: methodConfig[0].hedgingPolicy.maxAttempts: 1 is not at least 2",
    /// );
    /// ```
    pub fn service_config(mut self, json: impl AsRef<str>) -> Self {
        match ServiceConfig::parse(json.as_ref()) {
            Ok(_) if self.service_config.is_some() => {
                self.mistaken(Kind::ServiceConfigTwice.into());
            }
            Ok(config) => self.service_config = Some(config),
            Err(error) => self.mistaken(Kind::ServiceConfig(error).into()),
        }
        self
    }

    /// A [service config](Self::service_config) from a file, which is read now and never again.
    /// It is a mistake if it cannot be read.
    pub fn service_config_file(mut self, path: impl AsRef<Path>) -> Self {
        let path = path.as_ref();
        match fs::read_to_string(path) {
            Ok(json) => self.service_config(json),
            Err(error) => {
                let path = path.to_owned();
                self.mistaken(Kind::ServiceConfigFile { path, error }.into());
                self
            }
        }
    }
}
