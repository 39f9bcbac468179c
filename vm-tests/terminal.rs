//! A user who logs in at the serial console of a system, and types. Most of the words are systemd's.

use crate::{console::Console, qemu::Machine};

/// A user at the serial console.
pub struct Terminal {
    pub console: Console,
}

impl Terminal {
    pub fn attach(machine: Machine) -> Self {
        Terminal { console: machine.may_reset().start() }
    }

    /// Wait for a login and log in; the slot is this one.
    pub fn types_root(&mut self, slot: char, tries: u8) {
        self.console.wait_for(&format!("slipway: slot {slot} try={tries}: booting"));
        self.enters(slot, tries);
    }

    /// The same where something was said behind the prompt.
    pub fn asks_for_login(&mut self, slot: char, tries: u8) {
        self.console.type_line("");
        self.enters(slot, tries);
    }

    fn enters(&mut self, slot: char, tries: u8) {
        self.gets_shell();
        // The one has the words for a kernel that takes a command line, the other for a unified kernel image.
        let told = "cat /proc/cmdline /sys/firmware/efi/efivars/SlipwayBoot-* 2>/dev/null";
        self.runs(&format!("{told} | grep -a 'slipway.slot={slot} .*slipway.try={tries}'"));
    }

    /// Log in, whatever system it is.
    pub fn gets_shell(&mut self) {
        self.console.wait_for_prompt("login: ");
        self.console.type_line("root");
        self.console.wait_for_prompt("~# ");
        // Messages of the kernel, and lines that a terminal would fold, would be in the way.
        self.runs("stty columns 500; dmesg -n 1");
    }

    /// The same, and its volumes are mounted.
    pub fn logs_in(&mut self, slot: char, tries: u8) {
        self.types_root(slot, tries);
        self.has_volumes();
        // On a slow machine a unit may have needed a second start: that makes it no other system.
        self.runs("systemctl is-system-running --wait || systemctl --failed");
    }

    pub fn has_volumes(&mut self) {
        self.runs("mountpoint /var && mountpoint /system/state && mountpoint /system/ephemeral");
    }

    /// Run a command that must succeed.
    #[track_caller]
    pub fn runs(&mut self, command: &str) {
        self.says(command, &[]);
    }

    /// Run a command that must succeed and print these lines, whatever else it prints.
    #[track_caller]
    pub fn says(&mut self, command: &str, lines: &[&str]) {
        // The quotes keep the line that is typed from being taken for the answer.
        self.console.type_line(&format!("{command}; echo 'exit'=$?"));
        for line in lines {
            self.console.wait_for(line);
        }
        let exit = self.console.wait_for("exit=");
        if exit != "exit=0" {
            self.console.fail(&format!("`{command}`: {exit}"));
        }
    }

    /// The identity of this machine: its machine-id and its host key.
    pub fn identity(&mut self) -> String {
        self.runs("until test -s /etc/ssh/ssh_host_ed25519_key.pub; do sleep 1; done");
        self.console.type_line("echo 'identity'=$(cat /etc/machine-id /etc/ssh/ssh_host_ed25519_key.pub)");
        self.console.wait_for("identity=")
    }

    pub fn upgrades(&mut self, args: &[&str]) {
        self.runs("mount -o ro /dev/disk/by-id/virtio-slipway-payload /mnt");
        let args = args.join(" ");
        self.runs(&format!("installer upgrade --source dir:/mnt/payload --progress none {args}"));
    }

    /// The shell may be ended before it can say how this went; the boot that follows does.
    pub fn reboots(&mut self) {
        self.console.type_line("systemctl reboot");
    }

    pub fn powers_off(&mut self) {
        self.console.type_line("systemctl poweroff");
        self.console.expect_power_off();
    }
}
