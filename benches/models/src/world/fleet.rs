//! The replicas: which one an attempt goes to, and when it ends.

use std::{collections::HashMap, time::Duration};

use tonic_hedge_engine::{
    endpoint::{Load, pick},
    race::{Kind, Launch, Pushback, Verdict},
};

use crate::{
    draws::{Draws, Purpose},
    model::{Attempt, Met, Model, Place, Queue},
};

/// What a refusal takes, there and back.
const REFUSAL: Duration = Duration::from_millis(1);

/// A model's replicas, with those that attempts keep busy.
pub(super) struct Fleet {
    model: Model,
    draws: Draws,
    replicas: Vec<Replica>,
    /// Those who wait for a server.
    jobs: HashMap<u64, Job>,
    /// The name of the next attempt.
    next: u64,
}

struct Replica {
    load: Load,
    queue: Option<Queue>,
}

/// An attempt that waits, and what it needs.
struct Job {
    flight: (usize, u32),
    work: Duration,
}

/// An attempt in flight.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flight {
    pub(super) launch: Launch,
    pub(super) began: Duration,
    pub(super) replica: usize,
    pub(super) verdict: Verdict,
    name: u64,
}

/// What will happen of itself.
pub(super) enum Coming {
    /// The attempt ends.
    End { call: usize, id: u32 },
    /// The replica's server is done.
    Served { replica: usize },
}

impl Fleet {
    pub(super) fn new(model: Model, draws: Draws) -> Self {
        let replicas = (0..model.replicas()).map(|_| Replica {
            load: Load::new(),
            queue: model.queue(),
        });
        Self {
            replicas: replicas.collect(),
            model,
            draws,
            jobs: HashMap::new(),
            next: 0,
        }
    }

    /// Whether there is a replica that a call has not been to.
    pub(super) fn has_other(&self, tried: &[usize]) -> bool {
        (0..self.replicas.len()).any(|replica| !tried.contains(&replica))
    }

    /// Launches an attempt as a channel's picker does, unless there is nowhere to go. `schedule`
    /// takes what comes of it.
    pub(super) fn launch(
        &mut self,
        clock: Duration,
        call: usize,
        launch: Launch,
        tried: &[usize],
        mut schedule: impl FnMut(Duration, Coming),
    ) -> Option<Flight> {
        let replica = self.pick(clock, call, &launch, tried)?;
        let attempt = Attempt {
            call: call as u64,
            number: launch.id,
            replica,
            clock,
        };
        let met = self.model.meet(self.draws, &attempt);
        let Replica { load, queue } = &mut self.replicas[replica];
        load.started(clock);
        let name = self.next;
        self.next += 1;
        let id = launch.id;
        let mut verdict = Verdict::Answer;
        let mut ends = |after| schedule(clock + after, Coming::End { call, id });
        match (met, queue) {
            (Met::Ends { after, verdict: it }, _) => {
                verdict = it;
                ends(after);
            }
            (Met::Work(work), None) => ends(work),
            (Met::Work(work), Some(queue)) => match queue.arrive(name) {
                Place::Served => {
                    ends(work);
                    schedule(clock + work, Coming::Served { replica });
                }
                Place::Waits => {
                    let flight = (call, id);
                    self.jobs.insert(name, Job { flight, work });
                }
                Place::Refused => {
                    verdict = Verdict::Failure(Pushback::None);
                    ends(REFUSAL);
                }
            },
        }
        Some(Flight {
            launch,
            began: clock,
            replica,
            verdict,
            name,
        })
    }

    fn pick(
        &self,
        clock: Duration,
        call: usize,
        launch: &Launch,
        tried: &[usize],
    ) -> Option<usize> {
        let again = launch.kind != Kind::Hedge && launch.replaces.is_none();
        let mut draws = self.draws.of(Purpose::Pick, call as u64, launch.id);
        pick(
            self.replicas.len(),
            |replica| match tried.contains(&replica) {
                true => again.then_some(2),
                false => Some(0),
            },
            |replica| self.replicas[replica].load.cost(clock),
            &mut |below| draws.u32(..below),
        )
    }

    /// A server is done, and begins with the next that waits.
    pub(super) fn served(
        &mut self,
        clock: Duration,
        replica: usize,
        mut schedule: impl FnMut(Duration, Coming),
    ) {
        let queue = self.replicas[replica].queue.as_mut();
        let next = queue.and_then(Queue::served);
        if let Some(job) = next.and_then(|name| self.jobs.remove(&name)) {
            let (call, id) = job.flight;
            schedule(clock + job.work, Coming::End { call, id });
            schedule(clock + job.work, Coming::Served { replica });
        }
    }

    /// An attempt ended with its verdict.
    pub(super) fn ended(&self, clock: Duration, flight: &Flight) {
        let load = &self.replicas[flight.replica].load;
        let ran = clock - flight.began;
        match flight.verdict {
            Verdict::Answer => load.finished(clock, ran),
            Verdict::Failure(_) => load.failed(clock, ran),
            Verdict::Unsent(_) => load.released(),
        }
    }

    /// An attempt was discarded: it leaves the queue, and work that has begun runs to its end.
    pub(super) fn discard(&mut self, clock: Duration, flight: &Flight) {
        let replica = &mut self.replicas[flight.replica];
        replica.load.discarded(clock, clock - flight.began);
        if self.jobs.remove(&flight.name).is_some()
            && let Some(queue) = &mut replica.queue
        {
            queue.leave(flight.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::QueueModel;

    fn launch(fleet: &mut Fleet, call: usize) -> (Flight, usize) {
        let launch = Launch {
            id: 0,
            previous: 0,
            kind: Kind::Original,
            replaces: None,
        };
        let mut coming = 0;
        let schedule = |_, _| coming += 1;
        let flight = fleet.launch(Duration::ZERO, call, launch, &[], schedule);
        (flight.unwrap(), coming)
    }

    fn served(fleet: &mut Fleet) -> Vec<usize> {
        let mut begun = Vec::new();
        fleet.served(Duration::from_secs(1), 0, |_, coming| {
            if let Coming::End { call, .. } = coming {
                begun.push(call);
            }
        });
        begun
    }

    #[test]
    fn a_discarded_attempt_leaves_the_queue_and_not_the_server() {
        let model = QueueModel {
            replicas: 1,
            servers: 1,
            waiting: 2,
            ..QueueModel::USUAL
        };
        let mut fleet = Fleet::new(Model::Queue(model), Draws::new(1));
        let (first, coming) = launch(&mut fleet, 0);
        assert_eq!(coming, 2, "its end, and the server's");
        let (second, coming) = launch(&mut fleet, 1);
        assert_eq!(coming, 0, "it waits");
        launch(&mut fleet, 2);
        let (fourth, coming) = launch(&mut fleet, 3);
        assert_eq!(coming, 1, "it is refused");
        assert_eq!(fourth.verdict, Verdict::Failure(Pushback::None));

        fleet.discard(Duration::ZERO, &first);
        let (fifth, coming) = launch(&mut fleet, 4);
        assert_eq!(coming, 1, "the server still works, and no place got free");
        assert_eq!(fifth.verdict, Verdict::Failure(Pushback::None));

        fleet.discard(Duration::ZERO, &second);
        assert_eq!(launch(&mut fleet, 5).1, 0, "its place got free");
        assert_eq!(served(&mut fleet), [2], "not the one that left");
        assert_eq!(served(&mut fleet), [5]);
        assert_eq!(served(&mut fleet), []);
        assert_eq!(launch(&mut fleet, 6).1, 2, "the server is idle");
        assert!(fleet.jobs.is_empty());
    }
}
