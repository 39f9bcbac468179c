//! `installer auto-upgrade`.

use std::{env, fs::File, io::Read as _, path::Path};

use anyhow::{Context as _, anyhow};
use slipway_core::{
    config::{
        ConfigError,
        update::{Inhibitors, Placed, RebootPolicy, UpdateConfig, UpdateConfigError},
    },
    kernel::arch::Arch,
    plan::{Exceptions, RunsFrom},
    report::{FailureKind, Observer, Report},
    yaml::Pos,
};

use super::{asked, defaults::Defaults, input, upgrade::activated};
use crate::{
    cli::{AutoUpgradeArgs, environment::Environment},
    error::{Failure, OrFail as _},
    ops::{
        KernelArgsRequest, SourceRequest,
        auto_upgrade::{self, AutoUpgradeRequest, RebootRequest},
        bootloader::Renewal,
        upgrade::{self, KernelArgsChoice},
    },
    payload::{
        SourceRef,
        registry::{Mirror, Options},
    },
    tools::{ToolError, systemd},
};

// A file of a few kilobytes is large.
const MAX_BYTES: u64 = 64 << 10;
/// Where Debian's package has it.
const EXAMPLE: &str = "/usr/share/doc/slipway/examples/update.toml";

pub fn run(args: AutoUpgradeArgs, environment: Environment, observer: &mut dyn Observer) -> Result<Report, Failure> {
    let config = read(&args.config)?;
    let request = request(args, config, &Defaults::environment(environment), observer)?;
    auto_upgrade::run(&request, observer).map(|report| Report::AutoUpgrade(Box::new(report)))
}

fn read(path: &Path) -> Result<UpdateConfig, Failure> {
    let name = path.display();
    let mut bytes = vec![];
    let read = File::open(path).and_then(|file| file.take(MAX_BYTES + 1).read_to_end(&mut bytes));
    read.with_context(|| {
        format!(
            "{name}: it cannot be read, so this machine does not upgrade itself; an example is in installer-auto-upgrade(8), \
             which `installer man DIR` writes, and in {EXAMPLE} of Debian's package"
        )
    })
    .or_fail(FailureKind::Input)?;
    if bytes.len() as u64 > MAX_BYTES {
        return input(Err(format!("{name}: more than {MAX_BYTES} bytes")));
    }
    UpdateConfig::parse(&bytes).with_context(|| name.to_string()).or_fail(FailureKind::Input)
}

/// Arguments come before the file's values.
fn request(
    args: AutoUpgradeArgs,
    mut config: UpdateConfig,
    defaults: &Defaults,
    observer: &mut dyn Observer,
) -> Result<AutoUpgradeRequest, Failure> {
    if !args.reboot_window.is_empty() {
        config.reboot_window =
            args.reboot_window.iter().map(|value| Placed { at: None, value: value.clone() }).collect();
    }
    if let Some(all) = args.inhibitors {
        config.inhibitors = if all { Inhibitors::All } else { Inhibitors::None };
    }
    let policy = args.reboot.unwrap_or(config.reboot);
    if policy == RebootPolicy::Window && config.reboot_window.is_empty() {
        let why = "reboot = \"window\" needs a window: add reboot_window = [\"Sat 02:00 Europe/Berlin\"]";
        return input(Err(format!("{}: {why}", args.config.display())));
    }
    config.reboot_window.iter().try_for_each(|window| is_a_calendar(&args.config, window))?;
    let image = args.source.clone().or(config.source.clone());
    let image = image.ok_or_else(|| {
        let why = "no image to follow: add source = \"docker://HOST/REPOSITORY:TAG\"";
        anyhow!("{}: {why}", args.config.display())
    });
    let image = image.or_fail(FailureKind::Input)?;
    let upgrade = upgrade::Request {
        runs_from: RunsFrom::Inside,
        source: SourceRequest {
            source: Some(SourceRef::Docker(image.clone())),
            strict: false,
            registry: options(&args, &config)?,
            trust: args.trust.request(),
        },
        afterwards: activated(true, defaults),
        kernel_args: KernelArgsChoice::Kept(KernelArgsRequest {
            platform: None,
            config: None,
            extra: vec![],
            payload_only: defaults.payload_only(),
        }),
        meta: vec![],
        exceptions: Exceptions { allow_any_version: config.allow_any_version, ..Exceptions::default() },
        arch: Arch::NATIVE,
        limit_rate: args.limit_rate.or(config.limit_rate),
        renewal: Renewal::Renew(None),
        snapshot: true,
    };
    let reboot = RebootRequest {
        policy,
        windows: config.reboot_window.into_iter().map(|window| window.value).collect(),
        length: args.reboot_window_length.unwrap_or(config.reboot_window_length),
        inhibitors: config.inhibitors,
        users: args.logged_in_users.unwrap_or(config.logged_in_users),
        command: command()?,
    };
    let (reboot_only, dry_run, by) = (args.reboot_only, args.dry_run, asked::by());
    Ok(AutoUpgradeRequest { disk: args.target.request(observer)?, image, upgrade, reboot, reboot_only, dry_run, by })
}

fn options(args: &AutoUpgradeArgs, config: &UpdateConfig) -> Result<Options, Failure> {
    let given = args.registry.options();
    let mirrors = config.mirrors.iter().map(|Placed { at, value }| {
        value.parse::<Mirror>().map_err(|e| wrong(&args.config, *at, &format!("mirrors: {e}")))
    });
    let mirrors = mirrors.collect::<Result<Vec<_>, _>>()?;
    let files = config.registry_ca.iter().map(Into::into).collect();
    Ok(Options {
        plain_http: args.registry.plain_http.unwrap_or(config.plain_http),
        insecure_tls: !args.registry.tls_verify.unwrap_or(config.tls_verify),
        ca_files: if given.ca_files.is_empty() { files } else { given.ca_files },
        auth_file: given.auth_file.or(config.authfile.as_ref().map(Into::into)),
        mirrors: if given.mirrors.is_empty() { mirrors } else { given.mirrors },
        patience: given.patience,
        deadline: None,
    })
}

/// systemd decides. Where it is not installed nothing can run in a window, and that is said later.
fn is_a_calendar(config: &Path, window: &Placed<String>) -> Result<(), Failure> {
    match systemd::next(&window.value, 0) {
        Ok(_) | Err(ToolError::Missing(..)) => Ok(()),
        Err(ToolError::Failed { .. }) => {
            let key = if window.at.is_some() { "reboot_window" } else { "--reboot-window" };
            let why = format!(
                "{key}: {:?} is no calendar expression: `systemd-analyze calendar` takes what systemd.time(7) \
                 says, as in \"Sat 02:00 Europe/Berlin\"",
                window.value
            );
            Err(wrong(config, window.at, &why))
        }
    }
}

/// A value from an argument has no position.
fn wrong(config: &Path, at: Option<Pos>, what: &str) -> Failure {
    let error = match at {
        Some(at) => {
            anyhow::Error::new(UpdateConfigError(ConfigError::new(at, what))).context(config.display().to_string())
        }
        None => anyhow!("{what}"),
    };
    Failure { kind: FailureKind::Input, error }
}

/// This call once more, for the reboot alone.
fn command() -> Result<Vec<String>, Failure> {
    let program = env::current_exe().context("the path of this program").or_fail(FailureKind::Environment)?;
    let words = env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned());
    let words = words.filter(|word| !word.starts_with("--reboot-only"));
    Ok([program.to_string_lossy().into_owned()].into_iter().chain(words).chain(["--reboot-only".to_owned()]).collect())
}
