//! One call after the other, through one channel and each through one of its own.

use super::{
    stage::{Cell, Stage},
    unary,
};
use crate::{Mode, Outcome};

/// Enough to see that one leaves the next as it was; a soak of hours is nothing for each change.
const CALLS: u32 = 20;
const CHANNELS: u32 = 5;

pub(super) async fn calls(cell: &Cell<'_>) -> Outcome {
    for _ in 0..CALLS {
        unary::large(cell).await?;
    }
    Ok(())
}

pub(super) async fn channels(stage: &Stage, mode: Mode) -> Outcome {
    for _ in 0..CHANNELS {
        let cell = stage.cell(mode).await?;
        unary::large(&cell).await?;
        cell.settled().await?;
    }
    Ok(())
}
