//! Which endpoint an attempt goes to: of two drawn at random, the cheaper.
//!
//! Two choices spread load almost as well as a look at all, need no shared state, and do not send
//! every caller to the same "best" endpoint (Mitzenmacher, "The Power of Two Choices in
//! Randomized Load Balancing", 2001).

/// Draws before all endpoints are looked at.
///
/// The usual pick takes two. With half of the endpoints usable, sixteen draws find fewer than two of
/// them once in four thousand picks, with a third once in seventy; a look at all of a thousand costs
/// as much as a hundred draws.
const DRAWS: u32 = 16;

/// Picks one of `len` endpoints, or `None` if none is usable.
///
/// `rank` says how well an endpoint suits: `None` not at all, 0 best, more is worse. Only the
/// best rank that is present counts; among those each is equally likely to be one of the two
/// candidates, of which the lower `cost` wins, and a tie goes either way. `rank` may be asked
/// more than once for an endpoint. `random(n)` draws uniformly from `0..n`; it is not called with 0.
///
/// ```
/// # use tonic_hedge_engine::endpoint::pick;
/// let costs = [3.0, 1.0, 2.0];
/// let usable = |i: usize| (i != 1).then_some(0);
/// let picked = pick(costs.len(), usable, |i| costs[i], &mut |n| n - 1);
/// assert_eq!(picked, Some(2));
/// ```
pub fn pick(
    len: usize,
    mut rank: impl FnMut(usize) -> Option<u8>,
    mut cost: impl FnMut(usize) -> f64,
    random: &mut impl FnMut(u32) -> u32,
) -> Option<usize> {
    // No set of endpoints comes near 2^32; one that did would lose the rest, not its mind.
    let count = u32::try_from(len).unwrap_or(u32::MAX);
    match count {
        0 => return None,
        1 => return rank(0).map(|_| 0),
        _ => {}
    }
    let mut first = None;
    // A look at all of a few is cheaper than many draws.
    for _ in 0..DRAWS.min(count) {
        let index = match first {
            None => random(count) as usize,
            Some(first) => {
                // From the others, by leaving a gap at the first.
                let index = random(count - 1) as usize;
                index + usize::from(index >= first)
            }
        };
        if rank(index) != Some(0) {
            continue;
        }
        match first {
            None => first = Some(index),
            Some(first) => return Some(cheaper(first, index, &mut cost)),
        }
    }
    scan(count, rank, cost, random)
}

/// Looks at all, keeping a uniformly drawn pair of the best rank seen so far (a reservoir of two).
fn scan(
    count: u32,
    mut rank: impl FnMut(usize) -> Option<u8>,
    mut cost: impl FnMut(usize) -> f64,
    random: &mut impl FnMut(u32) -> u32,
) -> Option<usize> {
    let mut best = u8::MAX;
    let mut seen = 0;
    let mut pair = [0; 2];
    for index in 0..count as usize {
        match rank(index) {
            Some(rank) if rank < best || seen == 0 => {
                best = rank;
                seen = 1;
                pair[0] = index;
            }
            Some(rank) if rank == best => {
                let slot = if seen == 1 {
                    1
                } else {
                    random(seen + 1) as usize
                };
                seen += 1;
                if let Some(kept) = pair.get_mut(slot) {
                    *kept = index;
                }
            }
            _ => {}
        }
    }
    match seen {
        0 => None,
        1 => Some(pair[0]),
        // The scan meets them in order; without this a tie would go to the first for ever.
        _ if random(2) == 0 => Some(cheaper(pair[0], pair[1], &mut cost)),
        _ => Some(cheaper(pair[1], pair[0], &mut cost)),
    }
}

/// A tie goes to `a`: callers pass the two in random order.
fn cheaper(a: usize, b: usize, cost: &mut impl FnMut(usize) -> f64) -> usize {
    if cost(b) < cost(a) { b } else { a }
}

#[cfg(test)]
mod tests;
