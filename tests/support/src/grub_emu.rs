//! GRUB itself, with the very grub.cfg that is baked into the boot images, on a disk image: `grub-emu`.

use std::{
    fs,
    io::{Read as _, Write as _},
    path::Path,
    process::{Child, Command, Stdio},
};

use slipway_core::boot::slot::Slot;
use tempfile::TempDir;

/// The last action of GRUB.
#[derive(Debug, PartialEq, Eq)]
pub struct Booted {
    pub slot: Option<Slot>,
    pub trial: bool,
}

/// GRUB on a disk image.
pub struct GrubEmu {
    dir: TempDir,
}

impl GrubEmu {
    pub fn on(disk: &Path) -> Self {
        let dir = TempDir::new().unwrap();
        fs::write(dir.path().join("device.map"), format!("(hd0) {}\n", disk.display())).unwrap();
        fs::write(dir.path().join("grub.cfg"), emulated(include_str!("../../../assets/grub/grub.cfg"))).unwrap();
        GrubEmu { dir }
    }

    fn start(&self, input: Stdio) -> Child {
        let dir = self.dir.path();
        Command::new("grub-emu")
            .args(["-d".as_ref(), dir.as_os_str(), "-m".as_ref(), dir.join("device.map").as_os_str()])
            .args(["-r", "host"])
            .env("TERM", "dumb")
            .stdin(input)
            .stdout(Stdio::piped())
            .spawn()
            .expect("grub-emu (package grub-emu) runs")
    }

    /// One run: what it printed.
    pub fn run(&self) -> String {
        let output = self.start(Stdio::null()).wait_with_output().unwrap();
        String::from_utf8_lossy(&output.stdout).replace('\r', "")
    }

    /// One run with a person at the keyboard, who presses these keys at the beginning, and others after a text.
    pub fn run_with_keys(&self, first: &str, then: Option<(&str, &str)>) -> String {
        let path = self.dir.path().join("grub.cfg");
        let without_keys = fs::read_to_string(&path).unwrap();
        fs::write(&path, format!("{without_keys}set timeout_style=hidden\n")).unwrap();
        let mut child = self.start(Stdio::piped());
        let (mut keyboard, mut screen) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        keyboard.write_all(first.as_bytes()).unwrap();
        let (mut log, mut waits) = (Vec::new(), then);
        let mut buf = [0; 4096];
        while let Ok(n @ 1..) = screen.read(&mut buf) {
            log.extend_from_slice(&buf[..n]);
            if let Some((_, keys)) = waits.take_if(|(text, _)| String::from_utf8_lossy(&log).contains(*text)) {
                keyboard.write_all(keys.as_bytes()).unwrap();
            }
        }
        child.wait().unwrap();
        fs::write(&path, without_keys).unwrap();
        assert!(waits.is_none(), "{}", String::from_utf8_lossy(&log));
        String::from_utf8_lossy(&log).replace('\r', "")
    }

    /// Power on and wait: what is booted, after as many reboots as GRUB itself makes, and what the last run printed.
    pub fn boot(&self) -> (Booted, String) {
        for _ in 0..3 {
            let log = self.run();
            if let Some(booted) = outcome(&log) {
                return (booted, log);
            }
            assert!(log.contains("EMU reboot"), "GRUB neither booted nor rebooted:\n{log}");
        }
        panic!("GRUB reboots for ever");
    }
}

/// The kernel command line of a run that booted.
pub fn cmdline(log: &str) -> String {
    let words = log.lines().filter_map(|line| line.strip_prefix("EMU arg ")).skip(1);
    words.collect::<Vec<_>>().join(" ")
}

/// grub.cfg for grub-emu: `linux` and `initrd`, which it does not have, say what they were given and fail
/// where a file is missing, as the real ones do; `boot`, `reboot` and `sleep` are told instead of done.
fn emulated(cfg: &str) -> String {
    let prelude = "set cmdpath=\"(hd0)\"\nset enable_progress_indicator=0\n\
        function linux { echo \"EMU linux $1\"; for w in \"$@\"; do echo \"EMU arg $w\"; done; [ -s \"$1\" ]; }\n\
        function initrd { echo \"EMU initrd $1\"; [ -s \"$1\" ]; }\n";
    let lines = cfg.lines().map(|line| match line.trim() {
        "boot" => "echo \"EMU boot\"; exit".to_owned(),
        "reboot" => "echo \"EMU reboot\"; exit".to_owned(),
        sleep if sleep.starts_with("sleep ") => format!("echo \"EMU {sleep}\""),
        // grub-emu does not know whether Shift is held, and waits 3 s for another key.
        "set timeout_style=hidden" => String::new(),
        _ => line.replace("--interruptible 30", "--interruptible 1"),
    });
    prelude.to_owned() + &lines.collect::<Vec<_>>().join("\n") + "\n"
}

/// The end of a run: a boot, or the wait for a slot to become bootable; `None` for a reboot.
pub fn outcome(log: &str) -> Option<Booted> {
    if log.contains("EMU boot") {
        let slot = if log.contains("EMU initrd (hd0,gpt3)") { Slot::A } else { Slot::B };
        assert!(log.contains(&format!("slipway.slot={slot}")), "{log}");
        return Some(Booted { slot: Some(slot), trial: log.contains("slipway.try=1") });
    }
    log.contains("EMU sleep 30").then_some(Booted { slot: None, trial: false })
}
