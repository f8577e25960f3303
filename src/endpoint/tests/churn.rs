//! Endpoints, sets and runtimes that come and go.

use super::*;

#[tokio::test]
async fn ec4_a_removed_or_replaced_endpoint_finishes_its_attempts() {
    let (a, b) = (Server::start().await, Server::start().await);
    let (changes, set) = changing();
    changes.send(Ok(Change::Insert(1, a.spec()))).unwrap();
    let (endpoint, channel) = picked(&set).await;
    endpoint.load().started(NOW);

    changes.send(Ok(Change::Insert(1, b.spec()))).unwrap();
    until(&set, || **set.snapshot()[0].name() == b.name()).await;
    assert_eq!(set.snapshot().len(), 1);
    let (replacement, _) = picked(&set).await;
    assert_eq!(replacement.load().in_flight(), 0);

    call(channel).await.unwrap();
    endpoint.load().finished(NOW, Duration::from_millis(1));
    assert_eq!(endpoint.load().in_flight(), 0);

    changes.send(Ok(Change::Remove(1))).unwrap();
    changes.send(Ok(Change::Remove(1))).unwrap();
    until(&set, || set.snapshot().is_empty()).await;
}

#[tokio::test]
async fn ec5_an_endpoint_removed_after_it_was_picked_still_takes_the_attempt() {
    let (a, b) = (Server::start().await, Server::start().await);
    let (changes, set) = changing();
    changes.send(Ok(Change::Insert(0, a.spec()))).unwrap();
    set.ensure_started();
    for key in 1..100 {
        changes.send(Ok(Change::Insert(key, b.spec()))).unwrap();
        until(&set, || set.snapshot().len() == 2).await;
        all_ready(&set).await;
        let tried = [endpoint(&set, &a.name())];
        let Picked::Endpoint(picked, line) = set.pick(NOW, &tried, Purpose::Hedge) else {
            panic!("b is ready");
        };
        changes.send(Ok(Change::Remove(key))).unwrap();
        until(&set, || set.snapshot().len() == 1).await;
        // Its keeper is gone; who holds the connection may use it.
        picked.load().started(NOW);
        call(line.channel).await.unwrap();
        picked.load().finished(NOW, Duration::from_millis(1));
        assert_eq!(picked.load().in_flight(), 0);
        assert!(matches!(
            set.pick(NOW, &tried, Purpose::Hedge),
            Picked::None(Unavailable::NoOther)
        ));
    }
}

#[tokio::test]
async fn ec8_an_empty_list_is_unavailable_and_recovers() {
    let server = Server::start().await;
    let (changes, set) = changing();
    set.ensure_started();
    assert!(matches!(
        set.pick(NOW, &[], Purpose::Original),
        Picked::Wait
    ));
    changes.send(Ok(Change::Insert(1, server.spec()))).unwrap();
    picked(&set).await;
    changes.send(Ok(Change::Remove(1))).unwrap();
    assert_eq!(unavailable(&set).await, "the channel has no endpoint");
    changes.send(Ok(Change::Insert(1, server.spec()))).unwrap();
    picked(&set).await;

    let empty = EndpointSet::list([]);
    assert_eq!(unavailable(&empty).await, "the channel has no endpoint");
}

#[tokio::test]
async fn ec7_updates_are_read_without_calls() {
    let server = Server::start().await;
    let dead = refused().await;
    let (changes, set) = changing();
    set.ensure_started();
    for _ in 0..2_000 {
        changes.send(Ok(Change::Insert(1, spec(dead)))).unwrap();
    }
    changes.send(Ok(Change::Insert(1, server.spec()))).unwrap();
    until(&set, || {
        set.snapshot().len() == 1 && set.snapshot()[0].state() == EndpointState::Ready
    })
    .await;
    assert_eq!(**picked(&set).await.0.name(), server.name());
}

#[tokio::test]
async fn a_streams_error_leaves_the_set_and_its_end_too() {
    let server = Server::start().await;
    let (changes, receiver) = mpsc::unbounded_channel();
    let set = EndpointSet::stream(UnboundedReceiverStream::new(receiver));
    changes.send(Err("registry down")).unwrap();
    assert_eq!(
        unavailable(&set).await,
        "the channel has no endpoint: registry down"
    );
    changes
        .send(Ok(Change::Insert("a", server.spec())))
        .unwrap();
    picked(&set).await;
    changes.send(Err("registry down")).unwrap();
    drop(changes);
    for _ in 0..20 {
        tokio::task::yield_now().await;
        picked(&set).await;
    }
}

#[tokio::test]
async fn ec6_churn_leaves_no_task() {
    let server = Server::start().await;
    let dead = refused().await;
    let (changes, set) = changing();
    changes.send(Ok(Change::Insert(0, server.spec()))).unwrap();
    let (_, channel) = picked(&set).await;
    call(channel).await.unwrap();
    let base = alive_tasks();
    for key in 1..=10_000 {
        let spec = if key % 20 == 0 {
            server.spec()
        } else {
            spec(dead)
        };
        changes.send(Ok(Change::Insert(key, spec))).unwrap();
        if key > 10 {
            changes.send(Ok(Change::Remove(key - 10))).unwrap();
        }
        if key % 50 == 0 {
            picked(&set).await;
            tokio::task::yield_now().await;
        }
    }
    for key in 9_991..=10_000 {
        changes.send(Ok(Change::Remove(key))).unwrap();
    }
    until(&set, || set.snapshot().len() == 1).await;
    tasks_fall_to(base).await;
}

#[tokio::test]
async fn ml3_dropping_the_set_ends_all_tasks() {
    let server = Server::start().await;
    let dead = refused().await;
    let base = alive_tasks();
    let set = EndpointSet::list([server.spec(), spec(dead)]);
    picked(&set).await;
    assert!(alive_tasks() > base);
    let weak = Arc::downgrade(&set.snapshot()[0]);
    drop(set);
    tasks_fall_to(base).await;
    assert!(weak.upgrade().is_none());
}

#[test]
fn building_needs_no_runtime_and_a_new_one_takes_over() {
    let set = EndpointSet::list([spec("127.0.0.1:1".parse().unwrap())]);
    set.ensure_started();
    assert_eq!(set.snapshot()[0].state(), EndpointState::Idle);
    drop(set);

    let runtime = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
    };
    let (server_runtime, first) = (
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap(),
        runtime(),
    );
    let server = server_runtime.block_on(Server::start());
    let set = EndpointSet::list([server.spec()]);
    let (_, channel) = first.block_on(picked(&set));
    first.block_on(call(channel)).unwrap();
    drop(first);
    let (_, channel) = runtime().block_on(async {
        let picked = picked(&set).await;
        call(picked.1.clone()).await.unwrap();
        picked
    });
    drop(channel);
    assert_eq!(server.connections.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_change_before_the_wait_is_not_missed() {
    let server = Server::start().await;
    let set = EndpointSet::list([server.spec()]);
    let changed = set.changed();
    assert!(matches!(
        set.pick(NOW, &[], Purpose::Original),
        Picked::Wait
    ));
    all_ready(&set).await;
    soon(changed).await;
}
