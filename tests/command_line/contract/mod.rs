//! What machined relies on, clause by clause, with the finished program: one test for each clause, named after it. What
//! differs from Talos' own installer stands in the README, section "The machined contract".
//!
//! | clause | | test |
//! |---|---|---|
//! | 1.1 | argv as machined sends it, install | `argv::an_install_as_machined_calls_it` |
//! | 1.2 | argv as machined sends it, upgrade | `argv::an_upgrade_as_machined_calls_it` |
//! | 1.3 | `--help` anywhere: no /dev, /proc, /sys, stdin or config | `argv::help_exits_0_anywhere` |
//! | 1.4 | flags of old hosts are tolerated, others are not | `argv::flags_of_old_hosts_are_tolerated_and_unknown_flags_are_not` |
//! | 1.5 | argv\[0\] `imager` | `argv::imager_makes_disk_images_of_profiles` |
//! | 2.1 | no config: empty, closed, /dev/null, unreadable stdin | `stdin::no_config_is_no_error` |
//! | 2.2 | a config of many documents | `stdin::a_config_of_many_documents_is_read` |
//! | 2.3 | an invalid config, with line and column | `stdin::an_invalid_config_exits_2_with_line_and_column` |
//! | 2.4 | a stdin without end | `stdin::a_stdin_without_end_is_not_waited_for` |
//! | 2.5 | the config names the disk, an argument goes before it | `disk::the_config_names_the_disk_unless_an_argument_does` |
//! | 2.6 | a selector means exactly one disk | `disk::a_selector_means_exactly_one_disk` |
//! | 2.7 | `wipe` | `disk::wipe_is_what_the_config_says_unless_an_argument_does` |
//! | 2.8 | `legacyBIOSSupport` | `disk::legacy_bios_support_marks_the_protective_mbr_bootable` |
//! | 2.9 | encrypted volumes stay blank | `disk::encrypted_volumes_are_left_blank` |
//! | 2.10 | the same on upgrade | `disk::an_encrypted_ephemeral_that_is_not_preserved_is_left_blank` |
//! | 3.1 | `INSTALLER_META_BASE64`, plain and gzipped | `environment::meta_values_plain_and_gzipped` |
//! | 3.2 | the first `--meta` replaces them | `environment::the_first_meta_argument_replaces_those_of_the_environment` |
//! | 3.3 | bad data, also with `--help` | `environment::bad_data_exits_2_even_for_help` |
//! | 3.4 | `INSTALLER_GRUB_USE_UKI_CMDLINE` | `environment::the_payloads_cmdline_stands_alone_when_the_environment_says_so` |
//! | 4.1 | platform table | `cmdline::arguments_of_every_platform` |
//! | 4.2 | unknown platform | `cmdline::an_unknown_platform_exits_2` |
//! | 4.3 | order of the command line | `cmdline::platform_config_defaults_and_extra_arguments_in_this_order` |
//! | 4.4 | extra arguments | `cmdline::extra_arguments_add_override_and_negate` |
//! | 4.5 | when the payload's cmdline stands alone | `cmdline::the_payloads_cmdline_stands_alone_when_the_config_says_so` |
//! | 4.6 | what the firmware adds to it | `cmdline::the_firmware_adds_to_a_payloads_cmdline_that_stands_alone` |
//! | 4.7 | an upgrade that says nothing of it keeps it | `cmdline::an_upgrade_from_inside_keeps_how_the_command_line_was_made` |
//! | 4.8 | `extraKernelArgs` of the config are there once | `cmdline::extra_kernel_args_of_the_config_are_there_once` |
//! | 5.1 | exit codes 0 to 7 | `exit_codes::each_code_has_its_cause` |
//! | 5.2 | their precedence | `exit_codes::the_most_specific_of_several_wins` |
//! | 6.1 | nothing but the report on stdout | `output::stdout_carries_nothing_but_the_report` |
//! | 6.2 | whole lines | `output::output_is_made_of_whole_lines` |
//! | 6.3 | output never blocks | `output::a_pipe_that_nobody_reads_stops_nothing` |
//! | 6.4 | and whoever reads again is told | `output::whoever_reads_again_is_told_what_was_dropped` |
//! | 7.1 | an exclusive lock for the whole time, none after | `disk::the_whole_disk_is_locked_for_as_long_as_it_runs` |
//! | 7.2 | META: tag 0x06 on upgrade, other tags kept | `disk::an_upgrade_leaves_the_label_to_return_to_in_meta_and_keeps_other_tags` |
//! | 7.3 | META: 1 MiB, label, two equal copies | `disk::meta_is_where_machined_looks_for_it` |
//! | 7.4 | after a kexec the running slot is not guessed | `disk::after_a_kexec_the_running_slot_is_not_guessed` |

mod argv;
mod cmdline;
mod container;
mod disk;
mod environment;
mod exit_codes;
mod output;
mod stdin;

use std::path::Path;

use assert_cmd::Command;
use slipway_test_support::world::{self, Outcome, World};

/// The config most tests pipe in: it asks for nothing special.
const CONFIG: &str = "version: v1alpha1\nmachine:\n  type: worker\n  install: {disk: /dev/nosuch, wipe: false}\n";

/// `install` of small slots, without what `World::install_args` adds of its own.
fn install(world: &World, disk: &Path, extra: &[&str]) -> Command {
    let mut command = world::installer(["install", world::SLOT, "--progress=plain"]);
    command.arg("--disk").arg(disk).arg("--source").arg(world.payload.source()).args(extra);
    command
}

/// The same, with a machine config on stdin.
fn install_with(world: &World, disk: &Path, extra: &[&str], config: &str) -> Outcome {
    Outcome::of(install(world, disk, extra).write_stdin(config))
}

/// The kernel command line that a command with `--dry-run --output=json` is going to give.
#[track_caller]
fn planned_cmdline(outcome: Outcome) -> String {
    outcome.succeeds().json()["plan"]["system"]["cmdline"].as_str().unwrap().to_owned()
}
