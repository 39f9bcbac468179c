//! Parsers for values whose types are in the core, which has no clap.

use std::{ffi::OsStr, str::FromStr};

use clap::{
    Arg, Command,
    builder::{PossibleValue, PossibleValuesParser, StringValueParser, TypedValueParser},
};
use slipway_core::{
    kernel::{
        arch::Arch,
        platform::{Platform, UnknownPlatform},
    },
    media::format::ImageKind,
    payload::image_ref::ImageRef,
};

use crate::payload::SourceRef;

pub fn arch() -> impl TypedValueParser<Value = Arch> {
    let values = Arch::ALL.map(|arch| PossibleValue::new(arch.name()).help(format!("`{}`", arch.kernel_name())));
    PossibleValuesParser::new(values).try_map(|name| find(Arch::ALL, Arch::name, &name))
}

pub fn image_kind() -> impl TypedValueParser<Value = ImageKind> {
    let values = ImageKind::ALL.map(|(kind, help)| PossibleValue::new(kind.name()).help(help));
    PossibleValuesParser::new(values).try_map(|name| find(ImageKind::ALL.map(|(kind, _)| kind), ImageKind::name, &name))
}

/// One of these, by its name: value, name, help.
pub fn named<T, const N: usize>(all: [(T, &'static str, &'static str); N]) -> impl TypedValueParser<Value = T>
where
    T: Copy + Send + Sync + 'static,
{
    let values = all.map(|(_, name, help)| PossibleValue::new(name).help(help));
    PossibleValuesParser::new(values).try_map(move |name| {
        let found = all.iter().find(|(_, known, _)| *known == name).map(|(value, ..)| *value);
        found.ok_or_else(|| format!("{name:?} is not one of the possible values"))
    })
}

/// `--platform`. An empty one is bare metal: machined passes it so.
#[derive(Clone, Copy, Debug)]
pub struct PlatformArg(pub Platform);

/// Parses `--platform`. Old names and an empty one are taken, too, but not offered.
#[derive(Clone, Copy, Debug)]
pub struct Platforms;

impl TypedValueParser for Platforms {
    type Value = PlatformArg;

    fn parse_ref(&self, command: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<PlatformArg, clap::Error> {
        StringValueParser::new().try_map(|name| platform(&name)).parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(Platform::names().map(PossibleValue::new)))
    }
}

/// `docker://HOST/REPOSITORY[:TAG][@DIGEST]`: where an image is copied to.
#[derive(Clone, Debug)]
pub struct PushTarget(pub ImageRef);

impl FromStr for PushTarget {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        match s.parse::<SourceRef>() {
            Ok(SourceRef::Docker(image)) => Ok(PushTarget(image)),
            Err(why) if s.starts_with("docker:") => Err(why),
            _ => Err(format!("{s:?} is no registry: write docker://HOST/REPOSITORY[:TAG]")),
        }
    }
}

fn platform(name: &str) -> Result<PlatformArg, UnknownPlatform> {
    Ok(PlatformArg(Platform::settled(name)?.unwrap_or(Platform::METAL)))
}

fn find<T, const N: usize>(all: [T; N], name_of: impl Fn(T) -> &'static str, name: &str) -> Result<T, String>
where
    T: Copy,
{
    all.into_iter()
        .find(|one| name_of(*one) == name)
        .ok_or_else(|| format!("{name:?} is not one of the possible values"))
}
