//! Which lane and which tenant a call belongs to, and what can be set.

use super::*;

/// The lane of a call: the user's function, else the request's own criticality, its metadata,
/// the scope, the default.
#[tokio::test(start_paused = true)]
async fn the_lane_of_a_call() {
    use Criticality::{Critical, Default, Sheddable};
    let replicas = [InMemory::start("a", uniform)];
    let channel = builder(&replicas).build().unwrap();
    let admitted = |lanes: &Lanes| -> Vec<u64> {
        let measured = lanes.measured();
        measured.iter().map(|lane| lane.admitted).collect()
    };
    for (names, critical, default, batch) in [
        (&["a"][..], 0, 0, 0),
        (&["a", "b"], 0, 0, 1),
        (&["a", "b", "c"], 0, 1, 2),
        (&["a", "b", "c", "d"], 0, 1, 3),
    ] {
        let lanes = names
            .iter()
            .fold(Lanes::builder(), |lanes, name| lanes.lane(*name, fixed(9)))
            .build()
            .unwrap();
        let mut client = client_behind(&lanes, &channel);
        let plain = || asked(0, Code::Ok);
        let metadata = |word| with_metadata("x-criticality", word, "asked");
        let mut expected = vec![0; names.len()];
        let mut goes_to = |lanes: &Lanes, lane: usize, what: &str| {
            expected[lane] += 1;
            assert_eq!(admitted(lanes), expected, "{what} of {names:?}");
        };
        client.get(plain()).await.unwrap();
        goes_to(&lanes, default, "nothing said");
        client.get(plain().criticality(Critical)).await.unwrap();
        goes_to(&lanes, critical, "critical");
        client.get(plain().criticality(Sheddable)).await.unwrap();
        goes_to(&lanes, batch, "sheddable");
        client.get(metadata("sheddable")).await.unwrap();
        goes_to(&lanes, batch, "metadata");
        client.get(metadata("urgent")).await.unwrap();
        goes_to(&lanes, default, "unknown metadata");
        let both = metadata("sheddable").criticality(Critical);
        client.get(both).await.unwrap();
        goes_to(&lanes, critical, "the request's own");
        Sheddable.scope(client.get(plain())).await.unwrap();
        goes_to(&lanes, batch, "the scope");
        let inner = plain().criticality(Default);
        Sheddable.scope(client.get(inner)).await.unwrap();
        goes_to(&lanes, default, "default, said");
    }
    let lanes = two_lanes(9, 9)
        .lane_of(|head| head.headers.get("x-lane")?.to_str().ok())
        .build()
        .unwrap();
    let mut client = client_behind(&lanes, &channel);
    client
        .get(with_metadata("x-lane", "batch", "asked"))
        .await
        .unwrap();
    assert_eq!(admitted(&lanes), [0, 1]);
    client
        .get(with_metadata("x-lane", "nonsense", "asked"))
        .await
        .unwrap();
    assert_eq!(admitted(&lanes), [1, 1]);
    let unknown = with_metadata("x-lane", "nonsense", "asked").criticality(Sheddable);
    client.get(unknown).await.unwrap();
    assert_eq!(admitted(&lanes), [1, 2]);
}

/// Two tenants of a server, one of which floods batch: the other's batch, and everybody's
/// interactive calls, keep their share.
#[tokio::test(start_paused = true)]
async fn tenants() {
    let lanes = two_lanes(40, 20).tenant_key("x-tenant").build().unwrap();
    let (channel, _) = server_behind(&lanes, uniform);
    let client = ProbeClient::new(channel);
    let mut loads = JoinSet::new();
    for (tenant, word, pause, count) in [
        ("flood", "sheddable", 1, 3_000),
        ("calm", "sheddable", 12, 250),
        ("flood", "critical", 10, 300),
        ("calm", "critical", 10, 300),
    ] {
        let client = client.clone();
        loads.spawn(async move {
            let mut calls = JoinSet::new();
            let mut ticks = tokio::time::interval(ms(pause));
            for _ in 0..count {
                ticks.tick().await;
                let mut request = asked(100, Code::Ok);
                let metadata = request.metadata_mut();
                metadata.insert("x-tenant", tenant.parse().unwrap());
                metadata.insert("x-criticality", word.parse().unwrap());
                let mut client = client.clone();
                calls.spawn(async move { client.get(request).await.is_ok() });
            }
            let results = calls.join_all().await;
            let done = results.iter().filter(|ok| **ok).count();
            (tenant, word, done)
        });
    }
    for (tenant, word, done) in loads.join_all().await {
        let expected = match (tenant, word) {
            // Ten places, ten times a second.
            ("flood", "sheddable") => 270..=330,
            ("calm", "sheddable") => 225..=250,
            _ => 300..=300,
        };
        assert!(expected.contains(&done), "{tenant} {word}: {done}");
    }
    let batch = lane(&lanes, "batch");
    let names: Vec<_> = batch.tenants.iter().map(|it| &*it.name).collect();
    assert_eq!(names, ["calm", "flood"]);
    let sum: u64 = batch.tenants.iter().map(|it| it.shed).sum();
    assert_eq!(sum, batch.shed);
    assert!(batch.tenants[1].shed > 2_500);
}

/// The ways to name a tenant, and how many are known.
#[tokio::test(start_paused = true)]
async fn the_tenant_of_a_call() {
    let replicas = [InMemory::start("a", uniform)];
    let channel = builder(&replicas).build().unwrap();
    let names = |lanes: &Lanes| -> Vec<String> {
        let lane = lane(lanes, "all");
        lane.tenants.iter().map(|it| it.name.to_string()).collect()
    };
    let lanes = || Lanes::builder().lane("all", fixed(9));
    let by_key = lanes()
        .tenant_key("x-tenant")
        .tenants(TenantPolicy::default().most(2))
        .build()
        .unwrap();
    let by_function = lanes()
        .tenant_of(|head| {
            head.headers
                .get("authorization")?
                .to_str()
                .ok()?
                .strip_prefix("key ")
        })
        .build()
        .unwrap();
    for name in ["b", "a", "b", "c", "d"] {
        let call = with_metadata("x-tenant", name, "asked");
        client_behind(&by_key, &channel).get(call).await.unwrap();
        let call = with_metadata("authorization", &format!("key {name}"), "asked");
        client_behind(&by_function, &channel)
            .get(call)
            .await
            .unwrap();
    }
    let none = || request("asked");
    client_behind(&by_function, &channel)
        .get(none())
        .await
        .unwrap();
    assert_eq!(names(&by_key), ["a", "b", "other"]);
    assert_eq!(names(&by_function), ["a", "b", "c", "d", "other"]);
    let without = lanes().build().unwrap();
    client_behind(&without, &channel).get(none()).await.unwrap();
    assert_eq!(names(&without), [""; 0]);
}

/// LA14: mistakes are errors of `build`, and say what and where.
#[test]
fn la14_errors() {
    let policy = LanePolicy::default;
    let lanes = Lanes::builder;
    for (builder, text) in [
        (
            lanes().lane("a", policy().minimum(9).maximum(8)),
            r#"Lanes.lane: "a": Lane.minimum: 9 is not at most Lane.maximum"#,
        ),
        (
            lanes().lane("a", policy().minimum(0)),
            r#"Lanes.lane: "a": Lane.minimum: 0 is not at least 1"#,
        ),
        (
            lanes().lane("a", policy()).lane("a", policy()),
            r#"Lanes.lane: "a" is given twice"#,
        ),
        (
            lanes().lane("", policy()),
            r#"Lanes.lane: "" is not visible ASCII"#,
        ),
        (
            lanes().lane("a b", policy()),
            r#"Lanes.lane: "a b" is not visible ASCII"#,
        ),
        (
            lanes().tenant_key("x tenant"),
            r#"Lanes.tenant_key: "x tenant" is not a metadata key"#,
        ),
        (
            lanes().tenant_key("x").tenant_of(|_| None),
            "Lanes: both tenant_key and tenant_of given: one of them",
        ),
        (
            lanes().tenants(TenantPolicy::default().most(0)),
            "Lanes.tenants: Tenant.most: 0 is not in [1, 65536]",
        ),
    ] {
        assert_eq!(builder.build().unwrap_err().to_string(), text);
    }
    let names = |lanes: Lanes| format!("{lanes:?}");
    assert_eq!(
        names(lanes().build().unwrap()),
        r#"["interactive", "batch"]"#
    );
    assert!(lanes().lane("a", fixed(3)).build().is_ok());
}

/// Limits that were learnt before, an algorithm of choice, and a snapshot that is serialized.
#[test]
fn resumed_and_serialized() {
    let lanes = Lanes::builder()
        .lane("interactive", LanePolicy::default().maximum(500))
        .lane(
            "batch",
            LanePolicy::default().algorithm(LaneAlgorithm::Gradient),
        )
        .build()
        .unwrap();
    assert!(lanes.resume("interactive", 900) && lanes.resume("batch", 77));
    assert!(!lanes.resume("nobody", 1));
    let json = serde_json::to_value(lanes.measured()).unwrap();
    assert_eq!(json[0]["name"], "interactive");
    assert_eq!(json[0]["limit"], 500);
    assert_eq!(json[1]["limit"], 77);
    assert_eq!(json[1]["held"], serde_json::Value::Null);
}
