//! The document's incident, played to two gateways at once: one with breaker and budget only, one
//! with hedges and lanes besides.

pub(crate) mod caller;
pub(crate) mod drive;
pub(crate) mod figures;
mod holds;
pub(crate) mod plan;
mod table;

use std::{error::Error, future::pending, sync::Arc, time::Duration};

use serde_json::{Value, json};
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep, sleep_until},
};

pub(crate) use self::figures::Figures;
use self::{
    drive::{Callers, drive},
    figures::Sent,
    plan::{Phase, Plan, SLOW},
    table::Row,
};
use crate::{cpu, gateway::Gateway, region::Region, scale::SCALE, web};

/// When calls come and what they meet; nothing depends on a particular one.
const SEED: u64 = 0x6a7e_3a11;

/// How often what is wrong with a region follows the plan.
pub(crate) const STEP: Duration = Duration::from_millis(50);

/// What a replay came to.
pub(crate) struct Outcome {
    rows: Vec<Row>,
    holds: Vec<(&'static str, bool)>,
    sides: [Value; 2],
    seconds: f64,
    /// Of all cores.
    cpu: f64,
}

/// Plays the plan. `phase` is told which part of it runs.
pub(crate) async fn replay(
    plan: &Plan,
    plain: Arc<Gateway>,
    whole: Arc<Gateway>,
    phase: web::Phase,
) -> Result<Outcome, Box<dyn Error>> {
    let callers = [
        Callers::connect(&plain.uri()).await?,
        Callers::connect(&whole.uri()).await?,
    ];
    let sides = [plain, whole];
    let (cpu, start) = (cpu::seconds(), Instant::now());
    let directing = Directing(tokio::spawn(direct(
        plan.clone(),
        start,
        sides.clone(),
        phase,
    )));
    let sent = measure(plan, start, &sides);
    let played = drive(plan, SEED, start, &callers, pending::<()>());
    let (saw, sent) = tokio::join!(played, sent);
    let ((saw, _), seconds) = (saw?, start.elapsed().as_secs_f64());
    let cpu = (cpu::seconds() - cpu) / seconds / cores();
    drop(directing);
    // A loser's end travels to its replica.
    settle(&sides).await;
    let mut figures = saw
        .iter()
        .zip(&sides)
        .zip(sent)
        .map(|((saw, gateway), sent)| {
            let all = Sent::of(&gateway.channel.measured());
            Figures::new(saw, gateway.fleet.tokens.spent(), all, sent)
        });
    let (Some(plain), Some(whole)) = (figures.next(), figures.next()) else {
        return Err("two gateways were played to".into());
    };
    Ok(Outcome {
        rows: table::rows(&plain, &whole),
        holds: holds::holds(&plain, &whole),
        sides: [plain.json(), whole.json()],
        seconds,
        cpu,
    })
}

/// Aborts what is still going on when the replay is over, or given up.
struct Directing(JoinHandle<()>);

impl Drop for Directing {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Does to both fleets what the plan says.
async fn direct(plan: Plan, start: Instant, sides: [Arc<Gateway>; 2], phase: web::Phase) {
    let mut told = Told::default();
    loop {
        let at = start.elapsed();
        if let Some(begun) = told.tell(&plan, at) {
            *phase.lock() = Some(begun);
        }
        let wanted = Directed::of(&plan, at);
        for region in sides.iter().flat_map(|it| &it.fleet.regions) {
            wanted.tell(region);
        }
        sleep(STEP).await;
    }
}

/// Says when a phase begins, also on the standard error: for minutes there is nothing else to read.
#[derive(Default)]
pub(crate) struct Told(Option<Phase>);

impl Told {
    pub(crate) fn tell(&mut self, plan: &Plan, at: Duration) -> Option<Phase> {
        let phase = plan.phase(at);
        let begins = self.0.replace(phase) != Some(phase);
        if begins {
            eprintln!("{:4.0} s  {}", at.as_secs_f64(), phase.name());
        }
        begins.then_some(phase)
    }
}

/// What a plan wants of the regions at a time.
pub(crate) struct Directed {
    errors: f64,
    floor: Duration,
}

impl Directed {
    pub(crate) fn of(plan: &Plan, at: Duration) -> Self {
        Self {
            errors: plan.errors(at),
            floor: plan.floor(at),
        }
    }

    pub(crate) fn tell(&self, region: &Region) {
        region.set_errors(self.errors);
        let slow = region.name == SLOW;
        region.set_floor(if slow { self.floor } else { Duration::ZERO });
    }
}

/// What each channel sends in each phase.
async fn measure(plan: &Plan, start: Instant, sides: &[Arc<Gateway>; 2]) -> [[Sent; 5]; 2] {
    let mut sent = [[Sent::default(); 5]; 2];
    let mut before = [Sent::default(); 2];
    for (number, phase) in Phase::ALL.into_iter().enumerate() {
        sleep_until(start + plan.span(phase).1).await;
        for (side, gateway) in sides.iter().enumerate() {
            let now = Sent::of(&gateway.channel.measured());
            sent[side][number] = now.since(before[side]);
            before[side] = now;
        }
    }
    sent
}

/// Waits until the replicas have nothing in flight, for a while.
async fn settle(sides: &[Arc<Gateway>; 2]) {
    const MOST: u32 = 100;
    for _ in 0..MOST {
        let measured = sides.iter().map(|it| it.channel.measured());
        let mut endpoints = measured.flat_map(|it| it.endpoints);
        if endpoints.all(|it| it.in_flight == 0) {
            break;
        }
        sleep(STEP).await;
    }
    // The last reset is sent by now, and read soon.
    sleep(STEP).await;
}

fn cores() -> f64 {
    std::thread::available_parallelism().map_or(1.0, |cores| cores.get() as f64)
}

impl Outcome {
    pub(crate) fn holds(&self) -> bool {
        self.holds.iter().all(|(_, holds)| *holds)
    }

    pub(crate) fn json(&self) -> Value {
        let holds: serde_json::Map<_, _> = self
            .holds
            .iter()
            .map(|(name, holds)| ((*name).to_owned(), json!(holds)))
            .collect();
        json!({
            "seed": SEED,
            "scale": SCALE,
            "seconds": self.seconds,
            "cpu_share": self.cpu,
            "table": self.rows.iter().map(Row::json).collect::<Vec<_>>(),
            "breaker_and_budget": self.sides[0],
            "hedges_and_lanes": self.sides[1],
            "holds": holds,
        })
    }

    pub(crate) fn text(&self) -> String {
        let mut text = format!("{}\n", Row::head());
        for row in &self.rows {
            text += &format!("{}\n", row.text());
        }
        text += "\nb + b: breaker and budget only; h + l: hedges and lanes besides\n";
        let (seconds, cpu) = (self.seconds, 1e2 * self.cpu);
        text += &format!("times are of chat, {SCALE} times as long as here; ");
        text += &format!("{seconds:.0} s, {cpu:.0} % of the processors\n\n");
        for (name, holds) in &self.holds {
            let verdict = if *holds { "ok    " } else { "FAILED" };
            text += &format!("{verdict} {}\n", name.replace('_', " "));
        }
        text
    }
}
