//! Windows and blackouts against a minute hand that is moved by hand.

use jiff::{Timestamp, ToSpan, Unit, civil::Time, tz::TimeZoneDatabase};
use proptest::{collection::vec, prelude::*, sample::select};
use slipway_rollout::{
    duration::PositiveDuration,
    window::{Blackout, Day, Window, Zone},
};

use crate::at;

const ZONES: [&str; 6] =
    ["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu", "Africa/Casablanca"];
const DAYS: [Day; 7] = [Day::Mon, Day::Tue, Day::Wed, Day::Thu, Day::Fri, Day::Sat, Day::Sun];

pub fn window(days: &[Day], start: &str, minutes: u32, zone: &str) -> Window {
    Window::new(days.to_vec(), start.parse().unwrap(), PositiveDuration::minutes(minutes), Zone::named(zone).unwrap())
        .unwrap()
}

#[test]
fn it_is_written_like_this() {
    let json = r#"{"days":["mon","fri"],"start":"22:30:00","lasts":"4h","zone":"Europe/Berlin"}"#;
    let read: Window = serde_json::from_str(json).unwrap();
    assert_eq!(read, window(&[Day::Mon, Day::Fri], "22:30", 240, "Europe/Berlin"));
    assert_eq!(serde_json::to_string(&read).unwrap(), json);
    for wrong in [
        r#"{"start":"22:30","lasts":"4h"}"#,
        r#"{"start":"22:30","lasts":"4h","zone":"Europe/Atlantis"}"#,
        r#"{"start":"22:30","lasts":"4h","zone":"Etc/Unknown"}"#,
        r#"{"start":"22:30","lasts":"25h","zone":"UTC"}"#,
        r#"{"start":"22:30","lasts":"0s","zone":"UTC"}"#,
        r#"{"start":"22:30","lasts":"-4h","zone":"UTC"}"#,
        r#"{"start":"24:30","lasts":"4h","zone":"UTC"}"#,
        r#"{"start":"22:30","lasts":"4h","zone":"UTC","day":["mon"]}"#,
    ] {
        assert!(serde_json::from_str::<Window>(wrong).is_err(), "{wrong}");
    }
    let backwards = r#"{"from":"2026-12-24T00:00:00","until":"2026-12-23T00:00:00","zone":"UTC"}"#;
    assert!(serde_json::from_str::<Blackout>(backwards).is_err());
}

#[test]
fn it_goes_over_midnight_into_a_day_that_it_does_not_name() {
    let window = window(&[Day::Fri], "22:00", 480, "Europe/Berlin");
    assert_eq!(window.open(at("2026-06-06T05:59+02:00")), Some(at("2026-06-06T06:00+02:00")));
    assert_eq!(window.open(at("2026-06-06T06:00+02:00")), None);
    assert_eq!(window.open(at("2026-06-05T05:00+02:00")), None);
    assert_eq!(window.opens(at("2026-06-06T06:00+02:00")), Some(at("2026-06-12T22:00+02:00")));
    assert_eq!(window.opens(at("2026-06-06T01:00+02:00")), Some(at("2026-06-06T01:00+02:00")));
}

#[test]
fn its_length_is_the_same_when_clocks_change() {
    let window = window(&[], "01:00", 240, "Europe/Berlin");
    // 01:00 to 06:00 on the wall, and 01:00 to 04:00.
    assert_eq!(window.open(at("2026-03-29T01:00+01:00")), Some(at("2026-03-29T06:00+02:00")));
    assert_eq!(window.open(at("2026-10-25T01:00+02:00")), Some(at("2026-10-25T04:00+01:00")));
}

#[test]
fn a_window_on_a_day_that_a_country_left_out_opens_on_the_next() {
    // Samoa went from Thursday 29 to Saturday 31 December 2011.
    let friday = window(&[Day::Fri], "12:00", 60, "Pacific/Apia");
    let opens = friday.opens(at("2011-12-28T00:00Z")).unwrap();
    let zone = TimeZoneDatabase::bundled().get("Pacific/Apia").unwrap();
    // As long after Thursday's midnight as the Friday would have been: what iCalendar says.
    assert_eq!(zone.to_datetime(opens).to_string(), "2011-12-31T12:00:00");
}

fn any_window() -> impl Strategy<Value = (Vec<Day>, Time, u32, &'static str)> {
    let start = (0_i8..24, 0_i8..60).prop_map(|(hour, minute)| Time::new(hour, minute, 0, 0).unwrap());
    (vec(select(DAYS.to_vec()), 0..4), start, 1_u32..=1440, select(ZONES.to_vec()))
}

/// A time near a change of clocks, or anywhere in some years.
fn any_time() -> impl Strategy<Value = Timestamp> {
    let changes = [at("2026-03-29T01:00Z"), at("2026-10-25T01:00Z"), at("2026-03-08T07:00Z"), at("2026-11-01T06:00Z")];
    let near = (select(changes.to_vec()), -3000_i64..3000).prop_map(|(change, by)| change + by.minutes());
    prop_oneof![near, (1_700_000_000_i64..1_900_000_000).prop_map(|secs| Timestamp::from_second(secs).unwrap())]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Against a search through all minutes before: the window began at one of them, by the clock on the wall.
    #[test]
    fn open_is_what_a_clock_on_the_wall_says((days, start, minutes, zone) in any_window(), at in any_time()) {
        let window = Window::new(days.clone(), start, PositiveDuration::minutes(minutes), Zone::named(zone).unwrap()).unwrap();
        let tz = TimeZoneDatabase::bundled().get(zone).unwrap();
        let at = at.round(Unit::Minute).unwrap();
        let wall = |at: Timestamp| tz.to_datetime(at);
        let is_day = |at: Timestamp| days.is_empty() || days.contains(&Day::from(wall(at).date().weekday()));
        let mut expected = None;
        // Only where the wall clock runs evenly: the changes are in the examples.
        let is_even = tz.to_offset(at - 30.hours()) == tz.to_offset(at + 30.hours());
        for ago in 0..i64::from(minutes) {
            let began = at - ago.minutes();
            if wall(began).time() == start && is_day(began) {
                expected = Some(began + i64::from(minutes).minutes());
                break;
            }
        }
        if is_even {
            prop_assert_eq!(window.open(at), expected);
        }
    }

    #[test]
    fn it_opens_at_the_first_time_at_which_it_is_open((days, start, minutes, zone) in any_window(), at in any_time()) {
        let minutes = minutes.max(30);
        let window = Window::new(days, start, PositiveDuration::minutes(minutes), Zone::named(zone).unwrap()).unwrap();
        let opens = window.opens(at).unwrap();
        prop_assert!(opens >= at);
        let until = window.open(opens).unwrap();
        prop_assert!(until > opens && window.open(until - 1.nanosecond()).is_some());
        prop_assert!(opens == at || window.open(opens - 1.nanosecond()).is_none());
        // Nothing between is open: a window is longer than a step.
        let mut between = at;
        while between < opens {
            prop_assert_eq!(window.open(between), None);
            between += i64::from(minutes.min(60)).minutes();
        }
    }
}
