//! X.509 certificates that name a key: the key, and the time when it counts. The rest of a certificate is ignored. Its
//! issuer does not matter if the certificate itself is named.

use std::{
    fmt,
    time::{Duration, UNIX_EPOCH},
};

use slipway_core::efi::{certificate::Outline, der};

const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const DAY_SECONDS: u64 = 24 * 60 * 60;

/// From when until when a key counts, both included. Seconds since 1970 UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    pub not_before: u64,
    pub not_after: u64,
}

impl Validity {
    /// Why nothing counts at this time, seconds since 1970 UTC.
    pub fn problem(&self, now: u64) -> Option<String> {
        let clock = Time(now);
        match () {
            () if now < self.not_before => Some(format!(
                "its certificate counts from {} on, and it is {clock} by this machine's clock; set the clock if that is wrong",
                Time(self.not_before)
            )),
            () if now > self.not_after => {
                let end = Time(self.not_after);
                Some(format!("its certificate counted until {end}, and it is {clock} by this machine's clock"))
            }
            () => None,
        }
    }
}

/// Seconds since 1970 UTC, for people.
pub struct Time(pub u64);

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_secs(self.0)).fmt(f)
    }
}

/// Key (SubjectPublicKeyInfo, DER) and validity of a certificate in DER form. `None`: not a certificate.
pub fn read(certificate: &[u8]) -> Option<(&[u8], Validity)> {
    let outline = Outline::parse(certificate)?;
    Some((outline.info, validity(outline.validity)?))
}

/// When a certificate counts whose two times are these, one behind the other.
pub fn validity(times: &[u8]) -> Option<Validity> {
    let (not_before, rest) = time(times)?;
    let (not_after, rest) = time(rest)?;
    rest.is_empty().then_some(Validity { not_before, not_after })
}

/// A time of RFC 5280: always UTC, to the second. Times before 1970 count as 1970.
fn time(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (digits, century, rest) = match *bytes.first()? {
        UTC_TIME => {
            let (text, rest) = der::split(bytes, UTC_TIME)?;
            let recent = number(text.get(..2)?)? < 50;
            (text, if recent { 2000 } else { 1900 }, rest)
        }
        _ => {
            let (text, rest) = der::split(bytes, GENERALIZED_TIME)?;
            (text.get(2..)?, number(text.get(..2)?)? * 100, rest)
        }
    };
    let &[y1, y2, m1, m2, d1, d2, h1, h2, i1, i2, s1, s2, b'Z'] = digits else { return None };
    let [year, month, day] = [[y1, y2], [m1, m2], [d1, d2]].map(|pair| number(&pair));
    let [hour, minute, second] = [[h1, h2], [i1, i2], [s1, s2]].map(|pair| number(&pair));
    let (month, day) = (month.filter(|n| (1..=12).contains(n))?, day.filter(|n| (1..=31).contains(n))?);
    let (hour, minute) = (hour.filter(|n| *n < 24)?, minute.filter(|n| *n < 60)?);
    let days = days_since_1970(century + year?, month, day);
    Some((days * DAY_SECONDS + hour * 3600 + minute * 60 + second.filter(|n| *n < 60)?, rest))
}

fn number(digits: &[u8]) -> Option<u64> {
    digits.iter().try_fold(0, |sum, digit| digit.is_ascii_digit().then(|| sum * 10 + u64::from(digit - b'0')))
}

/// Days in the Gregorian calendar. Years begin in March here: then a leap day is the last of its year.
fn days_since_1970(year: u64, month: u64, day: u64) -> u64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year.saturating_sub(1), month + 9) };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 1;
    const TO_1970: u64 = 719_468;
    days.saturating_sub(TO_1970)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(tag: u8, text: &str) -> Option<u64> {
        time(&der::element(tag, &[text])).map(|(time, rest)| {
            assert!(rest.is_empty());
            time
        })
    }

    /// `date -u -d TIME +%s` says the same.
    #[test]
    fn times_are_those_of_the_calendar() {
        for (tag, text, seconds) in [
            (UTC_TIME, "700101000000Z", 0),
            (UTC_TIME, "260228235959Z", 1_772_323_199),
            (UTC_TIME, "240229120000Z", 1_709_208_000),
            (UTC_TIME, "491231235959Z", 2_524_607_999),
            (UTC_TIME, "500101000000Z", 0),
            (GENERALIZED_TIME, "20500101000000Z", 2_524_608_000),
            (GENERALIZED_TIME, "21000301000000Z", 4_107_542_400),
            (GENERALIZED_TIME, "99991231235959Z", 253_402_300_799),
            (GENERALIZED_TIME, "00000101000000Z", 0),
        ] {
            assert_eq!(at(tag, text), Some(seconds), "{text}");
        }
        for wrong in [
            "",
            "7001010000Z",
            "700101000000",
            "7001010000000",
            "701301000000Z",
            "700100000000Z",
            "70010x000000Z",
            "700101240000Z",
            "700101006000Z",
        ] {
            assert_eq!(at(UTC_TIME, wrong), None, "{wrong}");
        }
        assert_eq!(Time(253_402_300_799).to_string(), "9999-12-31T23:59:59Z");
    }

    #[test]
    fn what_does_not_count_is_said() {
        let validity = Validity { not_before: 1_772_323_199, not_after: 1_772_323_200 };
        assert_eq!(validity.problem(1_772_323_199), None);
        assert_eq!(validity.problem(1_772_323_200), None);
        let late = validity.problem(1_772_323_201).unwrap();
        assert_eq!(
            late,
            "its certificate counted until 2026-03-01T00:00:00Z, and it is 2026-03-01T00:00:01Z by this machine's clock"
        );
        // A machine without a clock of its own.
        let early = validity.problem(7).unwrap();
        assert!(
            early.starts_with("its certificate counts from 2026-02-28T23:59:59Z on, and it is 1970-01-01T00:00:07Z")
        );
        assert!(early.contains("; set the clock if that is wrong"));
    }
}
