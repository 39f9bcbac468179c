//! TLS handshakes that are under way. There may be so many; the next one takes the place of another, of the network with most
//! of them: a flood displaces itself, whatever it says. Beside a flood of its own network a client keeps its place as long as
//! it differs from it: the flood either says nothing, or has spoken.

use std::{
    collections::BTreeMap,
    future::Future,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::task::AbortHandle;

/// The handshakes of one listener. Clones are the same.
#[derive(Clone, Debug)]
pub(crate) struct Handshakes {
    most: usize,
    pending: Arc<Mutex<Pending>>,
}

#[derive(Debug, Default)]
struct Pending {
    /// The number of the next one.
    next: u64,
    /// By number: the oldest first.
    all: BTreeMap<u64, Handshake>,
}

#[derive(Debug)]
struct Handshake {
    from: Network,
    /// Its first bytes have come.
    has_spoken: bool,
    task: AbortHandle,
}

/// Addresses that one host can take: an IPv4 address, or the /64 of an IPv6 address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Network(u64);

impl From<IpAddr> for Network {
    fn from(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Self(address.to_bits().into()),
            IpAddr::V6(address) => Self((address.to_bits() >> 64) as u64),
        }
    }
}

/// One handshake, as its task has it. Its place is free when this is dropped.
#[derive(Debug)]
pub(crate) struct Turn {
    of: Handshakes,
    number: u64,
}

impl Handshakes {
    /// At most so many.
    pub(crate) fn new(most: usize) -> Self {
        Self { most: most.max(1), pending: Arc::default() }
    }

    /// Begin one with a client at this address. Another one is ended for it if there are too many.
    pub(crate) fn begin<F>(&self, from: IpAddr, handshake: impl FnOnce(Turn) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        // Its task cannot end before it is in the list: its end takes the same lock.
        let mut pending = self.pending();
        if pending.all.len() >= self.most
            && let Some(number) = displaced(&pending.all)
            && let Some(displaced) = pending.all.remove(&number)
        {
            displaced.task.abort();
        }
        let number = pending.next;
        pending.next += 1;
        let task = tokio::spawn(handshake(Turn { of: self.clone(), number })).abort_handle();
        pending.all.insert(number, Handshake { from: from.into(), has_spoken: false, task });
    }

    fn pending(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Turn {
    /// The client's first bytes have come.
    pub(crate) fn has_spoken(&self) {
        if let Some(handshake) = self.of.pending().all.get_mut(&self.number) {
            handshake.has_spoken = true;
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.of.pending().all.remove(&self.number);
    }
}

/// The number of the one that goes: of the network with most of all, the silent ones or those that have spoken, whichever are
/// more, and of these the oldest. Where several networks have as many, they are taken as one.
fn displaced(all: &BTreeMap<u64, Handshake>) -> Option<u64> {
    let mut counts: BTreeMap<Network, usize> = BTreeMap::new();
    all.values().for_each(|of| *counts.entry(of.from).or_default() += 1);
    let most = counts.values().copied().max()?;
    let crowd: Vec<_> = all.iter().filter(|(_, of)| counts.get(&of.from) == Some(&most)).collect();
    let spoken = crowd.iter().filter(|(_, of)| of.has_spoken).count();
    let spoken_are_more = spoken > crowd.len() - spoken;
    crowd.into_iter().find(|(_, of)| of.has_spoken == spoken_are_more).map(|(number, _)| *number)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The connections to end of these: each has an address and whether it has spoken.
    async fn goes(of: &[(&str, bool)]) -> Option<u64> {
        let task = tokio::spawn(async {}).abort_handle();
        let one = |(address, has_spoken): &(&str, bool)| {
            let address: IpAddr = address.parse().unwrap();
            Handshake { from: address.into(), has_spoken: *has_spoken, task: task.clone() }
        };
        displaced(&(0..).zip(of.iter().map(one)).collect())
    }

    #[tokio::test]
    async fn a_silent_flood_displaces_itself() {
        let (client, flood) = ("10.0.0.1", "10.0.0.2");
        assert_eq!(goes(&[]).await, None);
        assert_eq!(goes(&[(client, true), (client, false)]).await, Some(1), "who speaks stays");
        assert_eq!(goes(&[(client, false), (flood, false), (flood, false)]).await, Some(1), "the network with most");
        assert_eq!(goes(&[(client, true), (flood, true), (flood, true)]).await, Some(1), "also if all speak");
        assert_eq!(goes(&[(client, false), (client, false)]).await, Some(0), "the oldest");
        // One host has many addresses of IPv6.
        let many = [("2001:db8::1", false), ("2001:db8:0:1::1", false), ("2001:db8:0:1::2", false)];
        assert_eq!(goes(&many).await, Some(1));
        assert_eq!(goes(&[("::ffff:10.0.0.2", false), (client, false), (flood, false)]).await, Some(0));
    }

    /// Half a word makes a flood's sockets those that have spoken, beside which only a new client is silent.
    #[tokio::test]
    async fn a_flood_that_says_half_a_word_displaces_itself() {
        let (client, flood) = ("10.0.0.1", "10.0.0.2");
        assert_eq!(goes(&[(flood, true), (flood, true), (client, false)]).await, Some(0), "a new client stays");
        assert_eq!(goes(&[(client, false), (flood, false), (flood, true), (flood, true)]).await, Some(2));
        // Also in the network of the client, and where no network has more than another.
        assert_eq!(goes(&[(flood, true), (flood, true), (flood, false)]).await, Some(0));
        assert_eq!(goes(&[("10.0.0.3", true), (flood, true), (client, false)]).await, Some(0));
        assert_eq!(goes(&[(client, true), (flood, false), (flood, false)]).await, Some(1));
        assert_eq!(goes(&[(client, true), (client, false), (client, false)]).await, Some(1));
    }

    #[tokio::test]
    async fn there_are_never_more_than_there_may_be() {
        let handshakes = Handshakes::new(3);
        for _ in 0..10 {
            handshakes.begin("10.0.0.1".parse().unwrap(), |turn| async move {
                let _turn = turn;
                std::future::pending::<()>().await;
            });
            assert!(handshakes.pending().all.len() <= 3);
        }
        let left: Vec<u64> = handshakes.pending().all.keys().copied().collect();
        assert_eq!(left, [7, 8, 9]);
        handshakes.pending().all.values().for_each(|of| of.task.abort());
        while !handshakes.pending().all.is_empty() {
            tokio::task::yield_now().await;
        }
    }
}
