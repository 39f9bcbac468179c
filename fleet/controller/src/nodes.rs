//! Nodes, looked at and asked.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use jiff::Timestamp;
use k8s_openapi::api::core::v1 as core;
use slipway_kubernetes_upgrade::look::Connect;
use slipway_node::request::Request;
use slipway_node_api::{
    bound::cut,
    reason::Reason,
    request,
    v1::{AbortRequest, RequestState, StatusRequest, StatusResponse, plan_request::Goal},
};
use slipway_node_client::{Client, Files, Trust, chain};
use uuid::Uuid;

use crate::{
    observed_node::{NoReport, NodeReading, address, uid},
    slow_nodes::{Question, SlowNodes},
};

/// The longest time for one answer of a node, the connection included.
const ANSWER: Duration = Duration::from_secs(10);

/// After a node has said that it begins something, it is not believed for so long that it begins the same again.
const BEGINS: Duration = Duration::from_secs(10);

/// The connections to nodes.
#[derive(Clone, Debug)]
pub struct Nodes {
    files: Files,
    port: u16,
    slow: Arc<SlowNodes>,
    /// When nodes said that they begin, by UID and what they begin.
    begun: Arc<Mutex<BTreeMap<String, Instant>>>,
}

/// A request to a node.
#[derive(Clone, Debug)]
pub enum Ask {
    /// To do something.
    For(Request),
    /// To end the operation of this name, and go back.
    Abort(Uuid, String),
}

/// The result of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It begins.
    New,
    /// It was asked for before.
    Known,
    /// It was not done, or that is unknown: why.
    Refused(String),
}

impl Nodes {
    /// Reached with these certificates, at this port. The files are read in each round: they may change.
    pub fn new(files: Files, port: u16) -> Self {
        Self { files, port, slow: Arc::new(SlowNodes::new(ANSWER)), begun: Arc::default() }
    }

    /// When the first of the controller's own certificates expires, or the last of its authorities, in seconds since 1970; and
    /// why no node can be asked.
    pub fn certificates(&self) -> (Option<i64>, Result<(), String>) {
        let trust = self.load();
        let expires = trust.as_ref().ok().and_then(Trust::first_to_expire);
        (expires, trust.and_then(|trust| self.unexpired(trust)).map(drop))
    }

    fn trust(&self) -> Result<Trust, String> {
        self.load().and_then(|trust| self.unexpired(trust))
    }

    fn load(&self) -> Result<Trust, String> {
        Trust::load(&self.files).map_err(|e| own(e.to_string()))
    }

    fn unexpired(&self, trust: Trust) -> Result<Trust, String> {
        match expired(trust.expires(), Timestamp::now()) {
            // Each node would send it away, and count as one that does not answer.
            Some(at) => {
                let file = self.files.certificate.display();
                Err(own(format!("{file} expired at {at:.0}: make it anew, by `slipwayctl fleet init --renew`")))
            }
            None => Ok(trust),
        }
    }

    /// Look at these nodes, by UID.
    pub async fn look(&self, nodes: &[&core::Node]) -> BTreeMap<String, NodeReading> {
        let trust = self.trust().inspect_err(|why| tracing::error!("no node can be asked: {why}"));
        let question = |node: &&core::Node| {
            let (trust, to) = (trust.clone(), address(node, self.port));
            let address = to.clone().unwrap_or_default();
            let ask = move || {
                let (trust, to) = (trust.clone(), to.clone());
                async move {
                    let status = async {
                        let trust = trust.map_err(NoReport::Unasked)?;
                        status(&trust, to).await.map_err(NoReport::Silent)
                    };
                    NodeReading { status: status.await, at: Timestamp::now(), refused: None }
                }
            };
            Question { uid: uid(node).to_owned(), address, ask }
        };
        let own = trust.as_ref().err().cloned();
        let answers = self.slow.look(nodes.iter().map(question).collect()).await;
        let late = || NodeReading { status: Err(late(own.clone())), at: Timestamp::now(), refused: None };
        let mut readings = answers.into_iter().map(|(uid, reading)| (uid, reading.unwrap_or_else(late))).collect();
        blame_no_node(&mut readings);
        readings
    }

    /// Ask nodes, each for something. Returns the answers, by UID.
    pub async fn ask(&self, requests: Vec<(core::Node, Ask)>) -> BTreeMap<String, Answer> {
        let trust = self.trust();
        let question = |(node, request): (core::Node, Ask)| {
            let (trust, to) = (trust.clone(), address(&node, self.port));
            let address = to.clone().unwrap_or_default();
            let ask = async move {
                let answer = async { ask(connect(&trust?, &to?).await?, &request).await };
                answer.await.unwrap_or_else(Answer::Refused)
            };
            Question { uid: uid(&node).to_owned(), address, ask }
        };
        let purpose = |(node, ask): &(core::Node, Ask)| (uid(node).to_owned(), purpose(uid(node), ask));
        let purposes: BTreeMap<String, String> = requests.iter().map(purpose).collect();
        let answers = self.slow.request(requests.into_iter().map(question).collect()).await;
        let mut begun = self.begun.lock().unwrap_or_else(PoisonError::into_inner);
        begun.retain(|_, at| at.elapsed() < BEGINS);
        let believed = |(uid, answer): (String, Option<Answer>)| {
            let answer = answer.unwrap_or_else(|| Answer::Refused(too_late()));
            let answer = believed(answer, purposes.get(&uid).cloned().unwrap_or_default(), &mut begun);
            (uid, answer)
        };
        answers.into_iter().map(believed).collect()
    }
}

impl Connect for Nodes {
    async fn connect(&self, node: &core::Node) -> Result<Client, String> {
        connect(&self.trust()?, &address(node, self.port)?).await
    }
}

/// Why nothing is known of a node that is not waited for. Without certificates it cannot answer, whatever it did before.
fn late(own: Option<String>) -> NoReport {
    own.map_or_else(|| NoReport::Silent(format!("within {} s", ANSWER.as_secs())), NoReport::Unasked)
}

/// Where none of several nodes answers, that says nothing of any of them: what they have in common is this controller.
fn blame_no_node(readings: &mut BTreeMap<String, NodeReading>) {
    let is_silent = |of: &NodeReading| matches!(of.status, Err(NoReport::Silent(_)));
    if readings.len() < 2 || !readings.values().all(is_silent) {
        return;
    }
    for status in readings.values_mut().map(|of| &mut of.status) {
        if let Err(NoReport::Silent(why)) = status {
            let why = format!("no node answers this controller: look at its network and its certificates; {why}");
            *status = Err(NoReport::Unasked(why));
        }
    }
}

/// What a node is asked for, as far as it begins it once.
fn purpose(uid: &str, ask: &Ask) -> String {
    match ask {
        Ask::For(request) => format!("{uid} {:?}", request.goal),
        Ask::Abort(..) => format!("{uid} abort"),
    }
}

/// An answer, with those from before. What is new brings the next round at once: a node that says so each time would have
/// one round follow another, for ever.
fn believed(answer: Answer, purpose: String, begun: &mut BTreeMap<String, Instant>) -> Answer {
    match answer {
        Answer::New if begun.contains_key(&purpose) => Answer::Known,
        Answer::New => {
            begun.insert(purpose, Instant::now());
            Answer::New
        }
        other => other,
    }
}

fn own(why: String) -> String {
    format!("the controller's own certificates: {why}")
}

/// When it expired, if it has.
fn expired(expires: Option<i64>, now: Timestamp) -> Option<Timestamp> {
    Timestamp::from_second(expires?).ok().filter(|at| *at <= now)
}

fn too_late() -> String {
    format!("it does not answer within {} s", ANSWER.as_secs())
}

async fn connect(trust: &Trust, address: &str) -> Result<Client, String> {
    trust.connect(address).await.map_err(|e| e.to_string())
}

async fn status(trust: &Trust, address: Result<String, String>) -> Result<StatusResponse, String> {
    let mut client = connect(trust, &address?).await?;
    Ok(client.status(StatusRequest {}).await.map_err(|e| chain(&e))?.into_inner())
}

/// A node refuses a request with more than it takes, and people write as much as the API server takes, in any number of lines.
fn abort_request(id: Uuid, why: &str) -> AbortRequest {
    let mut request = AbortRequest { id: id.to_string(), why: why.to_owned(), as_is: false };
    cut(&mut request);
    request
}

async fn ask(mut client: Client, ask: &Ask) -> Result<Answer, String> {
    let asked = match ask {
        Ask::For(request) => match request::to_wire(request) {
            Goal::Stage(request) => client.stage(request).await,
            Goal::Upgrade(request) => client.upgrade(request).await,
            Goal::Rollback(request) => client.rollback(request).await,
            Goal::Reboot(request) => client.reboot(request).await,
        }
        .map(|answer| answer.get_ref().state() == RequestState::New),
        Ask::Abort(id, why) => client.abort(abort_request(*id, why)).await.map(|_| false),
    };
    match asked {
        Ok(true) => Ok(Answer::New),
        Ok(false) => Ok(Answer::Known),
        Err(status) => match Reason::of(&status) {
            Some(reason) => Err(format!("the node refuses ({}): {}", reason.name(), status.message())),
            None => Err(chain(&status)),
        },
    }
}

#[cfg(test)]
mod tests {
    use slipway_node_api::bound::check;

    use super::*;

    #[test]
    fn where_no_node_answers_none_of_them_is_blamed() {
        let silent = || Err(NoReport::Silent("no route".to_owned()));
        let readings = |all: Vec<Result<StatusResponse, NoReport>>| {
            let reading = |status| NodeReading { status, at: Timestamp::UNIX_EPOCH, refused: None };
            let all = all.into_iter().enumerate().map(|(n, status)| (n.to_string(), reading(status)));
            let mut all: BTreeMap<_, _> = all.collect();
            blame_no_node(&mut all);
            all.into_values().filter(|of| matches!(of.status, Err(NoReport::Silent(_)))).count()
        };
        assert_eq!(readings(vec![silent(), silent(), silent()]), 0);
        assert_eq!(readings(vec![silent(), Ok(StatusResponse::default()), silent()]), 2);
        assert_eq!(readings(vec![silent()]), 1, "there is no other one");
        // One that hung before is no exception.
        assert!(matches!(late(None), NoReport::Silent(_)));
        assert_eq!(late(Some("no such file".to_owned())), NoReport::Unasked("no such file".to_owned()));
    }

    #[test]
    fn a_node_that_begins_each_time_hurries_no_rounds() {
        let mut begun = BTreeMap::new();
        let mut says = |answer: Answer, purpose: &str| believed(answer, purpose.to_owned(), &mut begun);
        assert_eq!(says(Answer::Known, "u Stage"), Answer::Known);
        assert_eq!([1, 2, 3].map(|_| says(Answer::New, "u Stage")), [Answer::New, Answer::Known, Answer::Known]);
        // What it was asked for next is another thing.
        assert_eq!(says(Answer::New, "u Upgrade"), Answer::New);
        assert_eq!(says(Answer::New, "v Stage"), Answer::New);
        let refused = Answer::Refused("busy".to_owned());
        assert_eq!(says(refused.clone(), "u Stage"), refused);
    }

    #[test]
    fn a_certificate_has_expired_from_its_last_second_on() {
        let at = |second: i64| Timestamp::from_second(second).unwrap();
        assert_eq!(expired(Some(100), at(99)), None);
        assert_eq!(expired(Some(100), at(100)), Some(at(100)));
        assert_eq!([None, Some(i64::MAX)].map(|unknown| expired(unknown, at(100))), [None, None]);
    }

    #[test]
    fn a_node_takes_the_reason_of_an_abort_however_people_write_it() {
        for why in ["a".repeat(512), "alice: ".to_owned() + &"é".repeat(1024), "two\nlines\n".to_owned()] {
            let mut request = abort_request(Uuid::nil(), &why);
            assert_eq!(check(&mut request), Ok(()), "{why}");
            assert!(request.why.len() >= 9);
        }
    }
}
