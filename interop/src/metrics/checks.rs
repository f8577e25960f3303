//! What must hold of the metrics once all calls have ended.

use std::collections::{BTreeMap, BTreeSet};

use interop::{Outcome, ensure};

use crate::{
    admission::{Admitted, LANES},
    documented::Metric,
    prometheus::{Prometheus, Time},
    traffic::{BROKEN, INVENTED, REFUSING, Sent, TAIL},
};

/// Labels that say who was scraped, and which library measured.
const ALWAYS: [&str; 6] = [
    "__name__",
    "instance",
    "job",
    "otel_scope_name",
    "otel_scope_version",
    "otel_scope_schema_url",
];

/// What Prometheus knows, from the first scrape to one after the last call.
pub(crate) struct Scraped<'a> {
    pub(crate) prometheus: &'a Prometheus,
    pub(crate) time: (Time, Time),
    pub(crate) sent: &'a BTreeMap<&'static str, Sent>,
}

impl Scraped<'_> {
    /// Each second it was there, and there were some seconds.
    pub(crate) async fn target_is_up(&self) -> Outcome {
        let up = self.prometheus.range("up", self.time).await?;
        ensure!(up.len() == 1, "{up:?}");
        ensure!(up[0].1.len() >= 8, "{up:?}");
        ensure!(up[0].1.iter().all(|it| *it == 1.0), "{up:?}");
        let service = r#"target_info{service_name="interop-metrics"}"#;
        ensure!(self.last(service).await? == 1.0, "no {service}");
        Ok(())
    }

    /// A metric has the name, type, unit, buckets and attributes that are documented.
    pub(crate) async fn is_documented(&self, metric: &Metric) -> Outcome {
        let name = metric.in_prometheus();
        let known = self.prometheus.metadata().await?;
        let (kind, help) = known.get(&name).ok_or_else(|| format!("no {name}"))?;
        ensure!(*kind == metric.kind, "{kind}");
        ensure!(!help.is_empty(), "{name}");
        let mut labels = metric.labels();
        labels.extend(ALWAYS.map(str::to_owned));
        let series = match metric.kind == "histogram" {
            true => {
                labels.insert("le".to_owned());
                format!("{name}_bucket")
            }
            false => name,
        };
        let observed = self.prometheus.labels(&series).await?;
        ensure!(observed == labels, "{observed:?}, documented: {labels:?}");
        if metric.kind == "histogram" {
            let bounds = self.prometheus.label_values("le", &series).await?;
            let bounds: Result<Vec<f64>, _> = bounds.iter().map(|it| it.parse()).collect();
            let mut bounds = bounds?;
            bounds.sort_by(f64::total_cmp);
            ensure!(bounds.pop() == Some(f64::INFINITY), "{bounds:?}");
            ensure!(bounds == metric.bounds, "{bounds:?}");
        }
        Ok(())
    }

    /// Every metric that there is has its row.
    pub(crate) async fn all_are_documented(&self, documented: &[Metric]) -> Outcome {
        let known: BTreeSet<_> = self.prometheus.metadata().await?.into_keys().collect();
        let ours = known.into_iter().filter(|it| {
            ["grpc_", "rpc_", "hedge_"]
                .iter()
                .any(|start| it.starts_with(start))
        });
        let ours: BTreeSet<_> = ours.collect();
        let documented = documented.iter().map(Metric::in_prometheus).collect();
        ensure!(ours == documented, "{ours:?}, documented: {documented:?}");
        Ok(())
    }

    /// One duration for each call, by its code.
    pub(crate) async fn one_duration_per_call(&self, target: &str) -> Outcome {
        let query = format!(
            r#"sum by (grpc_status) (grpc_client_call_duration_seconds_count{{grpc_target="{target}"}})"#
        );
        let observed = self.by(&query, ["grpc_status"]).await?;
        let expected = &self.sent(target)?.codes;
        let expected: BTreeMap<_, _> = expected
            .iter()
            .map(|(code, count)| ([(*code).to_owned()], *count as f64))
            .collect();
        ensure!(observed == expected, "{observed:?}, sent: {expected:?}");
        Ok(())
    }

    /// The RPC conventions' duration has as many, of all channels together.
    pub(crate) async fn both_durations(&self) -> Outcome {
        for side in ["count", "sum"] {
            let grpc = self
                .last(&format!("sum(grpc_client_call_duration_seconds_{side})"))
                .await?;
            let rpc = self
                .last(&format!("sum(rpc_client_call_duration_seconds_{side})"))
                .await?;
            // Sums of the same numbers in another order.
            ensure!((grpc - rpc).abs() < 1e-6 * grpc, "{side}: {grpc}, {rpc}");
        }
        Ok(())
    }

    /// Attempts started are calls, less those that none was made for, and what came on top.
    pub(crate) async fn attempts_started(&self, target: &str) -> Outcome {
        let of = |metric: &str| format!(r#"sum({metric}{{grpc_target="{target}"}})"#);
        let started = self.last(&of("grpc_client_attempt_started_total")).await?;
        let calls = self
            .last(&of("grpc_client_call_duration_seconds_count"))
            .await?;
        let mut further = 0.0;
        for metric in ["retries", "hedges", "transparent_retries"] {
            further += self
                .last(&of(&format!("grpc_client_call_{metric}_sum")))
                .await?;
        }
        let sent = self.sent(target)?;
        let refused = (sent.calls - sent.of_kind("original")) as f64;
        ensure!(
            started == calls - refused + further,
            "{started}: {calls} - {refused} + {further}"
        );
        ensure!(started == sent.attempts() as f64, "{started}, {sent:?}");
        ensure!(
            (target == BROKEN) == (refused > 0.0),
            "{refused} calls had no attempt"
        );
        let ended = self
            .last(&of("grpc_client_attempt_duration_seconds_count"))
            .await?;
        ensure!(started == ended, "{started} started, {ended} ended");
        Ok(())
    }

    /// Kinds and outcomes are those of the call logs.
    pub(crate) async fn attempts_as_logged(&self, target: &str) -> Outcome {
        let query =
            format!(r#"sum by (kind, outcome) (hedge_attempts_total{{grpc_target="{target}"}})"#);
        let observed = self.by(&query, ["kind", "outcome"]).await?;
        let logged = self.sent(target)?.attempts.iter();
        let logged: BTreeMap<_, _> = logged
            .map(|((kind, outcome), count)| {
                ([(*kind).to_owned(), (*outcome).to_owned()], *count as f64)
            })
            .collect();
        ensure!(observed == logged, "{observed:?}, logged: {logged:?}");
        Ok(())
    }

    /// Each hedge that started has won, or was discarded, or failed.
    pub(crate) async fn hedges(&self) -> Outcome {
        let of = |outcome: &str| {
            format!(r#"sum(hedge_hedges_total{{grpc_target="{TAIL}",outcome="{outcome}"}})"#)
        };
        let started = self.last(&of("started")).await?;
        let won = self.last(&of("won")).await?;
        let discarded = self.last(&of("discarded")).await?;
        let failed = self.last(&of("failed")).await?;
        ensure!(
            started == won + discarded + failed,
            "{started}: {won} + {discarded} + {failed}"
        );
        ensure!(
            won > 0.0 && discarded > 0.0 && failed > 0.0,
            "{won}, {discarded}, {failed}"
        );
        let sent = self.sent(TAIL)?;
        ensure!(
            started == sent.of_kind("hedge") as f64,
            "{started}, {sent:?}"
        );
        ensure!(won == sent.won as f64, "{won}, {sent:?}");
        let of_target = |metric: &str| format!(r#"sum({metric}{{grpc_target="{TAIL}"}})"#);
        let of_calls = self.last(&of_target("grpc_client_call_hedges_sum")).await?;
        ensure!(of_calls == started, "{of_calls}, {started} started");
        // Less those that a failure made due.
        let outran = self
            .last(&of_target("hedge_threshold_seconds_count"))
            .await?;
        ensure!(
            outran > 0.0 && outran <= started,
            "{outran}, {started} started"
        );
        Ok(())
    }

    /// By gate, as the channel counts them, and these among them.
    pub(crate) async fn suppressed(&self, target: &str, gates: &[&str]) -> Outcome {
        let query = format!(
            r#"sum by (gate) (hedge_hedges_total{{grpc_target="{target}",outcome="suppressed"}})"#
        );
        let observed = self.by(&query, ["gate"]).await?;
        let expected = self.sent(target)?.suppressed.iter();
        let expected: BTreeMap<_, _> = expected
            .map(|(gate, count)| ([(*gate).to_owned()], *count as f64))
            .collect();
        ensure!(observed == expected, "{observed:?}, measured: {expected:?}");
        for gate in gates {
            ensure!(
                observed.contains_key(&[(*gate).to_owned()]),
                "{gate}: {observed:?}"
            );
        }
        Ok(())
    }

    /// What each channel has left.
    pub(crate) async fn budget(&self) -> Outcome {
        let observed = self.by("hedge_budget_balance", ["grpc_target"]).await?;
        let expected = self.sent.iter();
        let expected: BTreeMap<_, _> = expected
            .map(|(target, sent)| ([(*target).to_owned()], sent.budget))
            .collect();
        ensure!(observed == expected, "{observed:?}, measured: {expected:?}");
        Ok(())
    }

    /// Each breaker is in one state at a time; one was open, once, and is closed again.
    pub(crate) async fn breaker(&self) -> Outcome {
        let states = "sum by (grpc_target, breaker) (hedge_breaker_state)";
        let states = self.prometheus.range(states, self.time).await?;
        ensure!(states.len() == self.sent.len(), "{states:?}");
        let one = |values: &Vec<f64>| values.iter().all(|value| *value == 1.0);
        ensure!(states.iter().all(|(_, values)| one(values)), "{states:?}");
        let open = r#"hedge_breaker_state{state="open"}"#;
        for (labels, values) in self.prometheus.range(open, self.time).await? {
            let opened = values.windows(2).filter(|pair| pair[0] < pair[1]).count();
            ensure!(
                opened == usize::from(labels["grpc_target"] == BROKEN),
                "{labels:?} {values:?}"
            );
            ensure!(values.last() == Some(&0.0), "{labels:?} {values:?}");
        }
        let rates = self
            .by("hedge_breaker_error_rate_ratio", ["grpc_target"])
            .await?;
        ensure!(!rates.is_empty(), "no error rate");
        ensure!(
            rates.values().all(|it| (0.0..1.0).contains(it)),
            "{rates:?}"
        );
        Ok(())
    }

    /// The threshold that calls must outrun, and those that hedges did: the floor at least.
    pub(crate) async fn threshold(&self) -> Outcome {
        let get = format!(r#"{{grpc_target="{TAIL}",grpc_method="hedge.testing.v1.Probe/Get"}}"#);
        let now = self
            .last(&format!("hedge_threshold_current_seconds{get}"))
            .await?;
        ensure!((0.025..0.15).contains(&now), "{now}");
        let below = get.replace('}', r#",le="0.02"}"#);
        let below = self
            .last(&format!("hedge_threshold_seconds_bucket{below}"))
            .await?;
        ensure!(below == 0.0, "{below} below the floor");
        Ok(())
    }

    /// Three of them, in order.
    pub(crate) async fn quantiles(&self) -> Outcome {
        let query = format!(
            r#"hedge_latency_seconds{{grpc_target="{TAIL}",grpc_method="hedge.testing.v1.Probe/Get"}}"#
        );
        let latency = self.by(&query, ["quantile"]).await?;
        let names: Vec<_> = latency.keys().map(|[name]| &**name).collect();
        ensure!(names == ["0.5", "0.95", "0.99"], "{latency:?}");
        let values: Vec<_> = latency.values().collect();
        ensure!(values.is_sorted() && *values[0] > 0.0, "{latency:?}");
        Ok(())
    }

    /// Hedges that win a fifth of the time are all let start.
    pub(crate) async fn allowance(&self) -> Outcome {
        let query = "hedge_win_rate_allowance_ratio";
        let allowances = self.by(query, ["grpc_target", "grpc_method"]).await?;
        ensure!(!allowances.is_empty(), "none");
        ensure!(
            allowances.keys().all(|[target, _]| target == TAIL),
            "{allowances:?}"
        );
        ensure!(
            allowances.values().all(|it| *it > 0.0 && *it <= 1.0),
            "{allowances:?}"
        );
        Ok(())
    }

    /// Nothing is under way at any endpoint; each that answered has a latency.
    pub(crate) async fn endpoints(&self) -> Outcome {
        let names = ["grpc_target", "endpoint"];
        let in_flight = self.by("hedge_endpoint_in_flight", names).await?;
        let expected: usize = self.sent.values().map(|sent| sent.endpoints).sum();
        ensure!(in_flight.len() == expected, "{in_flight:?}");
        ensure!(in_flight.values().all(|it| *it == 0.0), "{in_flight:?}");
        let latency = self.by("hedge_endpoint_latency_seconds", names).await?;
        ensure!(latency.values().all(|it| *it > 0.0), "{latency:?}");
        // One never answers.
        ensure!(latency.len() + 1 >= expected, "{latency:?}");
        Ok(())
    }

    /// A thousand methods that nobody knows are one value.
    pub(crate) async fn cardinality(&self) -> Outcome {
        let methods = self
            .prometheus
            .label_values("grpc_method", r#"{grpc_method!=""}"#)
            .await?;
        let methods: Vec<_> = methods.iter().map(String::as_str).collect();
        let known = [
            "hedge.testing.v1.Probe/Get",
            "hedge.testing.v1.Probe/Put",
            "other",
        ];
        ensure!(methods == known, "{methods:?}");
        let rpc = self
            .prometheus
            .label_values("rpc_method", r#"{rpc_method!=""}"#)
            .await?;
        let rpc: Vec<_> = rpc.iter().map(String::as_str).collect();
        ensure!(rpc == ["_OTHER", known[0], known[1]], "{rpc:?}");
        for other in [
            r#"sum(grpc_client_call_duration_seconds_count{grpc_method="other"})"#,
            r#"sum(rpc_client_call_duration_seconds_count{rpc_method="_OTHER"})"#,
        ] {
            let calls = self.last(other).await?;
            ensure!(calls == INVENTED as f64, "{calls} of {other}");
        }
        let series = r#"count({grpc_target="tail",grpc_method="other",__name__!~".*_bucket"})"#;
        let series = self.last(series).await?;
        ensure!(series < 30.0, "{series} series");
        Ok(())
    }

    /// Replacements of attempts that a server refused to look at.
    pub(crate) async fn replacements(&self) -> Outcome {
        let query =
            format!(r#"sum(grpc_client_call_transparent_retries_sum{{grpc_target="{REFUSING}"}})"#);
        let replacements = self.last(&query).await?;
        let logged = self.sent(REFUSING)?.of_kind("replacement") as f64;
        ensure!(
            replacements == logged && logged > 0.0,
            "{replacements}, {logged} logged"
        );
        Ok(())
    }

    /// What the lane let in and shed is what its callers saw.
    pub(crate) async fn lanes(&self, seen: Admitted) -> Outcome {
        let names = ["lanes", "lane", "outcome"];
        let calls = self.by("hedge_lane_calls_total", names).await?;
        let of = |outcome: &str| [LANES, "only", outcome].map(str::to_owned);
        let expected = [("admitted", seen.admitted), ("shed", seen.shed)];
        let expected = expected.map(|(outcome, count)| (of(outcome), count as f64));
        ensure!(calls == BTreeMap::from(expected), "{calls:?}, {seen:?}");
        ensure!(seen.admitted > 0 && seen.shed > 0, "{seen:?}");
        let limit = self.last("hedge_lane_limit").await?;
        ensure!(limit == 1.0, "{limit}");
        let in_flight = self.last("hedge_lane_in_flight").await?;
        ensure!(in_flight == 0.0, "{in_flight}");
        Ok(())
    }

    /// A query finds at least one number.
    pub(crate) async fn finds(&self, query: &str) -> Outcome {
        let found = self.prometheus.instant(query, self.time.1).await?;
        ensure!(
            found.iter().any(|(_, value)| !value.is_nan()),
            "{found:?} of {query}"
        );
        Ok(())
    }

    async fn last(&self, query: &str) -> Result<f64, Box<dyn std::error::Error>> {
        self.prometheus.number(query, self.time.1).await
    }

    /// What a query comes to after the last call, by these labels.
    async fn by<const N: usize>(
        &self,
        query: &str,
        labels: [&str; N],
    ) -> Result<BTreeMap<[String; N], f64>, Box<dyn std::error::Error>> {
        let series = self.prometheus.instant(query, self.time.1).await?;
        let series = series.into_iter().map(|(about, value)| {
            let of = |label: &str| about.get(label).cloned().unwrap_or_default();
            (labels.map(of), value)
        });
        Ok(series.collect())
    }

    fn sent(&self, target: &str) -> Result<&Sent, Box<dyn std::error::Error>> {
        Ok(self.sent.get(target).ok_or("nothing was sent")?)
    }
}
