//! `installer meta list|get|set|delete`.

use slipway_core::{
    disk::meta::{parse_key, parse_tag},
    report::{Observer, Report},
};

use super::input;
use crate::{
    cli::MetaVerb,
    error::Failure,
    ops::meta::{self, Change},
};

pub fn run(verb: MetaVerb, observer: &mut dyn Observer) -> Result<Report, Failure> {
    let report = match verb {
        MetaVerb::List(target) => meta::list(&target.request(observer)?),
        MetaVerb::Get { key, target } => meta::get(&target.request(observer)?, input(parse_key(&key))?),
        MetaVerb::Set { tag, target } => {
            let (key, value) = input(parse_tag(&tag))?;
            meta::change(&target.request(observer)?, &Change::Set(key, value), observer)
        }
        MetaVerb::Delete { key, target } => {
            meta::change(&target.request(observer)?, &Change::Delete(input(parse_key(&key))?), observer)
        }
    };
    report.map(Report::Meta)
}
