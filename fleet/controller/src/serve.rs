//! The controller's answers by HTTP: a page, its numbers, and whether it is well.
//!
//! It lives as long as rounds end, whatever comes of them: an API server that is down is no reason to start it anew. It is
//! ready when its last round came to its end, and it has certificates to ask nodes with.
//!
//! Any client may connect, so none gets much: each connection is for one request, has a time and a place. Where all places
//! are taken, the last client gets that of the first: a probe is answered at once, and has no need to wait.

use std::{
    collections::VecDeque,
    convert::Infallible,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use axum::{
    Router,
    http::{
        StatusCode,
        header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS},
    },
    response::{IntoResponse, Response},
    routing::get,
};
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use jiff::Timestamp;
use tokio::{
    net::{TcpListener, TcpStream},
    task::{AbortHandle, spawn},
    time::{sleep, timeout},
};

use crate::{
    metrics::Metrics,
    page::{POLICY, Page},
};

/// A round over 10,000 nodes of which none answers takes half an hour. Nothing takes longer than this.
pub const LIVES: Duration = Duration::from_secs(2 * 60 * 60);
/// Why it is not ready. Any client may ask, so it says no more; the log does.
const NO_ROUND: &str = "the last round failed, or there was none yet";
const NO_CERTIFICATES: &str = "no node can be asked: the controller's own certificates cannot be used";
/// Connections at once.
pub const PLACES: usize = 64;
/// The longest time until a request has come.
const HEAD: Duration = Duration::from_secs(5);
/// The longest time of a connection: its request and the answer.
const WHOLE: Duration = Duration::from_secs(15);
/// The longest head of a request, bytes; HTTP asks for 8000.
const LARGEST: usize = 16 << 10;
/// Before a connection is taken again where that failed: no file descriptor may be left.
const AGAIN: Duration = Duration::from_millis(100);

/// The public state of the controller.
pub struct ControllerHealth {
    /// Its numbers.
    pub metrics: Arc<Metrics>,
    page: Arc<Page>,
    /// Why it is not ready.
    unready: Mutex<Option<&'static str>>,
    ended: Mutex<Instant>,
}

impl ControllerHealth {
    /// Of one that begins now.
    pub fn new(metrics: Arc<Metrics>, page: Arc<Page>) -> Self {
        Self { metrics, page, unready: Mutex::new(Some(NO_ROUND)), ended: Mutex::new(Instant::now()) }
    }

    /// A round has ended: it came to its end, or failed for this reason. `certificates` has what is wrong with its own.
    pub fn round(&self, failed: Option<&str>, certificates: Result<(), String>) {
        if let Some(why) = failed {
            tracing::error!("{why}");
            self.page.fail(why, Timestamp::now());
        }
        let unready = failed.map(|_| NO_ROUND).or(certificates.err().map(|_| NO_CERTIFICATES));
        *self.unready.lock().unwrap_or_else(PoisonError::into_inner) = unready;
        *self.ended.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// True if it lives: the last round ended not too long ago.
    pub fn lives(&self, now: Instant) -> bool {
        let ended = *self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        now.saturating_duration_since(ended) < LIVES
    }

    /// Why it is not ready; `None` if it is.
    pub fn unready(&self) -> Option<&'static str> {
        *self.unready.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Answer `/`, `/metrics`, `/healthz` and `/readyz`, for ever.
pub async fn serve(listener: TcpListener, health: Arc<ControllerHealth>) -> Infallible {
    let router = router(health);
    let mut open = VecDeque::<AbortHandle>::with_capacity(PLACES);
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            sleep(AGAIN).await;
            continue;
        };
        open.retain(|connection| !connection.is_finished());
        if open.len() == PLACES {
            open.pop_front().iter().for_each(AbortHandle::abort);
        }
        open.push_back(spawn(timeout(WHOLE, answer(stream, router.clone()))).abort_handle());
    }
}

fn router(health: Arc<ControllerHealth>) -> Router {
    let (page, numbers, live, ready) = (Arc::clone(&health), Arc::clone(&health), Arc::clone(&health), health);
    Router::new()
        .route("/", get(async move || page_response(&page.page)))
        .route("/metrics", get(async move || metrics(&numbers)))
        .route(
            "/healthz",
            get(async move || health_response(live.lives(Instant::now()), "no round has ended for two hours")),
        )
        .route(
            "/readyz",
            get(async move || {
                ready.unready().map_or_else(|| health_response(true, ""), |why| health_response(false, why))
            }),
        )
}

/// One request. A stranger's mistake needs no record.
async fn answer(stream: TcpStream, router: Router) {
    let mut http = http1::Builder::new();
    http.keep_alive(false).timer(TokioTimer::new()).header_read_timeout(HEAD).max_buf_size(LARGEST);
    let _ = http.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router)).await;
}

fn metrics(health: &ControllerHealth) -> Response {
    match health.metrics.text() {
        Ok(text) => {
            ([(CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")], text).into_response()
        }
        Err(e) => (StatusCode::INTERNAL_SERVER_ERROR, e.to_string()).into_response(),
    }
}

fn page_response(page: &Page) -> Response {
    let page = page.get();
    if page.is_empty() {
        return health_response(false, "there was no round yet");
    }
    let headers = [
        (CONTENT_TYPE, "text/html; charset=utf-8"),
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
        (CACHE_CONTROL, "no-store"),
    ];
    (headers, page.to_string()).into_response()
}

fn health_response(is_so: bool, why: &'static str) -> Response {
    if is_so { "ok\n".into_response() } else { (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")).into_response() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_lives_while_rounds_end_and_is_ready_if_the_last_came_to_its_end() {
        let health = ControllerHealth::new(Arc::default(), Arc::default());
        let later = Instant::now() + LIVES;
        let is_ready = || health.unready().is_none();
        assert!(!is_ready() && health.lives(Instant::now()) && !health.lives(later + Duration::from_secs(9)));
        health.round(Some("no API server"), Ok(()));
        assert!(health.page.get().contains("no API server"));
        assert!(!is_ready() && health.lives(later - Duration::from_secs(9)));
        health.round(None, Ok(()));
        assert!(is_ready());
        health.round(Some("no API server"), Ok(()));
        assert!(!is_ready());
        // A round ends without certificates, too: no node answers.
        health.round(None, Err("/etc/slipway/pki/tls.crt: no such file".to_owned()));
        assert_eq!(health.unready(), Some(NO_CERTIFICATES));
        health.round(None, Ok(()));
        assert!(is_ready());
    }
}
