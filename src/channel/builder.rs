//! Everything that a channel is made from, checked once, when it is built.

#[cfg(feature = "service-config")]
mod service_config;

use std::{error::Error, future::Future, hash::Hash, sync::Arc, time::Duration};

use futures_core::Stream;
use parking_lot::Mutex;
use tonic::transport::{Channel, Endpoint};
use tonic_hedge_engine::{
    measure::Lag,
    policy::{BreakerPolicy, BudgetPolicy, Hedge, PolicyError, Retry, Saturation},
};
use tower::discover::Change;

use super::{HedgedChannel, Settings, Shared};
use crate::{
    budget::{Budget, Tokens},
    circuit::{BreakerScope, Circuits},
    descriptor::{self, MethodDescriptor},
    endpoint::{Destination, EndpointSet, EndpointSpec, RESOLVE_INTERVAL},
    error::{BuildError, Kind},
    hooks::{AttemptResult, Classification, Classifier, NextAttempt, Targeting},
    learned::{Learned, Resumed},
    method::{Defaults, Estimator, Maker, MethodPolicies, MethodPolicy, MethodTable},
    saturation::Sampler,
    service_config::ServiceConfig,
    telemetry::{HedgeEvent, HedgeStart, Telemetry},
};
#[cfg(feature = "reflection")]
use crate::{method::Learner, reflection::Reflection};

/// A larger request body has one attempt: each further one would keep it in memory.
const BUFFER_LIMIT: usize = 1 << 20;

/// tonic's own default limit of a message, with room for its prefix. A response that is
/// longer is passed on as it comes.
const RESPONSE_LIMIT: usize = (4 << 20) + 5;

/// Attempts of one call. gRPC A6 caps its configuration at five; an original and its hedge
/// need two.
const MAX_ATTEMPTS: u32 = 3;

/// More attempts than this are a mistake, not a policy.
const MOST_ATTEMPTS: u32 = 16;

/// Builds a [`HedgedChannel`]. Exactly one of [`endpoints`](Self::endpoints),
/// [`discover`](Self::discover), [`dns`](Self::dns) and [`channel`](Self::channel) is needed;
/// all else has defaults. Mistakes are kept until [`build`](Self::build), which returns the
/// first.
#[derive(Debug)]
#[must_use = "a builder does nothing until it builds"]
pub struct Builder {
    endpoints: Option<EndpointSet>,
    descriptors: Vec<Vec<MethodDescriptor>>,
    http_get: bool,
    #[cfg(feature = "reflection")]
    reflection: bool,
    methods: MethodPolicies,
    service_config: Option<ServiceConfig>,
    hedge: Option<Hedge>,
    retry: Retry,
    max_attempts: u32,
    budget: BudgetChoice,
    breaker: Option<BreakerPolicy>,
    breaker_scope: BreakerScope,
    estimator: Estimator,
    saturation: Option<Saturation>,
    classifier: Option<Classifier>,
    targeting: Option<Targeting>,
    resumed: Option<Resumed>,
    buffer_limit: usize,
    response_limit: usize,
    telemetry: Telemetry,
    target_name: Option<String>,
    mistake: Option<BuildError>,
}

#[derive(Debug)]
enum BudgetChoice {
    Own(BudgetPolicy),
    Shared(Budget),
    Foreign(Tokens),
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            endpoints: None,
            descriptors: Vec::new(),
            http_get: false,
            #[cfg(feature = "reflection")]
            reflection: false,
            methods: MethodPolicies::default(),
            service_config: None,
            hedge: None,
            retry: Retry::default(),
            max_attempts: MAX_ATTEMPTS,
            budget: BudgetChoice::Own(BudgetPolicy::default()),
            breaker: Some(BreakerPolicy::default()),
            breaker_scope: BreakerScope::default(),
            estimator: Estimator::default(),
            saturation: None,
            classifier: None,
            targeting: None,
            resumed: None,
            buffer_limit: BUFFER_LIMIT,
            response_limit: RESPONSE_LIMIT,
            telemetry: Telemetry::default(),
            target_name: None,
            mistake: None,
        }
    }
}

/// What names an endpoint: a URI, a tonic `Endpoint` with its TLS, keepalive and timeouts, or
/// an [`EndpointSpec`] with a locality.
pub trait IntoEndpoint {
    /// The endpoint.
    ///
    /// # Errors
    /// A URI that cannot be read, or that has no scheme or host.
    fn into_endpoint(self) -> Result<EndpointSpec, BuildError>;
}

impl IntoEndpoint for &str {
    fn into_endpoint(self) -> Result<EndpointSpec, BuildError> {
        parse(self).map(Into::into)
    }
}

impl IntoEndpoint for String {
    fn into_endpoint(self) -> Result<EndpointSpec, BuildError> {
        self.as_str().into_endpoint()
    }
}

impl IntoEndpoint for &String {
    fn into_endpoint(self) -> Result<EndpointSpec, BuildError> {
        self.as_str().into_endpoint()
    }
}

impl IntoEndpoint for Endpoint {
    fn into_endpoint(self) -> Result<EndpointSpec, BuildError> {
        Ok(self.into())
    }
}

impl IntoEndpoint for EndpointSpec {
    fn into_endpoint(self) -> Result<EndpointSpec, BuildError> {
        Ok(self)
    }
}

impl Builder {
    /// A fixed list of endpoints, at least one. An address that is given twice counts once: a
    /// second stream to the same process is not an independent draw. Over TLS: see
    /// [`EndpointSpec`](EndpointSpec#tls).
    pub fn endpoints<I>(mut self, endpoints: I) -> Self
    where
        I: IntoIterator,
        I::Item: IntoEndpoint,
    {
        let specs: Result<Vec<_>, _> = endpoints
            .into_iter()
            .map(IntoEndpoint::into_endpoint)
            .collect();
        match specs {
            Ok(specs) if specs.is_empty() => self.mistaken(Kind::NoEndpoint.into()),
            Ok(specs) => self.source(EndpointSet::list(specs)),
            Err(error) => self.mistaken(error),
        }
        self
    }

    /// Endpoints that come and go, by key. An error of the stream is kept for the text of an
    /// UNAVAILABLE, and changes nothing else; nor does the stream's end.
    pub fn discover<S, K, V, E>(mut self, changes: S) -> Self
    where
        S: Stream<Item = Result<Change<K, V>, E>> + Send + 'static,
        K: Hash + Eq + Clone + Send + 'static,
        V: Into<EndpointSpec> + 'static,
        E: Into<Box<dyn Error + Send + Sync>> + 'static,
    {
        self.source(EndpointSet::stream(changes));
        self
    }

    /// All addresses of the name in `endpoint`'s URI, one endpoint each, resolved again every
    /// 30 s and sooner after failures. TLS asks for the name, not for an address.
    pub fn dns(mut self, endpoint: impl IntoDnsEndpoint) -> Self {
        let set = endpoint.into_dns_endpoint().and_then(|endpoint| {
            let text = endpoint.uri().to_string();
            EndpointSet::dns(endpoint, RESOLVE_INTERVAL).ok_or_else(|| {
                Kind::Uri {
                    text,
                    why: "has no host",
                }
                .into()
            })
        });
        match set {
            Ok(set) => self.source(set),
            Err(error) => self.mistaken(error),
        }
        self
    }

    /// One existing channel. All attempts go through it, and its balancer decides where: whether
    /// a hedge meets its original's endpoint cannot be told, and `measured()` says so; resets
    /// are rationed for all its connections together, as if they were one. It wants the setting
    /// that [`EndpointSpec::channel`] names. Right behind a proxy that balances each request;
    /// elsewhere name the endpoints.
    pub fn channel(mut self, channel: Channel) -> Self {
        self.source(EndpointSet::opaque(channel));
        self
    }

    /// A descriptor set, as `tonic-hedge-build`, `tonic-prost-build` or `protoc
    /// --descriptor_set_out --include_imports` writes it: it says which methods there are, which
    /// are unary, and which may be repeated. Several may be added; where two disagree about a
    /// method the stricter wins. A method in none of them has one attempt.
    pub fn descriptors(mut self, set: impl AsRef<[u8]>) -> Self {
        match descriptor::read(set.as_ref()) {
            Ok(methods) => self.descriptors.push(methods),
            Err(error) => self.mistaken(error.into()),
        }
        self
    }

    /// Learns which methods there are, and which may be repeated, from a server's reflection service
    /// (`grpc.reflection.v1`, else `v1alpha`). Default: it does not. Calls have one attempt each until a
    /// server has answered, which happens once, in the background, from the first call on; without a
    /// reflection service it stays so. [`Measured::reflection`](crate::Measured::reflection) says how
    /// far that is. Where a server and the sets that were given disagree about a method, the
    /// stricter wins. It asks without the metadata of the application's interceptors.
    ///
    /// A server that decodes its descriptors without knowing `(hedge.v1.method)`, such as tonic-reflection
    /// with `register_file_descriptor_set`, loses it, and what it says is refused.
    /// `register_encoded_file_descriptor_set` keeps it, and `idempotency_level` survives in any case.
    #[cfg(feature = "reflection")]
    pub fn reflection(mut self) -> Self {
        self.reflection = true;
        self
    }

    /// Takes a method whose `google.api.http` option maps it to a GET, and to nothing else first, for
    /// one with `NO_SIDE_EFFECTS`, unless it has an `idempotency_level` or a veto. Default: it does
    /// not. A GET has no side effects by HTTP's own rules (RFC 9110, 9.2.1), which services that
    /// follow Google's API style keep.
    pub fn http_get_is_idempotent(mut self) -> Self {
        self.http_get = true;
        self
    }

    /// What one method, `package.Service/Method`, may do and wants: for services whose `.proto` cannot
    /// be changed. A method that no descriptor set knows is known by this, and is taken to be unary:
    /// do not name one that streams, its messages would wait for each other. What the `.proto` says
    /// goes first.
    pub fn method(mut self, name: impl AsRef<str>, policy: MethodPolicy) -> Self {
        if let Err(error) = self.methods.add(name.as_ref(), policy) {
            self.mistaken(error);
        }
        self
    }

    /// When a call is hedged. Default: not at all, but for methods whose .proto asks for it.
    pub fn hedge(mut self, hedge: Hedge) -> Self {
        self.hedge = Some(hedge);
        self
    }

    /// How a failed attempt of a repeatable call is retried. Default: [`Retry::default`].
    pub fn retry(mut self, retry: Retry) -> Self {
        self.retry = retry;
        self
    }

    /// Attempts of one call in all, sequential or concurrent: one number. Default 3; 1 to 16.
    pub fn max_attempts(mut self, attempts: u32) -> Self {
        self.max_attempts = attempts;
        self
    }

    /// The budget of retries and hedges together. Default: [`BudgetPolicy::default`].
    pub fn budget(mut self, budget: BudgetPolicy) -> Self {
        self.budget = BudgetChoice::Own(budget);
        self
    }

    /// A budget that is shared with other channels.
    pub fn shared_budget(mut self, budget: Budget) -> Self {
        self.budget = BudgetChoice::Shared(budget);
        self
    }

    /// Somebody else's budget, by tower's trait. It has no balance to show, so gate 6 is known
    /// only when it is asked; and it takes no token back.
    pub fn tower_budget<B>(mut self, budget: B) -> Self
    where
        B: tower::retry::budget::Budget + Send + Sync + 'static,
    {
        self.budget = BudgetChoice::Foreign(Tokens::Foreign(Arc::new(budget)));
        self
    }

    /// When calls to a failing dependency stop. Default: [`BreakerPolicy::default`].
    pub fn breaker(mut self, breaker: BreakerPolicy) -> Self {
        self.breaker = Some(breaker);
        self
    }

    /// What one circuit breaker guards. Default: the channel.
    pub fn breaker_scope(mut self, scope: BreakerScope) -> Self {
        self.breaker_scope = scope;
        self
    }

    /// No circuit breaker: gates 3 and 4 always hold.
    pub fn without_breaker(mut self) -> Self {
        self.breaker = None;
        self
    }

    /// What is an answer and what a failure that another attempt could better, by the status, the
    /// metadata and, if it is asked for, the message. It is asked once for each complete response: not
    /// for a streamed answer whose first message ended the race, nor for one longer than
    /// [`response_limit`](Self::response_limit). The breaker and the load go by the status alone. It runs on the call's
    /// path, so it must not block. A panic in it is reported, and says nothing.
    ///
    /// ```
    /// # use tonic_hedge::{BuildError, Classification, Hedge, HedgedChannel};
    /// # fn build() -> Result<HedgedChannel, BuildError> {
    /// HedgedChannel::builder()
    ///     .endpoints(["http://10.0.0.1:50051", "http://10.0.0.2:50051"])
    ///     .hedge(Hedge::at(0.95))
    ///     // A replica that lags behind says so: another one may know more.
    ///     .classify(|result| match result.trailers().get("x-replica-is-stale") {
    ///         Some(_) => Classification::Failure,
    ///         None => Classification::Default,
    ///     })
    ///     .build()
    /// # }
    /// ```
    pub fn classify<F>(mut self, classify: F) -> Self
    where
        F: Fn(&AttemptResult<'_>) -> Classification + Send + Sync + 'static,
    {
        self.classifier = Some(Classifier::new(classify));
        self
    }

    /// Where each attempt goes, and what it carries: an endpoint, a locality, or what the picker
    /// chooses (`None`); metadata and extensions of its own. It is asked just before an attempt
    /// starts, the original included, once all gates hold and `on_hedge` is over; and again each time
    /// that the attempt waits for a connection, or loses one before it was sent: so it should choose by
    /// what it is shown, not by counting. An endpoint that does not exist or is down is reported, and
    /// the picker chooses; one that is being connected is waited for by an original or a retry, and
    /// keeps a hedge back. It runs on the call's path, so it must not block. A panic in it
    /// is reported, and chooses nothing.
    ///
    /// ```
    /// # use tonic_hedge::{BuildError, Destination, Hedge, HedgedChannel};
    /// # fn build() -> Result<HedgedChannel, BuildError> {
    /// HedgedChannel::builder()
    ///     .endpoints(["http://10.0.0.1:50051", "http://10.0.0.2:50051"])
    ///     .hedge(Hedge::at(0.95))
    ///     .target_with(|attempt| {
    ///         let key = attempt.metadata().get("x-shard")?.to_str().ok()?;
    ///         let primary = key.len() % 2 == 0;
    ///         match (attempt.number(), primary) {
    ///             (0, true) => Some(Destination::endpoint("10.0.0.1:50051")),
    ///             (0, false) => Some(Destination::endpoint("10.0.0.2:50051")),
    ///             _ => None,
    ///         }
    ///     })
    ///     .build()
    /// # }
    /// ```
    pub fn target_with<F>(mut self, choose: F) -> Self
    where
        F: Fn(&mut NextAttempt<'_>) -> Option<Destination> + Send + Sync + 'static,
    {
        self.targeting = Some(Targeting::new(choose));
        self
    }

    /// Holds hedges back while this process is the bottleneck. Default: off.
    pub fn saturation(mut self, saturation: Saturation) -> Self {
        self.saturation = Some(saturation);
        self
    }

    /// What measures latency. Default: [`Estimator::Ring`].
    pub fn estimator(mut self, estimator: Estimator) -> Self {
        self.estimator = estimator;
        self
    }

    /// Goes on from what an earlier process had learnt ([`HedgedChannel::learned`]): the first call of
    /// a method has its threshold, and a method whose hedges did not win starts as carefully as it had
    /// become. What was learnt counts as if recorded when the channel is built, so it leaves the
    /// estimates after one window.
    ///
    /// Nothing is taken of what is older than `max_age` or more than a minute from the future, or was
    /// written by a version that wrote it otherwise. Methods that are not this channel's, endpoints and
    /// localities that it does not use, and values out of bounds are left out. None of this is an
    /// error, and one log line tells it. Only [`Estimator::Ring`] takes and hands on latencies.
    ///
    /// A process that ends within a window hands on what it was handed as if it had measured it now:
    /// one that restarts again and again should keep its first file.
    ///
    /// ```
    /// use std::{fs, time::Duration};
    /// use tonic_hedge::{BuildError, Hedge, HedgedChannel};
    ///
    /// fn build() -> Result<HedgedChannel, BuildError> {
    ///     let mut builder = HedgedChannel::builder()
    ///         .endpoints(["http://10.0.0.1:50051", "http://10.0.0.2:50051"])
    ///         .hedge(Hedge::at(0.95));
    ///     let file = fs::read("/var/lib/search/learned.json").unwrap_or_default();
    ///     if let Ok(learned) = serde_json::from_slice(&file) {
    ///         builder = builder.resume(learned, Duration::from_secs(600));
    ///     }
    ///     builder.build()
    /// }
    ///
    /// fn save(channel: &HedgedChannel) -> std::io::Result<()> {
    ///     let learned = serde_json::to_vec(&channel.learned())?;
    ///     fs::write("/var/lib/search/learned.json", learned)
    /// }
    /// # build().unwrap();
    /// ```
    pub fn resume(mut self, learned: Learned, max_age: Duration) -> Self {
        self.resumed = learned.accept(max_age);
        self
    }

    /// The largest request body, in bytes, that more than one attempt can send. Default 1 MiB;
    /// at least 1.
    pub fn buffer_limit(mut self, bytes: usize) -> Self {
        self.buffer_limit = bytes;
        self
    }

    /// The bytes of a response that are held back until its status has come: a longer one
    /// ends the race as it is. Default 4 MiB and a message's prefix; at least 1.
    pub fn response_limit(mut self, bytes: usize) -> Self {
        self.response_limit = bytes;
        self
    }

    /// Where spans go. Default: the global provider, looked up at each call.
    #[cfg(feature = "telemetry")]
    pub fn tracer_provider<P>(mut self, provider: &P) -> Self
    where
        P: opentelemetry::trace::TracerProvider,
        P::Tracer: Send + Sync + 'static,
        <P::Tracer as opentelemetry::trace::Tracer>::Span: Send + Sync + 'static,
    {
        self.telemetry.set_tracer_provider(provider);
        self
    }

    /// What a call's span hangs under. Default: the current context, which is right with
    /// `tracing-opentelemetry` 0.34 or later, unless its context activation is off.
    #[cfg(feature = "telemetry")]
    pub fn parent_context<F>(mut self, parent: F) -> Self
    where
        F: Fn() -> opentelemetry::Context + Send + Sync + 'static,
    {
        self.telemetry.set_parent_context(parent);
        self
    }

    /// Where metrics go. Default: the global provider; one that is installed after the first call
    /// is found within a tenth of a second. Give all channels clones of one `Arc`: they share their
    /// instruments then, as those on the global provider do, while each new `Arc` leaves callbacks in
    /// the SDK that it cannot take back.
    #[cfg(feature = "telemetry")]
    pub fn meter_provider(
        mut self,
        provider: Arc<dyn opentelemetry::metrics::MeterProvider + Send + Sync>,
    ) -> Self {
        self.telemetry.set_meter_provider(provider);
        self
    }

    /// What metrics call this channel: their attribute `grpc.target`. Default: the name that
    /// [`dns`](Self::dns) resolves, as `dns:///host:port`; the first three endpoints of a list;
    /// or `discover`, or `channel`. Two channels of one name are one to gauges: whichever is
    /// read last is shown.
    pub fn target_name(mut self, name: impl Into<String>) -> Self {
        self.target_name = Some(name.into());
        self
    }

    /// Awaited before each hedge, once all gates and holds let it start. The hedge does not
    /// depend on it: an error or a panic is logged, and so is that it is not ready after 100 ms;
    /// then the hedge starts. The race goes on meanwhile: it drops the future if it ends first, and
    /// waits for it no longer when an attempt fails. It is polled by the call, so it must not
    /// block, as no future may. One that holds a clone of the channel keeps both for ever.
    ///
    /// ```
    /// # use tonic_hedge::{BuildError, Hedge, HedgedChannel, HedgeStart};
    /// # fn build() -> Result<HedgedChannel, BuildError> {
    /// HedgedChannel::builder()
    ///     .endpoints(["http://10.0.0.1:50051", "http://10.0.0.2:50051"])
    ///     .hedge(Hedge::at(0.95))
    ///     .on_hedge(|hedge: HedgeStart| async move {
    ///         println!("{} is slow: {:?}", hedge.method, hedge.elapsed);
    ///         Ok::<(), std::io::Error>(())
    ///     })
    ///     .build()
    /// # }
    /// ```
    pub fn on_hedge<F, R, E>(mut self, observer: F) -> Self
    where
        F: Fn(HedgeStart) -> R + Send + Sync + 'static,
        R: Future<Output = Result<(), E>> + Send + 'static,
        E: Into<Box<dyn Error + Send + Sync>>,
    {
        self.telemetry.observers().set_on_hedge(observer);
        self
    }

    /// Told of each hedge that was started, won, discarded or kept back, in their order, on a
    /// thread of its own. That starts with the first event, and ends when the channel is dropped and
    /// all events are told; an observer that holds a clone of the channel keeps both for ever. A
    /// panic is logged. Events wait in a queue of 4,096; an observer that does not keep up loses
    /// some, which is logged and counted in [`Measured::events_lost`](crate::Measured).
    pub fn on_event<F>(mut self, observer: F) -> Self
    where
        F: Fn(&HedgeEvent) + Send + Sync + 'static,
    {
        self.telemetry.observers().set_on_event(observer);
        self
    }

    /// Builds the channel. Connects to nothing, and needs no runtime.
    ///
    /// # Errors
    /// The first mistake: its text names the setting, the value and the bound.
    pub fn build(mut self) -> Result<HedgedChannel, BuildError> {
        if let Some(mistake) = self.mistake {
            return Err(mistake);
        }
        if let Some(hedge) = &self.hedge {
            hedge.validate()?;
        }
        self.retry.validate()?;
        if let Some(breaker) = &self.breaker {
            breaker.validate()?;
        }
        within(
            "HedgedChannel.max_attempts",
            self.max_attempts,
            1..=MOST_ATTEMPTS,
            "in [1, 16]",
        )?;
        within(
            "HedgedChannel.buffer_limit",
            self.buffer_limit,
            1..=usize::MAX,
            "at least 1",
        )?;
        within(
            "HedgedChannel.response_limit",
            self.response_limit,
            1..=usize::MAX,
            "at least 1",
        )?;
        let service_config = self.service_config.unwrap_or_default();
        if let Some(throttling) = service_config.budget() {
            self.budget = match self.budget {
                BudgetChoice::Own(_) => BudgetChoice::Own(throttling.clone()),
                BudgetChoice::Shared(_) => return Err(Kind::TwoBudgets("shared_budget").into()),
                BudgetChoice::Foreign(_) => return Err(Kind::TwoBudgets("tower_budget").into()),
            };
        }
        let hedges = self.hedge.is_some();
        let defaults = Defaults {
            hedge: self.hedge,
            retry: self.retry,
            max_attempts: self.max_attempts,
            estimator: self.estimator,
            classifier: self.classifier,
            targeting: self.targeting,
            policies: self.methods,
            service_config,
        };
        let endpoints = self.endpoints.ok_or(Kind::NoSource)?;
        let target = self.target_name.unwrap_or_else(|| endpoints.target());
        self.telemetry.start(&target);
        let telemetry = Arc::new(self.telemetry);
        let circuits = Circuits::new(self.breaker, self.breaker_scope);
        let maker = Maker {
            http_get: self.http_get,
            defaults,
            circuits: Arc::new(Mutex::new(circuits)),
            telemetry: Arc::clone(&telemetry),
            resumed: self.resumed.map(|it| it.at(telemetry.epoch().elapsed())),
        };
        let own = maker.checked(self.descriptors)?;
        let methods = MethodTable::new(&own, &maker)?;
        if let Some(resumed) = &maker.resumed {
            resumed.tell(&methods);
        }
        let circuits = Arc::clone(&maker.circuits);
        #[cfg(feature = "reflection")]
        let reflection = self
            .reflection
            .then(|| Reflection::new(Learner { own, maker }));
        #[cfg(feature = "reflection")]
        let hedges = hedges && reflection.is_none();
        if hedges && methods.is_empty() {
            tracing::warn!(
                channel = %target,
                "nothing will be hedged: no method is known (Builder::descriptors)"
            );
        }
        let settings = Settings {
            methods,
            endpoints,
            budget: match self.budget {
                BudgetChoice::Own(policy) => Budget::new(&policy)?.tokens(telemetry.epoch()),
                BudgetChoice::Shared(budget) => budget.tokens(telemetry.epoch()),
                BudgetChoice::Foreign(tokens) => tokens,
            },
            saturation: match &self.saturation {
                Some(policy) => Some(Sampler::new(Lag::new(policy)?)),
                None => None,
            },
            circuits,
            #[cfg(feature = "reflection")]
            reflection,
            telemetry,
            buffer_limit: self.buffer_limit,
            response_limit: self.response_limit,
        };
        Ok(HedgedChannel {
            shared: Shared::new(settings),
        })
    }

    fn source(&mut self, set: EndpointSet) {
        if self.endpoints.is_some() {
            self.mistaken(Kind::TwoSources.into());
        }
        self.endpoints = Some(set);
    }

    /// The first mistake counts.
    fn mistaken(&mut self, error: BuildError) {
        self.mistake.get_or_insert(error);
    }
}

fn within<T: PartialOrd + std::fmt::Display>(
    field: &'static str,
    value: T,
    bounds: std::ops::RangeInclusive<T>,
    bound: &'static str,
) -> Result<(), PolicyError> {
    match bounds.contains(&value) {
        true => Ok(()),
        false => Err(PolicyError::new(field, value, bound)),
    }
}

/// What names a host to resolve: a URI like `http://search.internal:50051`, or a tonic
/// `Endpoint` with its TLS, keepalive and timeouts.
pub trait IntoDnsEndpoint {
    /// The endpoint.
    ///
    /// # Errors
    /// A URI that cannot be read, or that has no scheme or host.
    fn into_dns_endpoint(self) -> Result<Endpoint, BuildError>;
}

impl IntoDnsEndpoint for &str {
    fn into_dns_endpoint(self) -> Result<Endpoint, BuildError> {
        parse(self)
    }
}

impl IntoDnsEndpoint for String {
    fn into_dns_endpoint(self) -> Result<Endpoint, BuildError> {
        parse(&self)
    }
}

impl IntoDnsEndpoint for Endpoint {
    fn into_dns_endpoint(self) -> Result<Endpoint, BuildError> {
        Ok(self)
    }
}

fn parse(text: &str) -> Result<Endpoint, BuildError> {
    let why = |why| {
        BuildError::from(Kind::Uri {
            text: text.to_owned(),
            why,
        })
    };
    let endpoint = Endpoint::new(text.to_owned()).map_err(|error| Kind::Endpoint {
        text: text.to_owned(),
        error,
    })?;
    // tonic keeps a Unix socket's path to itself.
    if text.starts_with("unix:") {
        return Ok(endpoint);
    }
    if endpoint.uri().scheme().is_none() {
        return Err(why("has no scheme: write http:// or https:// before it"));
    }
    if endpoint.uri().host().is_none_or(str::is_empty) {
        return Err(why("has no host"));
    }
    // A port that cannot be read would silently be the scheme's own.
    let host = endpoint.uri().host().unwrap_or_default();
    let authority = endpoint.uri().authority().map_or("", |it| it.as_str());
    if endpoint.uri().port_u16().is_none() && !authority.ends_with(host) {
        return Err(why("has a port that is not in [0, 65535]"));
    }
    Ok(endpoint)
}
