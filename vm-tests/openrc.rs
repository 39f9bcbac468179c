//! Slipway's two services for OpenRC confirm a trial that is well and end one that is not. The system is
//! `examples/debian-openrc`, where sysvinit is process 1. The test logs in at the serial console and types, as in
//! `operating_systems`.
//!
//! Subject: assets/openrc examples/debian-openrc

use crate::{
    operating_systems::{installed, machine, source_of, upgrade_of},
    qemu::Firmware,
    terminal::Terminal,
    world::VERSION_2,
};

const OPENRC: &str = "debian-openrc";

stories! {
    /// First start: slot A is no trial, so guard and confirmation are not started; the test makes an upgrade. Second:
    /// the trial in slot B is the same machine with its files. OpenRC's service confirms it, and both services end.
    /// Third: slot B is the default, and `poweroff` works.
    a_trial_is_confirmed_by_openrc: campaign Bios, campaign Uefi => confirms;
    /// First start: the trial runs without EPHEMERAL. OpenRC's confirmation finds that, and its guard runs. The test
    /// kills every guard and starts OpenRC's service again with a deadline in `/etc/conf.d` that has passed: the
    /// machine is reset. Second: slot A, whose `status` names the check and what it said.
    openrc_leaves_a_trial_that_is_not_well: campaign Bios, campaign Uefi => ends;
}

/// Installed; upgraded by a user who is logged in; the new system confirms itself, and keeps what it should.
fn confirms(firmware: Firmware) {
    let (image, medium) = (installed(OPENRC), upgrade_of(OPENRC));
    let mut at = Terminal::attach(machine(firmware, &image).drive(&medium.drive()));
    at.types_root('A', 0);
    at.has_volumes();
    at.runs("test ! -e /run/slipway-guard.pid && test ! -e /run/slipway-confirm.pid");
    let identity = at.identity();
    at.runs("echo kept >/var/lib/mark && echo '# kept' >/etc/network/interfaces.d/mark");
    at.upgrades(&[]);
    at.console.type_line("reboot");
    at.types_root('B', 1);
    at.has_volumes();
    assert_eq!(at.identity(), identity, "the machine is the same one");
    at.says("cat /var/lib/mark /etc/network/interfaces.d/mark", &["kept", "# kept"]);
    at.runs("until installer status | grep 'next boot *slot B: slot B is the default'; do sleep 1; done");
    // Both have done their work.
    at.runs("while pgrep -f 'installer (guard|confirm)'; do sleep 1; done");
    at.console.type_line("reboot");
    at.types_root('B', 0);
    at.console.type_line("poweroff");
    at.console.expect_power_off();
    assert_eq!(image.next_boot(), ('B', false));
}

/// A new system is not well: a volume is missing, and its own health check finds that. Only the guard reboots it.
fn ends(firmware: Firmware) {
    let (image, source) = (installed(OPENRC), source_of(OPENRC, VERSION_2));
    let one_volume = ["--extra-kernel-arg=-volumes.ephemeral", "--extra-kernel-arg=no_timer_check"];
    image.installer_from('A', 0, "upgrade", &[&["--source", source.as_str()], &one_volume[..]].concat());
    let mut at = Terminal::attach(machine(firmware, &image));
    at.types_root('B', 1);
    at.runs("until installer status | grep 'check volumes failed'; do sleep 1; done");
    at.runs("tr '\\0' ' ' </proc/$(cat /run/slipway-guard.pid)/cmdline | grep '/usr/bin/installer guard'");
    // The initramfs has started one, too: that is not to be the one that helps. No time is short here: the deadline counts
    // from the start of the kernel, and has passed when the guard is started again.
    at.runs("pkill -f 'installer guard'; while pgrep -f 'installer guard'; do sleep 1; done");
    at.runs("mkdir -p /etc/conf.d && echo 'SLIPWAY_GUARD=\"--deadline 1s\"' >/etc/conf.d/slipway-guard");
    at.console.type_line("rc-service slipway-guard restart");
    at.types_root('A', 0);
    at.has_volumes();
    at.runs("installer status | grep 'was not confirmed: check volumes failed'");
    at.runs("installer status | grep '/system/ephemeral is not mounted'");
    let console = at.console.switch_off();
    assert_eq!(image.next_boot(), ('A', false), "{console}");
    assert_eq!(image.report("status")["slots"]["B"]["state"], "tried", "{console}");
}
