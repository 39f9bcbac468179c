//! Sharing out columns among regions of very different lengths.

use crate::prelude::*;

/// Space of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Width in columns.
    pub columns: usize,
    /// Whether it is wider than to scale, because it would be too small to see.
    pub widened: bool,
}

/// Share out exactly `total` columns among regions `(bytes, least columns)`. A region that would be too small gets its
/// least; the others are to scale among themselves, to one column. `None` if the least columns do not fit into `total`.
pub fn columns(regions: &[(u64, usize)], total: usize) -> Option<Vec<Share>> {
    let mut rest = total.checked_sub(regions.iter().map(|(_, least)| least).sum())?;
    let mut shares: Vec<Share> = regions.iter().map(|(_, least)| Share { columns: *least, widened: true }).collect();
    let Some(longest) = (0..regions.len()).max_by_key(|i| regions[*i].0) else {
        return (total == 0).then_some(shares);
    };
    // Widening one region takes columns from the others, some of which may become too small in turn. So repeat until
    // no more are.
    let mut scaled = vec![true; regions.len()];
    let (bytes, room) = loop {
        let of = |least: bool| {
            regions.iter().zip(&scaled).filter(move |(_, s)| **s != least).map(|(r, _)| *r).collect::<Vec<_>>()
        };
        let bytes: u128 = of(false).iter().map(|(bytes, _)| u128::from(*bytes)).sum();
        let room = (total - of(true).iter().map(|(_, least)| least).sum::<usize>()) as u128;
        let small = |i: &usize| scaled[*i] && u128::from(regions[*i].0) * room < regions[*i].1 as u128 * bytes;
        let found: Vec<usize> = (0..regions.len()).filter(small).collect();
        if found.is_empty() {
            break (bytes, room);
        }
        found.into_iter().for_each(|i| scaled[i] = false);
    };
    if bytes == 0 {
        shares[longest].columns += rest;
        return Some(shares);
    }
    let mut remainders = Vec::new();
    for (i, (len, least)) in regions.iter().enumerate().filter(|(i, _)| scaled[*i]) {
        let exact = u128::from(*len) * room;
        let columns = usize::try_from(exact / bytes).unwrap_or(*least);
        shares[i] = Share { columns, widened: false };
        rest -= columns - least;
        remainders.push((exact % bytes, i));
    }
    // Columns left over by rounding down go to the regions that lost most by it.
    remainders.sort_by_key(|(remainder, i)| (core::cmp::Reverse(*remainder), *i));
    for (_, i) in remainders.into_iter().take(rest) {
        shares[i].columns += 1;
    }
    Some(shares)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn widths(regions: &[(u64, usize)], total: usize) -> Vec<usize> {
        columns(regions, total).unwrap().iter().map(|s| s.columns).collect()
    }

    #[test]
    fn to_scale_where_it_can_be() {
        assert_eq!(widths(&[(1, 2), (2, 2), (5, 2)], 80), [10, 20, 50]);
        assert_eq!(widths(&[(1, 4), (1 << 44, 4)], 80), [4, 76]);
        assert_eq!(widths(&[(1, 1), (1, 1), (1, 1)], 11), [4, 4, 3]);
        assert_eq!(widths(&[(0, 2), (0, 2)], 10), [2, 8]);
        assert_eq!(columns(&[(1, 4), (1, 4)], 7), None);
        assert!(columns(&[(1, 4), (1 << 44, 4)], 80).unwrap()[0].widened);
    }

    proptest! {
        #[test]
        fn the_columns_add_up(
            regions in prop::collection::vec(((0..64u32, any::<u64>()).prop_map(|(s, n)| n >> s), 1..6usize), 1..150),
            more in 0..300usize,
        ) {
            let total = regions.iter().map(|(_, least)| least).sum::<usize>() + more;
            let shares = columns(&regions, total).unwrap();
            prop_assert_eq!(shares.iter().map(|s| s.columns).sum::<usize>(), total);
            prop_assert!(shares.iter().zip(&regions).all(|(s, (_, least))| s.columns >= *least));
            for (a, (x, _)) in shares.iter().zip(&regions).filter(|(s, _)| !s.widened) {
                for (b, (y, _)) in shares.iter().zip(&regions).filter(|(s, _)| !s.widened) {
                    // Among those to scale, the longer one is not narrower, and the ratio holds to a column.
                    prop_assert!(x < y || a.columns + 1 >= b.columns);
                    let (p, q) = (a.columns as f64 * *y as f64, b.columns as f64 * *x as f64);
                    prop_assert!((p - q).abs() <= 1.001 * (*x as f64 + *y as f64));
                }
            }
        }
    }
}
