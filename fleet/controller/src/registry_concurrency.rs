//! Limit the looks into registries at once: so many in all, and one into each registry. So a registry that hangs
//! keeps its own channels waiting, and no others.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};

/// The places.
#[derive(Debug)]
pub struct RegistryConcurrency {
    all: Arc<Semaphore>,
    of: Mutex<BTreeMap<String, Weak<Semaphore>>>,
}

/// A place. It is free again when this is dropped.
#[derive(Debug)]
pub struct Place {
    _all: OwnedSemaphorePermit,
    _own: OwnedSemaphorePermit,
}

impl RegistryConcurrency {
    /// So many in all.
    pub fn new(all: usize) -> Self {
        Self { all: Arc::new(Semaphore::new(all)), of: Mutex::default() }
    }

    /// Wait for a place of this registry, and then for one of all.
    pub async fn acquire(&self, registry: &str) -> Result<Place, AcquireError> {
        let own = self.registry(registry).acquire_owned().await?;
        Ok(Place { _own: own, _all: Arc::clone(&self.all).acquire_owned().await? })
    }

    fn registry(&self, name: &str) -> Arc<Semaphore> {
        let mut of = self.of.lock().unwrap_or_else(PoisonError::into_inner);
        // No look uses these, and none waits for them.
        of.retain(|_, own| own.strong_count() > 0);
        of.get(name).and_then(Weak::upgrade).unwrap_or_else(|| {
            let own = Arc::new(Semaphore::new(1));
            of.insert(name.to_owned(), Arc::downgrade(&own));
            own
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::{runtime::Builder, time::timeout};

    use super::*;

    #[test]
    fn a_registry_has_one_place_and_never_all_of_them() {
        let runtime = Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let places = RegistryConcurrency::new(2);
            let at_once = async |registry| timeout(Duration::from_millis(20), places.acquire(registry)).await.ok();
            let slow = at_once("slow").await;
            assert!(slow.is_some() && at_once("slow").await.is_none());
            let other = at_once("other").await;
            assert!(other.is_some() && at_once("third").await.is_none());
            // A wait in vain leaves nothing behind.
            drop((slow, other));
            assert!(at_once("slow").await.is_some() && at_once("third").await.is_some());
            assert_eq!(places.of.lock().unwrap().len(), 1, "an unused registry is forgotten with the next look");
        });
    }
}
