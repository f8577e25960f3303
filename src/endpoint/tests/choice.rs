//! Which endpoint an attempt gets.

use super::*;

#[tokio::test]
async fn an_answer_renews_the_ration_of_resets() {
    let server = Server::start().await;
    let set = EndpointSet::list([server.spec()]);
    let (endpoint, _) = picked(&set).await;
    let reset = || endpoint.ration().try_reset(NOW, NOW);
    assert_eq!((0..20).filter(|_| reset()).count(), 16);
    endpoint.answered(NOW);
    assert!(reset());
}

#[tokio::test]
async fn ec1_a_hedge_never_goes_where_the_call_has_been() {
    let servers = [
        Server::start().await,
        Server::start().await,
        Server::start().await,
    ];
    let set = EndpointSet::list(servers.iter().map(Server::spec));
    all_ready(&set).await;
    for _ in 0..10_000 {
        let (original, _) = picked(&set).await;
        let tried = [original];
        for purpose in [Purpose::Hedge, Purpose::Replacement, Purpose::Retry] {
            match set.pick(NOW, &tried, purpose) {
                Picked::Endpoint(other, _) => assert_ne!(other.name(), tried[0].name()),
                other => panic!("{other:?}"),
            }
        }
    }
    let all = set.snapshot();
    assert!(matches!(
        set.pick(NOW, &all, Purpose::Hedge),
        Picked::None(Unavailable::NoOther)
    ));
    assert!(matches!(
        set.pick(NOW, &all, Purpose::Retry),
        Picked::Endpoint(..)
    ));
}

#[tokio::test]
async fn a_hedge_prefers_another_locality() {
    let servers = [
        Server::start().await,
        Server::start().await,
        Server::start().await,
    ];
    let zones = ["a", "a", "b"];
    let specs = servers.iter().zip(zones).map(|(s, z)| s.spec().locality(z));
    let set = EndpointSet::list(specs);
    all_ready(&set).await;
    let tried = [endpoint(&set, &servers[0].name())];
    for _ in 0..200 {
        match set.pick(NOW, &tried, Purpose::Hedge) {
            Picked::Endpoint(other, _) => assert_eq!(other.locality().map(|z| &**z), Some("b")),
            other => panic!("{other:?}"),
        }
    }
    // With the other zone used up, the same zone serves.
    let tried = [
        endpoint(&set, &servers[0].name()),
        endpoint(&set, &servers[2].name()),
    ];
    match set.pick(NOW, &tried, Purpose::Hedge) {
        Picked::Endpoint(other, _) => assert_eq!(**other.name(), servers[1].name()),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn ec3_an_address_twice_in_a_list_counts_once() {
    let server = Server::start().await;
    let set = EndpointSet::list([server.spec(), server.spec()]);
    assert_eq!(set.snapshot().len(), 1);
}

#[tokio::test]
async fn a_ready_made_channel_is_taken_as_connected() {
    let server = Server::start().await;
    let lazy = TonicEndpoint::from_shared(format!("http://{}", server.address)).unwrap();
    let made = EndpointSpec::channel("mine", lazy.connect_lazy());
    let set = EndpointSet::list([made, spec(refused().await)]);
    let (endpoint, channel) = picked(&set).await;
    assert_eq!(&**endpoint.name(), "mine");
    assert_eq!(endpoint.state(), EndpointState::Ready);
    call(channel).await.unwrap();
    set.report_unreachable(&endpoint, "refused");
    assert_eq!(endpoint.state(), EndpointState::Ready);
}

#[tokio::test]
async fn an_opaque_channel_takes_every_attempt() {
    let server = Server::start().await;
    let channel = TonicEndpoint::from_shared(format!("http://{}", server.address))
        .unwrap()
        .connect_lazy();
    let set = EndpointSet::opaque(channel);
    assert!(set.is_opaque());
    let (endpoint, channel) = picked(&set).await;
    call(channel).await.unwrap();
    let tried = [endpoint];
    assert!(set.has_ready(&tried, Purpose::Hedge));
    for purpose in [Purpose::Hedge, Purpose::Replacement, Purpose::Retry] {
        assert!(matches!(
            set.pick(NOW, &tried, purpose),
            Picked::Endpoint(..)
        ));
    }
}

/// However a connection's loss and its being made known meet.
#[tokio::test]
async fn a_connection_that_is_lost_at_once_is_not_picked() {
    let lazy = TonicEndpoint::from_static("http://10.0.0.1:1").connect_lazy();
    let endpoint = Arc::new(Endpoint::new(0, spec("10.0.0.1:1".parse().unwrap())));
    for _ in 0..2_000 {
        let link = Arc::new(Link::made(lazy.clone()));
        std::thread::scope(|scope| {
            scope.spawn(|| link.health.lose("reset"));
            endpoint.connected(&link);
        });
        assert!(!endpoint.is_ready());
        // What is lost later than its successor is made takes nothing along.
        let next = Arc::new(Link::made(lazy.clone()));
        endpoint.connected(&next);
        link.health.lose("reset again");
        assert!(endpoint.is_ready());
    }
}

/// Where all are in one locality, none is better for being in another.
#[tokio::test]
async fn one_locality_is_none() {
    let made = |index: usize, zone: &str| {
        let lazy = TonicEndpoint::from_static("http://10.0.0.1:1").connect_lazy();
        EndpointSpec::channel(format!("endpoint {index}"), lazy).locality(zone)
    };
    let alike = EndpointSet::list((0..3).map(|index| made(index, "a")));
    assert!(!alike.snapshot().are_in_localities());
    let other = EndpointSet::list([made(0, "a"), made(1, "a"), made(2, "b")]);
    assert!(other.snapshot().are_in_localities());
}

/// One that sheds comes after all others that are new to the call, and before where it has been.
#[tokio::test]
async fn one_that_sheds_is_asked_late() {
    let servers = [Server::start().await, Server::start().await];
    let set = EndpointSet::list(servers.iter().map(Server::spec));
    all_ready(&set).await;
    let [a, b] = [0, 1].map(|it: usize| endpoint(&set, &servers[it].name()));
    b.shed(NOW, Criticality::Default, Duration::from_secs(60));
    let to = |now, tried: &[Arc<Endpoint>], purpose| match set.pick(now, tried, purpose) {
        Picked::Endpoint(endpoint, _) => endpoint.name().clone(),
        other => panic!("{other:?}"),
    };
    for _ in 0..100 {
        assert_eq!(&to(NOW, &[], Purpose::Original), a.name());
        assert_eq!(&to(NOW, &[Arc::clone(&a)], Purpose::Retry), b.name());
    }
    // However long it said.
    let later = NOW + Duration::from_secs(10);
    let drawn = (0..100).filter(|_| &to(later, &[], Purpose::Original) == b.name());
    assert!(drawn.count() > 0);
}
