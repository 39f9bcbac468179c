//! Places for what there may only be so many of: connections, calls, watches. One identity gets a quarter of them, and
//! all callers without the right to change anything get half: so the controller and admins always find a place.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::role::Role;

/// Places, all of one kind. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    total: usize,
    taken: Arc<Mutex<Taken>>,
}

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    /// By callers that may only look.
    readers: usize,
    /// By role and name: a reader with the name of the controller is another one.
    by_identity: BTreeMap<(Option<Role>, String), usize>,
}

/// A place that is taken. It is free again when this is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    places: Places,
    identity: (Option<Role>, String),
    is_reader: bool,
}

/// Why there is no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Full {
    #[error("all {0} are taken")]
    All(usize),
    #[error("readers have all {0} that they may have together")]
    Readers(usize),
    #[error("this identity has all {0} that one may have")]
    Identity(usize),
}

impl Places {
    /// So many of them.
    pub(crate) fn new(total: usize) -> Self {
        Self { total, taken: Arc::default() }
    }

    /// The places of all readers together.
    fn of_readers(&self) -> usize {
        (self.total / 2).max(1)
    }

    /// The places of one identity.
    fn of_one(&self) -> usize {
        (self.total / 4).max(1)
    }

    /// One for the caller with this name and role.
    pub(crate) fn take(&self, name: &str, role: Option<Role>) -> Result<Place, Full> {
        let is_reader = role.is_none_or(|role| role <= Role::Reader);
        let identity = (role, name.to_owned());
        let mut taken = self.taken();
        let own = taken.by_identity.get(&identity).copied().unwrap_or_default();
        match () {
            () if taken.all >= self.total => return Err(Full::All(self.total)),
            () if is_reader && taken.readers >= self.of_readers() => return Err(Full::Readers(self.of_readers())),
            () if own >= self.of_one() => return Err(Full::Identity(self.of_one())),
            () => {}
        }
        taken.all += 1;
        taken.readers += usize::from(is_reader);
        taken.by_identity.insert(identity.clone(), own + 1);
        Ok(Place { places: self.clone(), identity, is_reader })
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.taken();
        taken.all -= 1;
        taken.readers -= usize::from(self.is_reader);
        if let Some(own) = taken.by_identity.get_mut(&self.identity) {
            *own -= 1;
            if *own == 0 {
                taken.by_identity.remove(&self.identity);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(places: &Places, names: &[&str], role: Option<Role>) -> Vec<Place> {
        let each = names.iter().flat_map(|name| (0..64).map_while(|_| places.take(name, role).ok()));
        each.collect()
    }

    #[test]
    fn readers_leave_half_and_one_identity_has_a_quarter() {
        let places = Places::new(64);
        let one = all(&places, &["alice"], Some(Role::Reader));
        assert_eq!(one.len(), 16);
        assert_eq!(places.take("alice", Some(Role::Reader)).unwrap_err(), Full::Identity(16));
        let more = all(&places, &["bob", "carol", "dave"], None);
        assert_eq!(one.len() + more.len(), 32);
        assert_eq!(places.take("erin", Some(Role::Reader)).unwrap_err(), Full::Readers(32));
        let rest = all(&places, &["controller", "root", "frank"], Some(Role::Admin));
        assert_eq!(rest.len(), 32);
        assert_eq!(places.take("grace", Some(Role::Admin)).unwrap_err(), Full::All(64));
        drop((one, more));
        assert_eq!(places.take("root", Some(Role::Admin)).unwrap_err(), Full::Identity(16));
        places.take("grace", Some(Role::Operator)).unwrap();
        drop(rest);
        assert_eq!(places.taken().by_identity.len(), 0);
        assert_eq!(all(&places, &["alice"], Some(Role::Reader)).len(), 16);
    }

    #[test]
    fn a_reader_with_the_name_of_the_controller_takes_none_of_its_places() {
        let places = Places::new(64);
        let others = all(&places, &["slipway-fleet"], Some(Role::Reader));
        let own = all(&places, &["slipway-fleet"], Some(Role::Controller));
        assert_eq!((others.len(), own.len()), (16, 16));
    }

    #[test]
    fn the_last_place_is_everybodys() {
        let places = Places::new(1);
        let place = places.take("alice", Some(Role::Reader)).unwrap();
        places.take("root", Some(Role::Admin)).unwrap_err();
        drop(place);
        places.take("root", Some(Role::Admin)).unwrap();
    }
}
