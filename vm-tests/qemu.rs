//! QEMU: start a machine, watch its serial console, end it by its process id.

use std::{
    ffi::OsString,
    io::Read,
    path::Path,
    process::{Child, Command, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    thread,
    time::{Duration, Instant},
};

use tempfile::{NamedTempFile, TempDir};

use crate::{
    debugger, times,
    world::{firmware_file, scratch_file},
};

/// How long one boot, or one job in a guest, may take. A boot takes about ten seconds on an idle machine.
const LIMIT: Duration = Duration::from_secs(400);
/// Lines of the serial console that a failure shows.
const TAIL_LINES: usize = 60;
/// After any of these nothing that a test may wait for comes any more.
const DEAD_ENDS: [&str; 9] = [
    "SLIPWAY-OK",
    "SLIPWAY-RUN",
    "SLIPWAY-FAIL",
    "SLIPWAY-UNHEALTHY",
    "Kernel panic",
    "slipway: no slot can be booted",
    "grub>",
    "grub rescue>",
    "Interactive Shell",
];

/// Name of the socket for a debugger.
const SOCKET: &str = "gdb";

/// What a machine starts with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Firmware {
    /// SeaBIOS on the `pc` machine.
    Bios,
    /// OVMF on the `q35` machine, with fresh variables.
    Uefi,
    /// AAVMF on arm64's `virt` machine, with fresh variables.
    UefiArm64,
}

/// What a kind of machine is made of.
#[derive(Clone, Copy)]
struct Board {
    name: &'static str,
    /// Its architecture, as `--arch` names it.
    arch: &'static str,
    qemu: &'static str,
    machine: &'static str,
    cpu: &'static str,
    /// Firmware that is not QEMU's own: its code, and its variables to begin with.
    flash: Option<[&'static str; 2]>,
    /// What a CD drive is plugged in with, if it must be, and the drive.
    cd: &'static [&'static str],
}

/// A PC, with the firmware QEMU brings.
const PC: Board = Board {
    name: "BIOS",
    arch: "amd64",
    qemu: "qemu-system-x86_64",
    machine: "pc",
    cpu: "qemu64",
    flash: None,
    cd: &["ide-cd"],
};

impl Firmware {
    const fn board(self) -> Board {
        match self {
            Firmware::Bios => PC,
            Firmware::Uefi => Board {
                name: "UEFI",
                machine: "q35",
                flash: Some(["/usr/share/OVMF/OVMF_CODE_4M.fd", "/usr/share/OVMF/OVMF_VARS_4M.fd"]),
                ..PC
            },
            Firmware::UefiArm64 => Board {
                name: "UEFI on arm64",
                arch: "arm64",
                qemu: "qemu-system-aarch64",
                machine: "virt",
                cpu: "cortex-a57",
                flash: Some(["/usr/share/AAVMF/AAVMF_CODE.fd", "/usr/share/AAVMF/AAVMF_VARS.fd"]),
                cd: &["virtio-scsi-pci", "scsi-cd"],
            },
        }
    }

    /// Architecture of its machine, as `--arch` names it.
    pub const fn arch(self) -> &'static str {
        self.board().arch
    }
}

/// A disk of a machine.
pub struct Drive<'a> {
    file: &'a Path,
    log: Option<&'a Path>,
    format: &'static str,
    kept: bool,
    device: String,
}

impl<'a> Drive<'a> {
    /// A raw image; what the machine writes to it is thrown away at the end.
    pub fn new(file: &'a Path) -> Self {
        Drive { file, log: None, format: "raw", kept: false, device: String::new() }
    }

    /// An image in another format, by QEMU's name of it.
    pub fn format(mut self, format: &'static str) -> Self {
        self.format = format;
        self
    }

    /// The machine writes to the file itself.
    pub fn kept(mut self) -> Self {
        self.kept = true;
        self
    }

    /// The machine writes to the file itself, and a log of every write and flush is kept: see `write_log`.
    pub fn logged(mut self, log: &'a Path) -> Self {
        self.log = Some(log);
        self.kept()
    }

    /// Place in the firmware's boot order; a disk without one is not booted from.
    pub fn boot_index(self, index: u32) -> Self {
        self.option(&format!("bootindex={index}"))
    }

    /// What it reports as its serial number.
    pub fn serial(self, serial: &str) -> Self {
        self.option(&format!("serial={serial}"))
    }

    /// Size of its blocks, logical and physical, in bytes.
    pub fn block_bytes(self, bytes: u32) -> Self {
        self.option(&format!("logical_block_size={bytes},physical_block_size={bytes}"))
    }

    fn option(mut self, text: &str) -> Self {
        self.device = format!("{},{text}", self.device);
        self
    }
}

/// A machine that is not yet running.
pub struct Machine {
    board: Board,
    args: Vec<OsString>,
    drives: usize,
    resets: bool,
    /// The firmware's variables: a file that lives as long as the machine.
    vars: Option<NamedTempFile>,
    /// Where it listens for a debugger.
    debugger: Option<TempDir>,
}

impl Machine {
    /// One that boots from a disk.
    pub fn new(firmware: Firmware) -> Self {
        Self::of(firmware.board())
    }

    /// One that starts a kernel without any bootloader.
    pub fn with_kernel(kernel: &Path, initrd: &Path, cmdline: &str) -> Self {
        let mut machine = Self::of(Board { name: "kernel", ..PC });
        machine.args.extend(["-kernel".into(), kernel.into(), "-initrd".into(), initrd.into()]);
        machine.args.extend(["-append".into(), cmdline.into()]);
        machine
    }

    fn of(board: Board) -> Self {
        let mut args: Vec<OsString> = Vec::new();
        // Emulation only: the same everywhere, and a nested KVM is often none.
        args.extend(["-M", board.machine, "-accel", "tcg,thread=multi", "-cpu", board.cpu].map(Into::into));
        args.extend(["-smp", "1", "-m", "512", "-nodefaults", "-no-user-config", "-nic", "none"].map(Into::into));
        args.extend(["-display", "none", "-serial", "stdio"].map(Into::into));
        let machine = Machine { board, args, drives: 0, resets: false, vars: None, debugger: None };
        match board.flash {
            Some(flash) => machine.with_flash(flash),
            None => machine,
        }
    }

    fn with_flash(mut self, [code, fresh]: [&str; 2]) -> Self {
        let vars = scratch_file();
        std::fs::copy(firmware_file(fresh), vars.path()).expect("the firmware's variables can be copied");
        let flash = |unit, more: &str, file: &Path| {
            let mut text = OsString::from(format!("if=pflash,format=raw,unit={unit}{more},file="));
            text.push(file);
            text
        };
        self.args.extend(["-drive".into(), flash(0, ",readonly=on", firmware_file(code))]);
        self.args.extend(["-drive".into(), flash(1, "", vars.path())]);
        self.vars = Some(vars);
        self
    }

    /// Plug in a disk: the first one is `vda`.
    pub fn drive(mut self, drive: &Drive) -> Self {
        let id = self.drives;
        self.drives += 1;
        self.args.extend(["-device".into(), format!("virtio-blk-pci,drive=d{id}{}", drive.device).into()]);
        match drive.log {
            Some(log) => self.logged(id, drive.file, log),
            None => self.plain(id, drive),
        }
        self
    }

    /// Put in a CD: the first thing the firmware starts.
    pub fn cd(self, iso: &Path) -> Self {
        let cd = self.board.cd;
        self.medium(cd, "media=cdrom,readonly=on", iso)
    }

    /// Plug in a USB stick with these bytes: the first thing the firmware starts. What the machine writes to it is thrown
    /// away.
    pub fn stick(self, bytes: &Path) -> Self {
        self.medium(&["qemu-xhci", "usb-storage"], "snapshot=on", bytes)
    }

    /// The last one of the devices is the one that has the medium in it.
    fn medium(mut self, devices: &[&str], option: &str, file: &Path) -> Self {
        let mut text = OsString::from(format!("if=none,id=medium,format=raw,{option},file="));
        text.push(file);
        self.args.extend(["-drive".into(), text]);
        for device in devices {
            self.args.extend(["-device".into(), (*device).into()]);
        }
        if let Some(device) = self.args.last_mut() {
            device.push(",drive=medium,bootindex=0");
        }
        self
    }

    /// Plug in a network card, from which the firmware starts first: QEMU's iPXE gets `script` from this directory by
    /// TFTP.
    pub fn network(mut self, dir: &Path, script: &str) -> Self {
        let mut text = OsString::from(format!("user,id=net,restrict=on,bootfile={script},tftp="));
        text.push(dir);
        let device = "virtio-net-pci,netdev=net,bootindex=0";
        self.args.extend(["-netdev".into(), text, "-device".into(), device.into()]);
        self
    }

    fn plain(&mut self, id: usize, drive: &Drive) {
        let snapshot = if drive.kept { "off" } else { "on" };
        // cache=unsafe: a flush ends in the page cache of the host, which outlives QEMU.
        let format = drive.format;
        let mut text =
            OsString::from(format!("if=none,id=d{id},format={format},cache=unsafe,snapshot={snapshot},file="));
        text.push(drive.file);
        self.args.extend(["-drive".into(), text]);
    }

    fn logged(&mut self, id: usize, file: &Path, log: &Path) {
        let node = |name: &str, path: &Path| {
            let mut text = OsString::from(format!("driver=file,node-name={name}{id},filename="));
            text.push(path);
            text
        };
        // Without the interval the log says that it is empty until QEMU ends in peace.
        let join = format!(
            "driver=blklogwrites,node-name=d{id},file=file{id},log=log{id},\
            log-sector-size=512,log-super-update-interval=1"
        );
        for text in [node("file", file), node("log", log), join.into()] {
            self.args.extend(["-blockdev".into(), text]);
        }
    }

    /// Plug in a watchdog. It resets the machine when a system has started it and feeds it no longer.
    pub fn watchdog(mut self) -> Self {
        self.args.extend(["-device", "i6300esb", "-action", "watchdog=reset"].map(Into::into));
        self.may_reset()
    }

    /// The machine can be hung.
    pub fn debugger(mut self) -> Self {
        // Not where the large files are: the path of a socket must be short.
        let dir = tempfile::tempdir().expect("a temporary directory can be made");
        let socket = dir.path().join(SOCKET);
        self.args.extend(["-gdb".into(), format!("unix:{},server=on,wait=off", socket.display()).into()]);
        self.debugger = Some(dir);
        self
    }

    /// The machine may reset itself. Without this a reset ends it, and with it the test.
    pub fn may_reset(mut self) -> Self {
        self.resets = true;
        self
    }

    /// Switch on.
    pub fn start(mut self) -> Console {
        if !self.resets {
            self.args.push("-no-reboot".into());
        }
        // setpriv becomes QEMU (same process id) and has it killed when the thread of this test dies,
        // even where the whole test run is killed and nothing of ours can clean up.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", self.board.qemu]).args(&self.args);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("setpriv (util-linux) can be started");
        let (sender, output) = channel();
        forward(child.stdout.take(), sender.clone());
        forward(child.stderr.take(), sender);
        let (Machine { board: Board { name, .. }, vars, debugger, .. }, started) = (self, Instant::now());
        Console { name, child, output, log: Vec::new(), seen: 0, started, _vars: vars, debugger }
    }
}

/// Send on what a pipe brings until it is closed.
fn forward(pipe: Option<impl Read + Send + 'static>, to: Sender<Vec<u8>>) {
    let mut pipe = pipe.expect("the pipe was asked for");
    thread::spawn(move || {
        let mut buf = [0; 4096];
        while let Ok(n @ 1..) = pipe.read(&mut buf) {
            if to.send(buf[..n].to_vec()).is_err() {
                break;
            }
        }
    });
}

/// The serial console of a running machine. The machine is killed when this is dropped.
pub struct Console {
    name: &'static str,
    child: Child,
    output: Receiver<Vec<u8>>,
    log: Vec<u8>,
    /// Bytes of the log that have been looked at, up to the end of a line.
    seen: usize,
    started: Instant,
    _vars: Option<NamedTempFile>,
    debugger: Option<TempDir>,
}

impl Console {
    /// Wait for a line with this text; the line. Fails when it cannot come any more.
    #[track_caller]
    pub fn wait_for(&mut self, text: &str) -> String {
        let deadline = Instant::now() + LIMIT;
        loop {
            while let Some(line) = self.next_line() {
                if line.contains(text) {
                    return line;
                }
                if let Some(end) = DEAD_ENDS.iter().find(|end| line.contains(*end)) {
                    self.fail(&format!("`{end}` instead of `{text}`"));
                }
            }
            // A prompt is the beginning of a line that never ends.
            let rest = plain(&self.log[self.seen..]);
            if let Some(prompt) = DEAD_ENDS.iter().find(|end| end.ends_with('>') && rest.contains(*end)) {
                self.fail(&format!("a prompt, `{prompt}`, instead of `{text}`"));
            }
            match self.output.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(bytes) => self.log.extend(bytes),
                Err(RecvTimeoutError::Timeout) => self.fail(&format!("no `{text}` within {} s", LIMIT.as_secs())),
                Err(RecvTimeoutError::Disconnected) => self.fail(&format!("the machine ended without `{text}`")),
            }
        }
    }

    /// Wait until the reference OS is up, and check what it says of itself.
    #[track_caller]
    pub fn expect_os(&mut self, version: &str, slot: char, tries: u8) {
        let line = self.wait_for("SLIPWAY-OK");
        let expected = format!("SLIPWAY-OK version={version} slot={slot} try={tries}");
        if line != expected {
            self.fail(&format!("`{line}` instead of `{expected}`"));
        }
        eprintln!("boot {} {:.1} s", self.name, self.started.elapsed().as_secs_f32());
        // A later boot of the same machine is counted from here.
        self.started = Instant::now();
    }

    /// Wait until the reference OS is up in memory, from this live medium.
    #[track_caller]
    pub fn expect_live(&mut self, version: &str, medium: &str) {
        let line = self.wait_for("SLIPWAY-OK");
        let expected = format!("SLIPWAY-OK version={version} slot=- try=0 medium={medium}");
        if line != expected {
            self.fail(&format!("`{line}` instead of `{expected}`"));
        }
        eprintln!("live boot {} {:.1} s", self.name, self.started.elapsed().as_secs_f32());
        self.started = Instant::now();
    }

    /// Wait until a live system has been told what to do, and has done it: with this exit code, and what comes next.
    #[track_caller]
    pub fn expect_unattended(&mut self, code: i32, then: &str) {
        let line = self.wait_for("SLIPWAY-UNATTENDED");
        if line != format!("SLIPWAY-UNATTENDED exit={code} then={then}") {
            self.fail(&format!("`{line}` instead of exit code {code}, then {then}"));
        }
        eprintln!("unattended {} {:.1} s", self.name, self.started.elapsed().as_secs_f32());
        self.started = Instant::now();
    }

    /// Wait until the job in a guest has ended; it must have succeeded.
    #[track_caller]
    pub fn expect_job(&mut self) {
        let line = self.wait_for("SLIPWAY-RUN");
        if line != "SLIPWAY-RUN exit=0" {
            self.fail(&format!("the job in the guest failed: `{line}`"));
        }
        eprintln!("job in a guest {:.1} s", self.started.elapsed().as_secs_f32());
    }

    /// Wait until the agent has done something, CONFIRM or UPGRADE, with this exit code.
    #[track_caller]
    pub fn expect_agent(&mut self, what: &str, code: i32) {
        let line = self.wait_for(&format!("SLIPWAY-{what}"));
        if line != format!("SLIPWAY-{what} exit={code}") {
            self.fail(&format!("`{line}` instead of exit code {code}"));
        }
    }

    /// Wait until the machine has switched itself off.
    #[track_caller]
    pub fn expect_power_off(&mut self) {
        let deadline = Instant::now() + LIMIT;
        loop {
            match self.output.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(bytes) => self.log.extend(bytes),
                Err(RecvTimeoutError::Timeout) => self.fail("it does not switch itself off"),
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Hang the machine: see `debugger`.
    pub fn hang(&self) {
        let dir = self.debugger.as_ref().expect("the machine was started with a debugger");
        debugger::hang(&dir.path().join(SOCKET));
    }

    /// Whether a text stands on the console so far.
    pub fn shows(&self, text: &str) -> bool {
        plain(&self.log).contains(text)
    }

    /// Switch the machine off, in the middle of whatever it does. The end of its serial console, for the
    /// message of what is checked afterwards.
    pub fn switch_off(self) -> String {
        self.tail()
    }

    /// Fail with the end of the serial console.
    #[track_caller]
    pub fn fail(&self, why: &str) -> ! {
        let seconds = self.started.elapsed().as_secs_f32();
        panic!("{} machine, after {seconds:.1} s: {why}\n{}", self.name, self.tail());
    }

    fn tail(&self) -> String {
        let log = plain(&self.log);
        let lines: Vec<&str> = log.lines().collect();
        let tail = lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n    ");
        format!("  end of its serial console:\n    {tail}")
    }

    fn next_line(&mut self) -> Option<String> {
        let rest = &self.log[self.seen..];
        let end = rest.iter().position(|b| *b == b'\n')?;
        let line = plain(&rest[..end]);
        self.seen += end + 1;
        Some(line)
    }
}

/// Text without what moves the cursor or changes colours: firmware does much of both.
fn plain(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let mut pieces = text.split("\x1b[");
    let first = pieces.next().unwrap_or_default();
    // A sequence ends with its first letter (ECMA-48, 5.4).
    let rest = pieces.map(|piece| piece.trim_start_matches(|c: char| !c.is_alphabetic()).get(1..).unwrap_or_default());
    let text: String = std::iter::once(first).chain(rest).collect();
    text.replace(|c: char| c.is_control() && c != '\n', "")
}

impl Drop for Console {
    fn drop(&mut self) {
        times::count(self.child.id());
        // It may have ended by itself; either way it is gone after this.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
