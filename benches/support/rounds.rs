//! Short rounds in which the cases take turns: the machine's mood changes more from minute to minute
//! than the cases differ.

use crate::args::Outcome;

/// What `once` measures of each case in each round: `[case][round]`. `more` is asked before each round.
pub(crate) fn take_turns<T>(
    cases: usize,
    mut more: impl FnMut(usize) -> bool,
    mut once: impl FnMut(usize) -> Outcome<T>,
) -> Outcome<Vec<Vec<T>>> {
    let mut measured: Vec<Vec<T>> = (0..cases).map(|_| Vec::new()).collect();
    let mut round = 0;
    while more(round) {
        // Who goes first changes, since the first finds other caches than the last.
        for turn in 0..cases {
            let case = (round + turn) % cases;
            measured[case].push(once(case)?);
        }
        round += 1;
    }
    Ok(measured)
}
