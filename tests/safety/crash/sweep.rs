//! Every disk that a power cut could leave, rebuilt from a log of writes and flushes.

use std::fmt::Display;

use slipway_core::units::Extent;

use super::{
    disk::Op,
    pages::{GARBAGE, Pages, SECTOR},
};

/// Deterministic random numbers (SplitMix64).
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }
}

/// The fate of a write that was not flushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Arrived {
    Not,
    Whole,
    /// Some of its sectors.
    Torn,
    /// All of it, but for one sector that was being written and is garbage.
    Damaged,
}

fn arrive(op: &Op, how: Arrived, pages: &mut Pages, rng: &mut Rng, atomic: &[Extent]) {
    match (how, op) {
        (Arrived::Not, _) => {}
        (Arrived::Torn, _) => {
            (0..).map_while(|n| op.piece(n)).for_each(|piece| {
                if rng.next() & 1 == 0 {
                    piece.apply(pages);
                }
            });
        }
        (Arrived::Damaged, Op::Write { offset, bytes }) => {
            op.apply(pages);
            let sector = offset + (rng.below(bytes.len().div_ceil(SECTOR)) * SECTOR) as u64;
            if !atomic.iter().any(|extent| extent.contains(Extent { offset: sector, len: SECTOR as u64 })) {
                pages.write(sector, &[GARBAGE; SECTOR]);
            }
        }
        _ => op.apply(pages),
    }
}

/// Visits states, and stops when told to.
struct Visitor<'v> {
    visit: &'v mut dyn FnMut(&Pages, &dyn Display) -> bool,
    visited: usize,
    go_on: bool,
}

impl Visitor<'_> {
    fn state(&mut self, pages: &Pages, what: &dyn Display) {
        if self.go_on {
            self.visited += 1;
            self.go_on = (self.visit)(pages, what);
        }
    }
}

/// Visit `states` disks, or some more, that a cut during `log` could leave, over `base`; ends early when `visit`
/// says so. Returns how many it were.
///
/// A cut in every epoch, from one flush to the next, is visited. Of the writes not flushed any subset may have
/// arrived, in any order (which is the same, unless they overlap: then a later one wins, as for a queue), torn
/// between any two sectors or with one sector damaged, unless it is in `atomic`: such sectors arrive whole or not at all.
pub fn sweep(
    base: &Pages,
    log: &[Op],
    states: usize,
    atomic: &[Extent],
    visit: &mut dyn FnMut(&Pages, &dyn Display) -> bool,
) -> usize {
    let mut visitor = Visitor { visit, visited: 0, go_on: true };
    let mut rng = Rng(1);
    let mut durable = base.clone();
    // What follows the last flush is an epoch, too; an empty one is the finished disk.
    let epochs: Vec<&[Op]> = log.split(|op| matches!(op, Op::Sync)).collect();
    let writes = epochs.iter().map(|e| e.len()).sum::<usize>().max(1);
    for (n, epoch) in epochs.iter().enumerate() {
        let share = (states * epoch.len()).div_ceil(writes);
        let at = format!("epoch {n} of {}, {} writes", epochs.len(), epoch.len());
        let before = visitor.visited;
        visitor.state(&durable, &format_args!("{at}: nothing of it arrived"));
        systematic(&durable, epoch, (share, atomic), &mut rng, &mut |pages, what| {
            visitor.state(pages, &format_args!("{at}: {what}"));
        });
        while !epoch.is_empty() && visitor.go_on && visitor.visited - before < share {
            let (pages, what) = random(&durable, epoch, &mut rng, atomic);
            visitor.state(&pages, &format_args!("{at}: {what}"));
        }
        epoch.iter().for_each(|op| op.apply(&mut durable));
    }
    visitor.visited
}

/// The cuts worth trying each: all ways in which few writes arrive, some first ones, some last ones; and, as far as
/// `share` goes, the first ones without one of them, and the last ones with one before them.
fn systematic(
    durable: &Pages,
    epoch: &[Op],
    (share, atomic): (usize, &[Extent]),
    rng: &mut Rng,
    visit: &mut dyn FnMut(&Pages, &dyn Display),
) {
    use Arrived::{Damaged, Not, Whole};
    let len = epoch.len();
    let mut state = |how: &dyn Fn(usize) -> Arrived, what: &dyn Display, rng: &mut Rng| {
        let mut pages = durable.clone();
        epoch.iter().enumerate().for_each(|(i, op)| arrive(op, how(i), &mut pages, rng, atomic));
        visit(&pages, what);
    };
    if len <= 4 {
        for code in 1..3usize.pow(len as u32) {
            let how = |i| [Not, Whole, Damaged][code / 3usize.pow(i as u32) % 3];
            state(&how, &format_args!("case {code}"), rng);
        }
        return;
    }
    let when = |yes| if yes { Whole } else { Not };
    for cut in 1..=len {
        state(&|i| when(i < cut), &format_args!("the first {cut}"), rng);
        state(&|i| when(i >= cut), &format_args!("all but the first {cut}"), rng);
    }
    let pairs = len * (len - 1);
    for _ in 0..pairs.min((share / 2).saturating_sub(2 * len)) {
        let (cut, one) = (rng.below(len + 1), rng.below(len));
        state(&|i| when((i < cut) != (i == one)), &format_args!("the first {cut}, but not or also {one}"), rng);
        state(&|i| when((i >= cut) != (i == one)), &format_args!("from {cut} on, but not or also {one}"), rng);
    }
}

/// A cut somewhere, and of what was written before it anything arrived.
fn random(durable: &Pages, epoch: &[Op], rng: &mut Rng, atomic: &[Extent]) -> (Pages, String) {
    let mut pages = durable.clone();
    let cut = if rng.next() & 1 == 0 { epoch.len() } else { 1 + rng.below(epoch.len()) };
    // Out of 16.
    let (lost, torn) = ([1, 4, 8, 14][rng.below(4)], [1, 4][rng.below(2)]);
    let mut arrived = String::new();
    for op in &epoch[..cut] {
        let how = match rng.below(16) {
            n if n < lost => Arrived::Not,
            _ => match rng.below(16) {
                n if n < torn => Arrived::Torn,
                n if n == torn => Arrived::Damaged,
                _ => Arrived::Whole,
            },
        };
        arrived.push(match how {
            Arrived::Not => '-',
            Arrived::Whole => 'w',
            Arrived::Torn => 't',
            Arrived::Damaged => 'd',
        });
        arrive(op, how, &mut pages, rng, atomic);
    }
    (pages, arrived)
}
