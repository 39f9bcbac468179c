//! Triggers that start a round early: an input of decisions has changed. A triggered round reads everything anew; a
//! missing trigger costs nothing but time.

use std::time::Duration;

use tokio::{
    sync::Notify,
    time::{sleep, timeout},
};

/// The shortest pause between two rounds.
pub const SOON: Duration = Duration::from_millis(500);

/// The receiver of triggers. However many come during a round, one more round follows.
#[derive(Debug, Default)]
pub struct Triggers {
    /// Rounds of decisions.
    pub rounds: Notify,
    /// The scheduler of looks into channels.
    pub channels: Notify,
    /// The look at the version of Kubernetes.
    pub kubernetes: Notify,
}

/// Wait until the next round: for this long, or until a trigger. The last round took so long; at least half of the time is
/// rest, whatever happens and however soon the next round is wanted.
pub async fn rest(pause: Duration, took: Duration, changed: &Notify) {
    let least = SOON.max(took);
    sleep(least).await;
    // That nothing has changed is no error.
    let _ = timeout(pause.saturating_sub(least), changed.notified()).await;
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use tokio::runtime::Builder;

    use super::*;

    #[test]
    fn what_changes_ends_the_rest_and_never_all_of_it() {
        let runtime = Builder::new_current_thread().enable_time().build().unwrap();
        let rests = |pause, took, is_woken: bool| {
            let (changed, begun) = (Notify::new(), Instant::now());
            if is_woken {
                (0..100).for_each(|_| changed.notify_one());
            }
            runtime.block_on(rest(pause, took, &changed));
            begun.elapsed()
        };
        let (long, short) = (Duration::from_secs(3600), Duration::from_millis(1));
        let woken = rests(long, short, true);
        assert!(woken >= SOON && woken < long, "{woken:?}");
        let after_a_long_round = rests(long, 2 * SOON, true);
        assert!(after_a_long_round >= 2 * SOON, "{after_a_long_round:?}");
        // Also where more is to be done at once, or rounds are as frequent as they are long.
        assert!(rests(SOON, 2 * SOON, true) >= 2 * SOON);
        assert!(rests(short, 2 * SOON, false) >= 2 * SOON);
        assert!(rests(SOON + short, short, false) >= SOON + short);
    }
}
