//! `machine.LifecycleService` and `machine.ImageService`: their streams tell how it goes, until it is over.
//!
//! A client of these pulls the image, calls `Upgrade`, gets an exit code, and then calls `Reboot`, where Talos' MachineService
//! has one call. So here both `Pull` and `Upgrade` are a stage: the payload is in the other slot, verified. And the `Reboot`
//! that follows such an `Upgrade` is an upgrade with the same image: drain, reboot, trial, and the way back. It names the
//! payload that was written: by now a tag may lead to another one. The name of the operation says that it was such an
//! `Upgrade`, so that this also holds after a restart of the service. No image but an installer is pulled.

use std::collections::VecDeque;

use slipway_node_api::{
    machine::{
        ImageServicePullLayerProgress, ImageServicePullProgress, ImageServicePullRequest, ImageServicePullResponse,
        LifecycleServiceInstallProgress, LifecycleServiceUpgradeRequest, LifecycleServiceUpgradeResponse,
        image_service_pull_response::Response as Pulled, image_service_server::ImageService,
        lifecycle_service_install_progress::Response as Installs, lifecycle_service_server::LifecycleService,
    },
    reason::Reason,
    v1::{self, event::What, plan_request::Goal},
};
use tonic::{Request, Response, Status};
use uuid::Uuid;

use crate::{
    events::Reader,
    facade::{
        events::{missed, step_word},
        id, source,
    },
    node::Node,
    role::Call,
    service::{Sent, Service, Source},
};

/// The containerd of Talos itself, which has its installer images.
const SYSTEM: i32 = 1;

/// The prefix of names of operations that `LifecycleService.Upgrade` began. The rest is random.
const NAME: [u8; 6] = *b"talos+";

/// The name of an operation of `LifecycleService.Upgrade`.
fn upgrade_id() -> String {
    let mut bytes = Uuid::new_v4().into_bytes();
    bytes[..NAME.len()].copy_from_slice(&NAME);
    Uuid::new_v8(bytes).to_string()
}

/// The image that a `Reboot` is to start, and the payload of the other slot, which it must have: the last operation was
/// `LifecycleService.Upgrade`.
pub(super) fn staged_to_start(status: &v1::StatusResponse) -> Option<(String, String)> {
    let staged = status.staged.clone().filter(|_| status.operation.is_none())?;
    let last = status.ended.first()?;
    let is_upgrade = Uuid::try_parse(&last.id).is_ok_and(|id| id.as_bytes().starts_with(&NAME));
    (is_upgrade && last.goal() == v1::Goal::Stage && came_back(last).is_none()).then(|| (last.source.clone(), staged))
}

/// The progress of one operation, for its caller.
struct OperationStream<T, F> {
    reader: Reader,
    /// The operation.
    id: String,
    /// The event's text about it.
    say: F,
    next: VecDeque<Result<T, Status>>,
    is_over: bool,
}

impl<T, F> Source for OperationStream<T, F>
where
    T: Send + 'static,
    F: Fn(&What) -> Vec<Result<T, Status>> + Send + 'static,
{
    type Item = T;

    async fn next(&mut self) -> Option<Result<T, Status>> {
        loop {
            if let Some(item) = self.next.pop_front() {
                return Some(item);
            }
            if self.is_over {
                return None;
            }
            let Some(event) = self.reader.next().await else {
                let what = format!("the operation {} is not over: its events will say how it ends", self.id);
                return Some(Err(Reason::GoesDown.status(what)));
            };
            let Some(what) = event.what else { continue };
            if let What::Gap(gap) = what {
                return Some(Err(missed(gap)));
            }
            if of(&what) == Some(self.id.as_str()) {
                self.is_over = matches!(what, What::Ended(_));
                self.next.extend((self.say)(&what));
            }
        }
    }
}

/// The operation that an event is of.
fn of(what: &What) -> Option<&str> {
    match what {
        What::Asked(of) => Some(&of.id),
        What::StepBegun(of) => Some(&of.id),
        What::StepProgress(of) => Some(&of.id),
        What::StepBlocked(of) => Some(&of.id),
        What::StepDone(of) => Some(&of.id),
        What::TurnedBack(of) => Some(&of.id),
        What::Ended(of) => Some(&of.id),
        What::Notice(_) | What::Gap(_) => None,
    }
}

impl<N: Node> Service<N> {
    /// Begin the request, and report its progress.
    async fn tell<Q: Sync, T, F>(
        &self,
        request: &Request<Q>,
        call: Call,
        goal: Result<Goal, Status>,
        say: F,
    ) -> Result<Response<Sent<T>>, Status>
    where
        T: Send + 'static,
        F: Fn(&What) -> Vec<Result<T, Status>> + Send + 'static,
    {
        let watcher = self.watcher(request, call)?;
        let goal = goal?;
        let log = self.event_log();
        // From before it begins, so that nothing of it is missed.
        let reader = log.read(Some(&log.newest())).map_err(|e| Reason::AheadOfLog.status(e))?;
        let id = self.begin(request, call, goal).await?.id;
        Ok(watcher.read(OperationStream { reader, id, say, next: VecDeque::new(), is_over: false }))
    }
}

/// The reason why the request failed.
fn came_back(ended: &v1::Ended) -> Option<&str> {
    ended.outcome.as_ref()?.came_back.as_deref()
}

fn install(what: &What) -> Vec<Result<LifecycleServiceUpgradeResponse, Status>> {
    let installs = match what {
        What::Asked(asked) => vec![Installs::Message(format!("the operation {} begins", asked.id))],
        What::StepBegun(step) => vec![Installs::Message(format!("{}: {}", step_word(step.step), step.does))],
        What::StepBlocked(step) => {
            vec![Installs::Message(format!("{} is blocked: {}", step_word(step.step), step.why))]
        }
        What::TurnedBack(back) => vec![Installs::Message(format!("it is undone: {}", back.why))],
        What::Ended(ended) => match came_back(ended) {
            None => vec![Installs::ExitCode(0)],
            Some(why) => vec![Installs::Message(format!("all is as it was before: {why}")), Installs::ExitCode(1)],
        },
        _ => Vec::new(),
    };
    let progress = |response| LifecycleServiceInstallProgress { response: Some(response) };
    installs.into_iter().map(|of| Ok(LifecycleServiceUpgradeResponse { progress: Some(progress(of)) })).collect()
}

fn pull(image: &str, what: &What) -> Vec<Result<ImageServicePullResponse, Status>> {
    let pulled = match what {
        What::StepProgress(step) => {
            let number = |of: u64| i64::try_from(of).unwrap_or(i64::MAX);
            let (offset, total) = (number(step.done), number(step.total));
            let progress = Some(ImageServicePullLayerProgress { status: 0, offset, total });
            Pulled::PullProgress(ImageServicePullProgress { layer_id: step_word(step.step), progress })
        }
        What::Ended(ended) => match came_back(ended) {
            None => Pulled::Name(image.to_owned()),
            Some(why) => return vec![Err(Reason::Failed.status(why))],
        },
        _ => return Vec::new(),
    };
    vec![Ok(ImageServicePullResponse { response: Some(pulled) })]
}

#[tonic::async_trait]
impl<N: Node> LifecycleService for Service<N> {
    type UpgradeStream = Sent<LifecycleServiceUpgradeResponse>;

    async fn upgrade(
        &self,
        request: Request<LifecycleServiceUpgradeRequest>,
    ) -> Result<Response<Self::UpgradeStream>, Status> {
        self.is_for_us(&request).await?;
        let image = request.get_ref().source.clone().unwrap_or_default().image_name;
        let goal = v1::StageRequest { id: upgrade_id(), source: source(&image), ..Default::default() };
        self.tell(&request, Call::Upgrade, Ok(Goal::Stage(goal)), install).await
    }
}

#[tonic::async_trait]
impl<N: Node> ImageService for Service<N> {
    type PullStream = Sent<ImageServicePullResponse>;

    async fn pull(&self, request: Request<ImageServicePullRequest>) -> Result<Response<Self::PullStream>, Status> {
        self.is_for_us(&request).await?;
        let ImageServicePullRequest { containerd, image_ref } = request.get_ref().clone();
        let goal = match containerd.unwrap_or_default().namespace {
            SYSTEM => Ok(v1::StageRequest { id: id(), source: source(&image_ref), ..Default::default() }),
            _ => Err(Reason::NotHere.status("installer images are pulled, for the system; others are the kubelet's")),
        };
        self.tell(&request, Call::Stage, goal.map(Goal::Stage), move |what| pull(&image_ref, what)).await
    }
}
