//! Maintenance windows and blackouts, in the local time of a zone.
//!
//! * A window opens on some weekdays at a local time, and stays open for a length of time as a stop-watch measures it. It
//!   says when a node may begin. One that has begun goes on to its end.
//! * **Clocks go forward**, and the window's start is in the hour that is left out: it opens as long after midnight as on
//!   other days. 02:30 becomes 03:30.
//!   A whole day that a country leaves out is the same: the window opens on the next.
//! * **Clocks go back**, and the start comes twice: it opens once, the first time.
//! * A blackout is from one local time to another. Where clocks make one of them ambiguous, it is the longer blackout.
//! * These are the rules of iCalendar (RFC 5545, 3.3.5), with the exception of blackouts, which fail closed.
//! * The database of zones is in the program. So controllers of one version agree, whatever is on their disks.

use core::hash::{Hash, Hasher};

use jiff::{
    Timestamp, ToSpan as _,
    civil::{Date, DateTime, Time, Weekday},
    tz::{TimeZone, TimeZoneDatabase},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::duration::PositiveDuration;

/// A time as a blackout has it. Rules about it need its longest length, which the API server does not take from a pattern.
const LOCAL_TIME: &str =
    "^[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])([T ]([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9])?)?$";

/// The same in a rule, as an instant: what it leaves out is 0. It ends with an error on a day that its month does not have.
fn instant(at: &str) -> String {
    format!("timestamp({at}.replace(' ', 'T') + 'T00:00:00Z'.substring(size({at}) - 10))")
}

/// The rule that there is such a day.
fn day_rule() -> serde_json::Value {
    serde_json::json!([{
        "rule": format!("{} >= timestamp('0001-01-01T00:00:00Z')", instant("self")),
        "message": "a local time is on a day that its month has: 2026-12-23T18:00",
    }])
}

/// The longest window: one that is always open is none.
const LONGEST: u32 = 24 * 60;

/// Why a window or a blackout is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    /// No such zone.
    #[error("there is no time zone {0:?}: write one like \"Europe/Berlin\" or \"UTC\"")]
    Zone(String),
    /// Too long.
    #[error("a window lasts 24h at most, and this one lasts {0}: leave it out if it is always open")]
    TooLong(PositiveDuration),
    /// It ends before it begins.
    #[error("the blackout ends at {until}, which is not after {from}")]
    EndsFirst { from: DateTime, until: DateTime },
}

/// A time zone of the IANA's database.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String", extend("minLength" = 1, "maxLength" = 64, "x-kubernetes-validations" = [{
    // A name that the API server does not know ends the rule with an error, which refuses it. It has the names for CronJobs.
    // Beside these it has its own, such as Local, posix/UTC and posixrules.
    "rule": "self.matches('^[A-Z][A-Za-z0-9+-]*(/[A-Za-z0-9_+-]+)*$') && self != 'Local' && \
             timestamp('2000-01-01T00:00:00Z').getHours(self) >= 0",
    "message": "a time zone has the name that the IANA gives it: Europe/Berlin, UTC",
}]))]
pub struct Zone(TimeZone);

impl Zone {
    /// By its name, such as `Europe/Berlin`.
    pub fn named(name: &str) -> Result<Self, Invalid> {
        let zone = TimeZoneDatabase::bundled().get(name).ok().filter(|zone| !zone.is_unknown());
        zone.map(Self).ok_or_else(|| Invalid::Zone(name.to_owned()))
    }

    fn name(&self) -> &str {
        self.0.iana_name().unwrap_or("UTC")
    }
}

impl Hash for Zone {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name().hash(state);
    }
}

impl TryFrom<String> for Zone {
    type Error = Invalid;

    fn try_from(name: String) -> Result<Self, Invalid> {
        Self::named(&name)
    }
}

impl From<Zone> for String {
    fn from(zone: Zone) -> Self {
        zone.name().to_owned()
    }
}

/// A day of the week.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs, reason = "they are what they say")]
pub enum Day {
    Mon,
    Tue,
    Wed,
    Thu,
    Fri,
    Sat,
    Sun,
}

impl From<Weekday> for Day {
    fn from(day: Weekday) -> Self {
        match day {
            Weekday::Monday => Self::Mon,
            Weekday::Tuesday => Self::Tue,
            Weekday::Wednesday => Self::Wed,
            Weekday::Thursday => Self::Thu,
            Weekday::Friday => Self::Fri,
            Weekday::Saturday => Self::Sat,
            Weekday::Sunday => Self::Sun,
        }
    }
}

/// When nodes may begin.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "Written")]
#[schemars(with = "Written")]
pub struct Window {
    days: Vec<Day>,
    start: Time,
    lasts: PositiveDuration,
    zone: Zone,
}

/// When nodes may begin: from a local time on, for a length of time.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "duration(self.lasts.replace(' ', '').replace('PT', '').lowerAscii()) <= duration('24h')",
    "message": "a window lasts 24h at most: leave it out if it is always open",
}]))]
struct Written {
    /// On these days of the week; on every day if there is none.
    #[serde(default)]
    #[schemars(length(max = 7))]
    days: Vec<Day>,
    /// When it opens, in local time: 22:00. If clocks leave this time out, it opens as long after midnight as on other
    /// days; if they have it twice, it opens the first time only.
    #[schemars(with = "String", regex(pattern = r"^([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9])?$"))]
    start: Time,
    /// How long it is open, at most 24h: 4h, 1h 30m.
    lasts: PositiveDuration,
    /// The time zone, as the IANA names it: Europe/Berlin, UTC.
    zone: Zone,
}

impl TryFrom<Written> for Window {
    type Error = Invalid;

    fn try_from(Written { days, start, lasts, zone }: Written) -> Result<Self, Invalid> {
        Self::new(days, start, lasts, zone)
    }
}

impl Window {
    /// On these days, or on every day if there is none, from `start` on.
    ///
    /// ```
    /// use slipway_rollout::{duration::PositiveDuration, window::{Day, Window, Zone}};
    /// # fn main() -> Result<(), Box<dyn core::error::Error>> {
    /// let window = Window::new(vec![Day::Tue], "22:00".parse()?, PositiveDuration::minutes(240), Zone::named("Europe/Berlin")?)?;
    /// assert_eq!(window.open("2026-06-02T23:00+02:00".parse()?), Some("2026-06-03T02:00+02:00".parse()?));
    /// assert_eq!(window.open("2026-06-03T02:00+02:00".parse()?), None);
    ///
    /// // Clocks go forward on 29 March at 02:00: there is no 02:30. It opens at 03:30, for the whole hour.
    /// let window = Window::new(vec![], "02:30".parse()?, PositiveDuration::minutes(60), Zone::named("Europe/Berlin")?)?;
    /// assert_eq!(window.open("2026-03-29T03:29+02:00".parse()?), None);
    /// assert_eq!(window.open("2026-03-29T03:30+02:00".parse()?), Some("2026-03-29T04:30+02:00".parse()?));
    ///
    /// // Clocks go back on 25 October at 03:00: 02:30 comes twice. It opens the first time, for one hour, and not again.
    /// assert_eq!(window.open("2026-10-25T02:30+02:00".parse()?), Some("2026-10-25T02:30+01:00".parse()?));
    /// assert_eq!(window.open("2026-10-25T02:30+01:00".parse()?), None);
    /// # Ok(())
    /// # }
    /// ```
    pub fn new(days: Vec<Day>, start: Time, lasts: PositiveDuration, zone: Zone) -> Result<Self, Invalid> {
        if lasts > PositiveDuration::minutes(LONGEST) {
            return Err(Invalid::TooLong(lasts));
        }
        Ok(Self { days, start, lasts, zone })
    }

    /// Each opening from about two days before `at` to eight after it, in their order: every weekday is among them.
    fn around(&self, at: Timestamp) -> impl Iterator<Item = (Timestamp, Timestamp)> {
        let today = self.zone.0.to_datetime(at).date();
        (-2_i64..=8).filter_map(move |days| self.opening(today.checked_add(days.days()).ok()?))
    }

    fn opening(&self, date: Date) -> Option<(Timestamp, Timestamp)> {
        if !self.days.is_empty() && !self.days.contains(&date.weekday().into()) {
            return None;
        }
        let begins = self.zone.0.to_ambiguous_timestamp(date.to_datetime(self.start)).compatible().ok()?;
        Some((begins, self.lasts.after(begins)))
    }

    /// Until when it is open; `None` if it is not.
    pub fn open(&self, at: Timestamp) -> Option<Timestamp> {
        self.around(at).filter(|(begins, ends)| *begins <= at && at < *ends).map(|(_, ends)| ends).max()
    }

    /// The first time from `at` on at which it is open.
    pub fn opens(&self, at: Timestamp) -> Option<Timestamp> {
        self.around(at).filter(|(_, ends)| at < *ends).map(|(begins, _)| begins.max(at)).min()
    }
}

/// When no node may begin.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "WrittenBlackout")]
#[schemars(with = "WrittenBlackout")]
pub struct Blackout {
    from: DateTime,
    until: DateTime,
    zone: Zone,
    why: String,
}

/// When no node may begin: from one local time to another.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": format!("{} < {}", instant("self.from"), instant("self.until")),
    "message": "a blackout ends after it begins",
}]))]
struct WrittenBlackout {
    /// When it begins, in local time: 2026-12-23T18:00.
    #[schemars(with = "String", length(max = 19), regex(pattern = LOCAL_TIME))]
    #[schemars(extend("x-kubernetes-validations" = day_rule()))]
    from: DateTime,
    /// When it is over, in local time: 2027-01-04T06:00.
    #[schemars(with = "String", length(max = 19), regex(pattern = LOCAL_TIME))]
    #[schemars(extend("x-kubernetes-validations" = day_rule()))]
    until: DateTime,
    /// The time zone, as the IANA names it: Europe/Berlin, UTC.
    zone: Zone,
    /// Its purpose. It is shown with the nodes that wait.
    #[serde(default)]
    #[schemars(length(max = 1024))]
    why: String,
}

impl TryFrom<WrittenBlackout> for Blackout {
    type Error = Invalid;

    fn try_from(WrittenBlackout { from, until, zone, why }: WrittenBlackout) -> Result<Self, Invalid> {
        Self::new(from, until, zone, why)
    }
}

impl Blackout {
    /// From one local time to another, which is not part of it.
    ///
    /// ```
    /// use slipway_rollout::window::{Blackout, Zone};
    /// # fn main() -> Result<(), Box<dyn core::error::Error>> {
    /// let zone = Zone::named("Europe/Berlin")?;
    /// // 02:30 comes twice on 25 October: until the second one. 02:30 is left out on 29 March: from what was 01:30 on.
    /// let october = Blackout::new("2026-10-20T00:00".parse()?, "2026-10-25T02:30".parse()?, zone.clone(), "fair".into())?;
    /// assert_eq!(october.holds("2026-10-25T02:29+01:00".parse()?), Some("2026-10-25T02:30+01:00".parse()?));
    /// let march = Blackout::new("2026-03-29T02:30".parse()?, "2026-04-01T00:00".parse()?, zone, "fair".into())?;
    /// assert_eq!(march.holds("2026-03-29T01:29+01:00".parse()?), None);
    /// assert_eq!(march.holds("2026-03-29T01:30+01:00".parse()?), Some("2026-04-01T00:00+02:00".parse()?));
    /// # Ok(())
    /// # }
    /// ```
    pub fn new(from: DateTime, until: DateTime, zone: Zone, why: String) -> Result<Self, Invalid> {
        if until <= from {
            return Err(Invalid::EndsFirst { from, until });
        }
        Ok(Self { from, until, zone, why })
    }

    /// Until when it holds; `None` if it does not.
    pub fn holds(&self, at: Timestamp) -> Option<Timestamp> {
        // A time that cannot be written as one does not make it shorter.
        let from = self.zone.0.to_ambiguous_timestamp(self.from).earlier().unwrap_or(Timestamp::MIN);
        let until = self.until();
        (from <= at && at < until).then_some(until)
    }

    /// When it ends.
    fn until(&self) -> Timestamp {
        self.zone.0.to_ambiguous_timestamp(self.until).later().unwrap_or(Timestamp::MAX)
    }

    /// When it begins, if that is after `at`.
    pub fn begins(&self, at: Timestamp) -> Option<Timestamp> {
        let from = self.zone.0.to_ambiguous_timestamp(self.from).earlier().unwrap_or(Timestamp::MIN);
        (from > at).then_some(from)
    }

    /// Its purpose.
    pub fn why(&self) -> &str {
        &self.why
    }
}
