//! Nodes that did not answer in time. A round waits for such a node no more: it is asked beside the rounds until it answers, and
//! has a share of places of its own there. What it says there decides nothing, because no answer may be older than the
//! ledger that a round has read: the next round looks at it again.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use tokio::{
    spawn,
    sync::Semaphore,
    task::{AbortHandle, JoinSet},
    time::{sleep, timeout},
};

/// Nodes that are spoken to at once, in a round; and as many beside it.
const AT_ONCE: usize = 64;
/// So long after it did not answer a node gets little time of a round: else one that answers now and then would make every
/// other round long.
const REMEMBERED: Duration = Duration::from_secs(600);

/// How long a round waits for a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// As long as an answer may take.
    Whole,
    /// A fifth of that: it did not answer a while ago, and has answered since.
    Short,
    /// It is asked beside the round.
    NotAtAll,
}

/// How long a round waits for a node. `late` is how long ago it did not answer, and whether it is being asked beside the rounds.
pub fn wait_for(late: Option<(Duration, bool)>) -> Wait {
    match late {
        Some((_, true)) => Wait::NotAtAll,
        Some((ago, false)) if ago < REMEMBERED => Wait::Short,
        Some(_) | None => Wait::Whole,
    }
}

/// A question to the node with this UID at this address.
#[derive(Clone, Debug)]
pub struct Question<Q> {
    /// The UID of the Node.
    pub uid: String,
    /// Where it is.
    pub address: String,
    /// Asks it.
    pub ask: Q,
}

/// A node that did not answer in time.
#[derive(Debug)]
struct Late {
    /// Who answers at another address may be quick.
    address: String,
    at: Instant,
    /// Asks it beside the rounds until it answers.
    look: Option<AbortHandle>,
    /// The last request to it.
    request: Option<AbortHandle>,
}

fn is_under_way(task: Option<&AbortHandle>) -> bool {
    task.is_some_and(|task| !task.is_finished())
}

/// The nodes that did not answer in time.
#[derive(Debug)]
pub struct SlowNodes {
    /// The longest time for one answer.
    answer: Duration,
    beside: Arc<Semaphore>,
    /// By UID.
    late: Mutex<BTreeMap<String, Late>>,
}

impl SlowNodes {
    /// None yet; `answer` is the longest time for one answer.
    pub fn new(answer: Duration) -> Self {
        Self { answer, beside: Arc::new(Semaphore::new(AT_ONCE)), late: Mutex::default() }
    }

    fn late(&self) -> MutexGuard<'_, BTreeMap<String, Late>> {
        self.late.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait_for(&self, uid: &str) -> Wait {
        wait_for(self.late().get(uid).map(|late| (late.at.elapsed(), is_under_way(late.look.as_ref()))))
    }

    fn within(&self, wait: Wait) -> Duration {
        if wait == Wait::Whole { self.answer } else { self.answer / 5 }
    }

    /// The answers of all nodes that are looked at, by UID; `None` of one that did not answer in time.
    pub async fn look<T, Q, A>(&self, questions: Vec<Question<Q>>) -> BTreeMap<String, Option<T>>
    where
        T: Send + 'static,
        Q: Fn() -> A + Clone + Send + 'static,
        A: Future<Output = T> + Send + 'static,
    {
        self.forget_others(&questions);
        let (gate, mut looks, mut answers) = (Arc::new(Semaphore::new(AT_ONCE)), JoinSet::new(), BTreeMap::new());
        for question in questions {
            let wait = self.wait_for(&question.uid);
            if wait == Wait::NotAtAll {
                answers.insert(question.uid, None);
                continue;
            }
            let (within, gate) = (self.within(wait), Arc::clone(&gate));
            looks.spawn(async move {
                // The gate is never closed.
                let _place = gate.acquire().await;
                let answer = timeout(within, (question.ask)()).await.ok();
                (question, answer)
            });
        }
        for (question, answer) in looks.join_all().await {
            if answer.is_none() {
                self.ask_beside(&question);
            }
            answers.insert(question.uid, answer);
        }
        answers
    }

    /// The answers to requests, by UID; `None` of a node that did not answer in time. What was sent goes on to its end.
    pub async fn request<T, A>(&self, requests: Vec<Question<A>>) -> BTreeMap<String, Option<T>>
    where
        T: Send + 'static,
        A: Future<Output = T> + Send + 'static,
    {
        let (gate, mut asks, mut answers) = (Arc::new(Semaphore::new(AT_ONCE)), JoinSet::new(), BTreeMap::new());
        for Question { uid, address, ask } in requests {
            if self.late().get(&uid).is_some_and(|late| is_under_way(late.request.as_ref())) {
                answers.insert(uid, None);
                continue;
            }
            let (answer, within, gate) = (self.answer, self.within(self.wait_for(&uid)), Arc::clone(&gate));
            asks.spawn(async move {
                let _place = gate.acquire().await;
                let mut request = spawn(async move { timeout(answer, ask).await.ok() });
                let answer = timeout(within, &mut request).await.ok().and_then(Result::ok).flatten();
                (uid, address, answer, request.abort_handle())
            });
        }
        for (uid, address, answer, request) in asks.join_all().await {
            if answer.is_none() {
                self.remember(&uid, &address, |late| late.request = Some(request));
            }
            answers.insert(uid, answer);
        }
        answers
    }

    /// Ask a node until it answers, whatever that is.
    fn ask_beside<T, Q, A>(&self, Question { uid, address, ask }: &Question<Q>)
    where
        T: Send + 'static,
        Q: Fn() -> A + Clone + Send + 'static,
        A: Future<Output = T> + Send + 'static,
    {
        let (ask, answer, beside) = (ask.clone(), self.answer, Arc::clone(&self.beside));
        let look = spawn(async move {
            loop {
                sleep(answer / 2).await;
                let _place = beside.acquire().await;
                if timeout(answer, ask()).await.is_ok() {
                    return;
                }
            }
        });
        self.remember(uid, address, |late| late.look = Some(look.abort_handle()));
    }

    fn remember(&self, uid: &str, address: &str, change: impl FnOnce(&mut Late)) {
        let (mut all, now) = (self.late(), Instant::now());
        let late = all.entry(uid.to_owned()).or_insert_with(|| Late {
            address: address.to_owned(),
            at: now,
            look: None,
            request: None,
        });
        // From the first time on: who needs longer than a short wait has a whole one again.
        if late.at.elapsed() >= REMEMBERED {
            late.at = now;
        }
        change(late);
    }

    /// What is known of nodes that are not looked at any more, or have another address by now, counts no more.
    fn forget_others<Q>(&self, questions: &[Question<Q>]) {
        let there: BTreeMap<&str, &str> =
            questions.iter().map(|question| (question.uid.as_str(), question.address.as_str())).collect();
        self.late().retain(|uid, late| {
            let is_there = there.get(uid.as_str()).is_some_and(|address| *address == late.address);
            if !is_there {
                late.look.iter().for_each(AbortHandle::abort);
            }
            is_there
        });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use tokio::runtime::Builder;

    use super::*;

    const SOON: Duration = Duration::from_millis(50);
    /// Whoever waits for that does not come back.
    const FOREVER: Duration = Duration::from_secs(1 << 30);
    const ADDRESS: &str = "10.0.0.1:7";

    #[test]
    fn a_round_waits_for_who_answered_and_shortly_for_who_did_not_a_while_ago() {
        let second = Duration::from_secs(1);
        for (late, of) in [
            (None, Wait::Whole),
            (Some((second, true)), Wait::NotAtAll),
            (Some((2 * REMEMBERED, true)), Wait::NotAtAll),
            (Some((second, false)), Wait::Short),
            (Some((REMEMBERED - second, false)), Wait::Short),
            (Some((REMEMBERED, false)), Wait::Whole),
        ] {
            assert_eq!(wait_for(late), of, "{late:?}");
        }
    }

    /// A thousand nodes, of which two hundred take a connection and answer nothing. None of them answers again before `hang` is
    /// false.
    fn fleet(hang: &Arc<AtomicBool>) -> Vec<Question<impl Fn() -> BoxedAnswer + Clone + Send + use<>>> {
        let question = |n: usize| {
            let hang = Arc::clone(hang);
            let ask = move || -> BoxedAnswer {
                let hang = Arc::clone(&hang);
                Box::pin(async move {
                    while n.is_multiple_of(5) && hang.load(Ordering::SeqCst) {
                        sleep(SOON / 5).await;
                    }
                    n
                })
            };
            Question { uid: format!("uid-{n}"), address: ADDRESS.to_owned(), ask }
        };
        (0..1000).map(question).collect()
    }

    type BoxedAnswer = std::pin::Pin<Box<dyn Future<Output = usize> + Send>>;

    fn is_there<T>(answers: &BTreeMap<String, Option<T>>) -> usize {
        assert_eq!(answers.len(), 1000);
        answers.values().flatten().count()
    }

    #[test]
    fn one_round_waits_for_two_hundred_nodes_that_hang_and_no_other_does() {
        let runtime = Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let (nodes, hang) = (SlowNodes::new(SOON), Arc::new(AtomicBool::new(true)));
            assert_eq!(is_there(&nodes.look(fleet(&hang)).await), 800);
            let nodes = SlowNodes { answer: FOREVER, ..nodes };
            for _ in 0..3 {
                assert_eq!(is_there(&nodes.look(fleet(&hang)).await), 800);
            }
            // They answer again, and a round hears of it.
            hang.store(false, Ordering::SeqCst);
            while is_there(&nodes.look(fleet(&hang)).await) < 1000 {
                sleep(SOON).await;
            }
        });
    }

    #[test]
    fn a_node_with_another_address_is_another_one_and_one_that_is_gone_is_forgotten() {
        let runtime = Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let (nodes, hang) = (SlowNodes::new(SOON), Arc::new(AtomicBool::new(true)));
            let of = |address: &str, hang: &Arc<AtomicBool>| {
                let mut first = fleet(hang);
                first.truncate(1);
                first[0].address = address.to_owned();
                first
            };
            assert_eq!(nodes.look(of("10.0.0.1:7", &hang)).await["uid-0"], None);
            let quick = Arc::new(AtomicBool::new(false));
            assert_eq!(nodes.look(of("10.0.0.1:7", &quick)).await["uid-0"], None, "that is asked beside the round");
            assert_eq!(nodes.look(of("10.0.0.2:7", &quick)).await["uid-0"], Some(0));
            assert_eq!(nodes.look(of("10.0.0.2:7", &hang)).await["uid-0"], None);
            assert_eq!(nodes.late().len(), 1);
            let mut nobody = of("10.0.0.2:7", &hang);
            nobody.clear();
            assert!(nodes.look(nobody).await.is_empty() && nodes.late().is_empty());
        });
    }

    #[test]
    fn a_request_that_is_not_answered_goes_on_to_its_end_and_is_not_sent_twice() {
        let runtime = Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let nodes = SlowNodes::new(Duration::from_secs(10));
            let (sent, hang, done) = (Arc::new(Mutex::new(0)), Arc::new(AtomicBool::new(false)), Arc::default());
            let request = |done: &Arc<AtomicBool>| {
                let (sent, hang, done) = (Arc::clone(&sent), Arc::clone(&hang), Arc::clone(done));
                let ask = async move {
                    *sent.lock().unwrap() += 1;
                    while hang.load(Ordering::SeqCst) {
                        sleep(SOON).await;
                    }
                    done.store(true, Ordering::SeqCst);
                };
                vec![Question { uid: "uid-0".to_owned(), address: ADDRESS.to_owned(), ask }]
            };
            assert_eq!(nodes.request(request(&Arc::default())).await["uid-0"], Some(()));
            // It was late, so a round waits two seconds of the ten.
            nodes.remember("uid-0", ADDRESS, |_| ());
            hang.store(true, Ordering::SeqCst);
            assert_eq!(nodes.request(request(&done)).await["uid-0"], None);
            assert_eq!(nodes.request(request(&Arc::default())).await["uid-0"], None);
            assert_eq!(*sent.lock().unwrap(), 2);
            hang.store(false, Ordering::SeqCst);
            while !done.load(Ordering::SeqCst) {
                sleep(SOON).await;
            }
            assert_eq!(nodes.request(request(&Arc::default())).await["uid-0"], Some(()));
        });
    }
}
