//! Finite queues keep their servers and their bound, and let nobody wait for an idle server.

use std::collections::VecDeque;

use proptest::{collection::vec, prelude::*, proptest};
use tonic_hedge_engine::race::Rules;
use tonic_hedge_models::{Model, Place, Queue, QueueModel, World};

/// What happens to a queue.
#[derive(Clone, Copy, Debug)]
enum Happens {
    Arrives,
    /// The one of that number leaves, if it has come.
    Leaves(u64),
    /// Some server is done.
    Served,
}

fn happens() -> impl Strategy<Value = Happens> {
    prop_oneof![
        3 => Just(Happens::Arrives),
        1 => (0..60_u64).prop_map(Happens::Leaves),
        2 => Just(Happens::Served),
    ]
}

proptest! {
    #[test]
    fn it_is_first_come_first_served(
        servers in 1_usize..4,
        bound in 0_usize..5,
        events in vec(happens(), 0..60),
    ) {
        let mut queue = Queue::new(servers, bound);
        let mut waits = VecDeque::new();
        let mut busy = 0;
        for (name, event) in (0..).zip(events) {
            match event {
                Happens::Arrives => match queue.arrive(name) {
                    Place::Served => busy += 1,
                    Place::Waits => waits.push_back(name),
                    Place::Refused => prop_assert_eq!(waits.len(), bound),
                },
                Happens::Leaves(gone) => {
                    queue.leave(gone);
                    waits.retain(|it| *it != gone);
                }
                Happens::Served if busy > 0 => {
                    let next = queue.served();
                    prop_assert_eq!(next, waits.pop_front());
                    busy -= usize::from(next.is_none());
                }
                Happens::Served => {}
            }
            prop_assert_eq!((queue.busy(), queue.waiting()), (busy, waits.len()));
            prop_assert!(busy <= servers && waits.len() <= bound);
            prop_assert!(waits.is_empty() || busy == servers, "somebody waits for an idle server");
        }
    }
}

/// The share that is refused by Erlang's formula for `servers` and `waiting` at that load, in
/// servers.
fn refused(servers: usize, waiting: usize, load: f64) -> f64 {
    let mut weight = 1.0;
    let mut sum = 1.0;
    for present in 1..=servers + waiting {
        weight *= load / present.min(servers) as f64;
        sum += weight;
    }
    weight / sum
}

/// Poisson arrivals, exponential work: the world's queue is the textbook's.
#[test]
fn a_world_refuses_what_erlang_says() {
    let model = QueueModel {
        replicas: 1,
        ..QueueModel::USUAL
    };
    for utilisation in [0.7, 0.95, 1.4] {
        let world = World {
            rules: Some(Rules::single(None)),
            rate: utilisation * model.capacity(),
            calls: 50_000,
            ..World::new(Model::Queue(model))
        };
        let summary = world.run().fates;
        let failed = summary.iter().filter(|fate| !fate.is_answered()).count();
        let share = failed as f64 / summary.len() as f64;
        let expected = refused(
            model.servers,
            model.waiting,
            utilisation * model.servers as f64,
        );
        println!("{utilisation}: {share:.4} refused, {expected:.4} by Erlang");
        // Refusals come in bursts, so that they vary more than independent ones.
        assert!((share - expected).abs() < 0.1 * expected + 0.002);
    }
}
