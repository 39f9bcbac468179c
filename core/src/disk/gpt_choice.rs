//! Which of two copies of a GPT is right, where both are whole and they contradict each other; or whether one contradicts what
//! lies on the disk.
//!
//! Each copy may have a wrong entry. So the question is put for each of our partitions: does it lie where the first copy says,
//! where the second one says, or behind the one before it, as an installation lays them out? Of all answers together in which
//! no partition lies on another one, the best counts (`Rank`). Where nothing is in question, the first copy counts as it is.
//!
//! People may put data elsewhere. So where the copies agree on STATE or EPHEMERAL, only what lies there proves another place: a
//! whole file system, or an encrypted volume that begins there and ends as the copies say; or, where it lies on another partition
//! of ours, the place of an installation, if nothing that begins is cut off.

use crate::prelude::*;

use core::cmp::Reverse;

use uuid::Uuid;

use super::{
    gpt::Entry,
    gpt_mend::{Hints, Room, known, places, with_rest},
    layout::{ENTRY_ARRAY_BYTES, META_BYTES, Part, as_installed, overlap},
};
use crate::units::{Extent, MIB, SectorSize};

/// What begins at the place of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begins {
    /// What does not belong there, or is larger than the place.
    Other,
    /// Nothing that is known.
    Nothing,
    /// What belongs there.
    Ours,
    /// It cannot be read.
    Unreadable,
}

/// What lies on the disk.
pub trait Content {
    /// What begins at the place of a partition.
    fn begins(&self, part: Part, place: Extent) -> Begins;
    /// Whether it is all there.
    fn is_whole(&self, part: Part, place: Extent) -> bool;
    /// Whether it says this PARTUUID.
    fn says(&self, part: Part, place: Extent, guid: Uuid) -> bool;
    /// Bytes of the file system for data that begins here, if it is whole and says them.
    fn volume(&self, begin: u64) -> Option<u64>;
}

/// The entries that count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chosen {
    /// Those of the first copy, with ours as they count. One that no copy has is not among them.
    pub entries: Vec<Entry>,
    /// Partitions that the first copy puts elsewhere.
    pub misplaced: Vec<Part>,
    /// Partitions that the first copy has not, and the second one has.
    pub missing: Vec<Part>,
    /// Partitions to which the first copy gives another PARTUUID, or other attributes.
    pub changed: Vec<Part>,
}

/// The two copies, and their disk.
#[derive(Clone, Copy)]
#[expect(missing_docs, reason = "the other fields are what their names say")]
pub struct Copies<'a> {
    pub first: &'a [Entry],
    /// None if it is lost, or of another disk.
    pub second: Option<&'a [Entry]>,
    pub hints: Hints,
    pub disk_bytes: u64,
    pub sector: SectorSize,
}

/// The higher, the better: the first difference decides.
type Rank = (Reverse<usize>, [usize; 5]);

/// None if it depends on something that cannot be read.
pub fn choose(copies: &Copies, content: &dyn Content) -> Option<Chosen> {
    let mut told = Part::ALL.map(|part| Told::of(copies, part));
    mark_overlaps(&mut told);
    let answers = Part::ALL.map(|part| told[part.index()].answers(part, content));
    let as_it_is = Chosen { entries: copies.first.to_vec(), misplaced: vec![], missing: vec![], changed: vec![] };
    let mut best: Option<(Rank, [Extent; 7])> = None;
    if answers.iter().any(|answers| answers.len() > 1) {
        let (hints, sector) = (copies.hints, copies.sector);
        let weigh = Weigh { told: &told, answers: &answers, hints, sector, room: room(copies), content };
        for n in 0..answers.iter().map(Vec::len).product() {
            let Some(parts) = weigh.answer(n) else { continue };
            let rank = weigh.rank(&parts)?;
            if best.as_ref().is_none_or(|(other, _)| rank > *other) {
                best = Some((rank, parts));
            }
        }
    }
    let found = best.map_or_else(|| told.each_ref().map(|told| told.first), |(_, parts)| parts.map(Some));
    Some(with_places(as_it_is, copies, &found, content))
}

/// The places of a partition by both copies.
struct Told {
    first: Option<Extent>,
    second: Option<Extent>,
    has_second: bool,
    /// The PARTUUID by the first copy.
    guid: Option<Uuid>,
    /// By the first copy it lies on another one of ours, or another one on it.
    overlaps: bool,
}

impl Told {
    fn of(copies: &Copies, part: Part) -> Self {
        let place = |entry: &Entry| entry.extent(copies.sector);
        let first = entry(copies.first, part, copies);
        let second = copies.second.and_then(|second| entry(second, part, copies)).and_then(place);
        let (guid, has_second) = (first.map(|entry| entry.guid), copies.second.is_some());
        Told { first: first.and_then(place), second, has_second, guid, overlaps: false }
    }

    fn is_alike(&self) -> bool {
        !self.has_second || self.first == self.second
    }

    /// Places in question. None: behind the partition before.
    fn answers(&self, part: Part, content: &dyn Content) -> Vec<Option<Extent>> {
        let mut answers = vec![self.first];
        if !self.is_alike() {
            answers.extend([self.second, None]);
            answers.dedup();
        } else if let Some(place) = self.first
            && (self.overlaps || matches!(content.begins(part, place), Begins::Other | Begins::Nothing))
        {
            answers.push(None);
        }
        answers
    }

    /// Whether data lies here, where both copies say something else.
    fn has_data_at(&self, part: Part, place: Extent, content: &dyn Content) -> bool {
        let Some(told) = self.first.filter(|_| self.is_alike()) else { return true };
        let fills = |bytes: u64| match part {
            Part::Ephemeral => bytes <= place.len,
            _ => bytes.checked_next_multiple_of(MIB) == Some(place.len),
        };
        let is_its_own = || told.meets(place) || self.guid.is_some_and(|guid| content.says(part, place, guid));
        if content.volume(place.offset).is_some_and(fills) && is_its_own() {
            return true;
        }
        let [begins, begins_told] = [place, told].map(|place| content.begins(part, place));
        // An encrypted volume does not say how large it is.
        if begins == Begins::Ours && begins_told == Begins::Nothing && told.end() == place.end() {
            return true;
        }
        // Its beginning is not cut off.
        let begins_as_told = told.offset == place.offset || begins_told != Begins::Ours;
        self.overlaps && told.meets(place) && begins_as_told && begins != Begins::Other
    }
}

fn mark_overlaps(told: &mut [Told; 7]) {
    let places = told.each_ref().map(|told| told.first);
    for (at, told) in told.iter_mut().enumerate() {
        let others = places.iter().enumerate().filter(|(other, _)| *other != at).filter_map(|(_, place)| *place);
        told.overlaps = told.first.is_some_and(|place| others.into_iter().any(|other| other.meets(place)));
    }
}

/// Our entry of a partition, wherever it says that this lies; or one with its number and another name.
fn entry<'a>(entries: &'a [Entry], part: Part, copies: &Copies) -> Option<&'a Entry> {
    let may_be = |entry: &Entry| entry.name == part.name() || !has_name_of_ours(entry);
    let numbered = |entry: &&Entry| entry.number == part.number() && may_be(entry);
    let known = known(entries, copies.hints, copies.disk_bytes, copies.sector);
    known[part.index()].or_else(|| entries.iter().find(numbered))
}

fn has_name_of_ours(entry: &Entry) -> bool {
    Part::ALL.iter().any(|part| part.name() == entry.name)
}

/// The room for our partitions, beside those of others.
fn room(copies: &Copies) -> Room {
    let is_ours = |entry: &Entry| entry.number <= Part::ALL.len() as u32 || has_name_of_ours(entry);
    let others = copies.first.iter().filter(|entry| !is_ours(entry)).filter_map(|entry| entry.extent(copies.sector));
    let copy = copies.hints.copy_bytes(copies.sector);
    Room { disk_bytes: copies.disk_bytes, copy, renamed: None, others: others.collect() }
}

struct Weigh<'a> {
    told: &'a [Told; 7],
    answers: &'a [Vec<Option<Extent>>; 7],
    hints: Hints,
    sector: SectorSize,
    room: Room,
    content: &'a dyn Content,
}

impl Weigh<'_> {
    /// Answer number `n`, if it is possible.
    fn answer(&self, mut n: usize) -> Option<[Extent; 7]> {
        let chosen = self.answers.each_ref().map(|answers| {
            let answer = answers[n % answers.len()];
            n /= answers.len();
            answer
        });
        let Room { disk_bytes, copy, others, .. } = &self.room;
        let mut parts = places(chosen, self.hints, &self.room)?;
        let [.., last] = &mut parts;
        if let [.., None] = chosen {
            *last = self.ephemeral(*last);
        }
        let (begin, end) = (2 * self.sector.bytes() + ENTRY_ARRAY_BYTES, disk_bytes.checked_sub(*copy)?);
        let is_possible =
            |part: &Extent| part.offset >= begin && part.end() <= end && !others.iter().any(|other| other.meets(*part));
        let has_data = |part: &Part| {
            let at = part.index();
            chosen[at].is_some() || self.told[at].has_data_at(*part, parts[at], self.content)
        };
        let has_meta = parts[Part::Meta.index()].len == META_BYTES;
        let has_data = [Part::State, Part::Ephemeral].iter().all(has_data);
        (has_meta && has_data && overlap(&parts).is_none() && parts.iter().all(is_possible)).then_some(parts)
    }

    /// EPHEMERAL ends where both copies say so, if its file system fits in there: that fills it but for the rest of the last MiB.
    fn ephemeral(&self, by_layout: Extent) -> Extent {
        let told = &self.told[Part::Ephemeral.index()];
        let Some(told) = told.first.filter(|_| told.is_alike()) else { return by_layout };
        let begin = by_layout.offset;
        let needs = self.content.volume(begin).map_or(0, |bytes| begin.saturating_add(bytes));
        let whole = self.room.end(begin).and_then(|room| with_rest(needs, room)).unwrap_or(needs);
        let fits = told.end() >= needs && !(whole..whole.saturating_add(MIB)).contains(&told.end());
        let end = if fits { told.end() } else { whole };
        end.checked_sub(begin).filter(|len| *len > 0).map_or(by_layout, |len| Extent { offset: begin, len })
    }

    fn rank(&self, parts: &[Extent; 7]) -> Option<Rank> {
        let (mut other, mut ours, mut whole, mut alike, mut first) = (0, 0, 0, 0, 0);
        for ((part, place), (told, answers)) in Part::ALL.into_iter().zip(parts).zip(self.told.iter().zip(self.answers))
        {
            alike += usize::from(told.is_alike() && told.first == Some(*place));
            first += usize::from(told.first == Some(*place));
            if answers.len() == 1 && told.first.is_some() {
                continue;
            }
            match self.content.begins(part, *place) {
                Begins::Other => other += 1,
                Begins::Nothing => {}
                Begins::Ours => {
                    ours += 1;
                    whole += usize::from(self.content.is_whole(part, *place));
                }
                Begins::Unreadable => return None,
            }
        }
        let installed = self.as_installed(parts);
        Some((Reverse(other), [whole, ours, alike, installed, first]))
    }

    /// How many of them lie as an installation lays them out. The last one takes all room that is left.
    fn as_installed(&self, parts: &[Extent; 7]) -> usize {
        let mut wanted = as_installed(parts[Part::BootA.index()].len);
        let [.., last] = &mut wanted;
        last.len = self.room.ephemeral(last.offset, None).unwrap_or(0);
        parts.iter().zip(wanted).filter(|(is, wanted)| **is == *wanted).count()
    }
}

/// Our entries with the places that were found, and with the PARTUUIDs and attributes that count.
fn with_places(mut chosen: Chosen, copies: &Copies, found: &[Option<Extent>; 7], content: &dyn Content) -> Chosen {
    for (part, place) in Part::ALL.into_iter().zip(found) {
        let first = entry(copies.first, part, copies);
        let second = copies.second.and_then(|second| entry(second, part, copies));
        let Some(place) = place.or_else(|| second?.extent(copies.sector)) else { continue };
        let Some(basis) = first.or(second) else { continue };
        let lies = |entry: &Entry| entry.extent(copies.sector) == Some(place);
        // It may be another program's, with a number of ours.
        let is_ours = |entry: &Entry| has_name_of_ours(entry) || lies(entry);
        if !is_ours(basis) && second.is_none_or(|second| second.guid != basis.guid) {
            continue;
        }
        let attributes = match second {
            Some(second) if second.attributes == part.attributes() => part.attributes(),
            _ => basis.attributes,
        };
        let guid = guid(copies, part, place, [first, second], content).unwrap_or(basis.guid);
        let (from, to) = (place.first_lba(copies.sector), place.last_lba(copies.sector));
        let counts = Entry { guid, first: from, last: to, attributes, ..basis.clone() };
        match first {
            None => chosen.missing.push(part),
            Some(first) if !lies(first) => chosen.misplaced.push(part),
            Some(first) if (first.guid, first.attributes) != (guid, attributes) => chosen.changed.push(part),
            Some(_) => {}
        }
        match chosen.entries.iter_mut().find(|entry| first.is_some_and(|first| first.number == entry.number)) {
            Some(entry) => *entry = counts,
            // Its number may be taken, and then it is not certain whose that is.
            None if copies.first.iter().any(|entry| entry.number == part.number()) => {}
            None => chosen.entries.push(Entry { number: part.number(), ..counts }),
        }
    }
    chosen
}

/// The PARTUUID that counts: the one that the content of the partition says, or else that of the first copy, unless it cannot
/// be one.
fn guid(copies: &Copies, part: Part, place: Extent, told: [Option<&Entry>; 2], content: &dyn Content) -> Option<Uuid> {
    let is_other = |entry: &&Entry| entry.number != part.number() && entry.name != part.name();
    // Of the second copy those that the first one lacks.
    let is_new = |entry: &&Entry| copies.first.iter().all(|first| first.number != entry.number);
    let second = || copies.second.unwrap_or_default().iter().filter(is_new);
    let others = || copies.first.iter().chain(second()).filter(is_other);
    let is_shared = |guid: Uuid| others().any(|entry| entry.guid == guid);
    let mut guids = told.into_iter().flatten().map(|entry| entry.guid);
    if guids.clone().all(|guid| guids.clone().next() == Some(guid)) {
        return guids.next();
    }
    let said = guids.clone().find(|guid| content.says(part, place, *guid));
    let own = || guids.clone().find(|guid| !guid.is_nil() && !is_shared(*guid));
    said.or_else(own).or_else(|| guids.find(|guid| !guid.is_nil()))
}

#[cfg(test)]
mod tests;
