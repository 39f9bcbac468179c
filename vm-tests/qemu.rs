//! QEMU: a machine put together and switched on. What it says is in `console`.

use std::{
    env,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use tempfile::{NamedTempFile, TempDir};

use crate::{
    console::{Console, SOCKET},
    firmware::{self, Qmp},
    world::{firmware_file, run, scratch_file},
};

/// The firmware that a machine starts with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Firmware {
    /// SeaBIOS on the `pc` machine.
    Bios,
    /// OVMF on the `q35` machine, with fresh variables.
    Uefi,
    /// AAVMF on arm64's `virt` machine, with fresh variables.
    UefiArm64,
}

/// The parts of a kind of machine.
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
    /// The program that firmware starts from a disk which it knows nothing else of.
    removable: &'static str,
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
    removable: "BOOTX64.EFI",
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
                removable: "BOOTAA64.EFI",
            },
        }
    }

    /// Architecture of its machine, as `--arch` names it.
    pub const fn arch(self) -> &'static str {
        self.board().arch
    }

    /// Path on an ESP of what it starts if it knows nothing else.
    pub fn removable(self) -> String {
        format!("EFI/BOOT/{}", self.board().removable)
    }

    /// Variables without any keys: setup mode.
    pub fn fresh_variables(self) -> &'static Path {
        let [_, fresh] = self.board().flash.expect("firmware that is not UEFI has no variables");
        firmware_file(fresh)
    }
}

/// A disk that is plugged in by itself.
const VIRTIO: &str = "virtio-blk-pci";
/// A disk that needs a controller.
const SCSI: &str = "scsi-hd";

/// A disk of a machine.
pub struct Drive<'a> {
    file: &'a Path,
    log: Option<&'a Path>,
    format: &'static str,
    kept: bool,
    model: &'static str,
    device: String,
    /// Byte offsets of sectors that cannot be read.
    bad: Vec<u64>,
}

impl<'a> Drive<'a> {
    /// A raw image; what the machine writes to it is thrown away at the end.
    pub fn new(file: &'a Path) -> Self {
        Drive { file, log: None, format: "raw", kept: false, model: VIRTIO, device: String::new(), bad: vec![] }
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

    /// The serial number that it reports.
    pub fn serial(self, serial: &str) -> Self {
        self.option(&format!("serial={serial}"))
    }

    /// A SCSI drive with this world-wide name: two with the same one are two paths to one drive.
    pub fn world_wide_name(mut self, name: u64) -> Self {
        self.model = SCSI;
        self.option(&format!("wwn={name:#x}"))
    }

    /// Size of its blocks, logical and physical, in bytes.
    pub fn block_bytes(self, bytes: u32) -> Self {
        self.option(&format!("logical_block_size={bytes},physical_block_size={bytes}"))
    }

    /// Every read of these sectors, by their byte offsets, fails: QEMU's blkdebug. The machine writes to the file itself.
    pub fn unreadable(mut self, sectors: &[u64]) -> Self {
        self.bad = sectors.to_vec();
        self.kept()
    }

    fn option(mut self, text: &str) -> Self {
        self.device = format!("{},{text}", self.device);
        self
    }
}

/// A machine that is not yet running.
pub struct Machine {
    board: Board,
    /// Its parts.
    shape: Vec<OsString>,
    /// The files that belong to it, and what the host wants of it.
    files: Vec<OsString>,
    /// Sizes of its disks; none for one that is not raw.
    disks: Vec<Option<u64>>,
    /// Whether it is emulated and starts from nothing but its disks.
    only_disks: bool,
    resets: bool,
    /// The firmware's variables: a file that lives as long as the machine.
    vars: Option<NamedTempFile>,
    /// Where it listens for a debugger.
    debugger: Option<TempDir>,
    keyboard: Option<Qmp>,
}

impl Machine {
    /// One that boots from a disk.
    pub fn new(firmware: Firmware) -> Self {
        Self::with_board(firmware.board())
    }

    /// One whose firmware enforces Secure Boot once it has keys. It keeps its variables in this file.
    pub fn with_secure_boot(firmware: Firmware, variables: &Path) -> Self {
        let plain = firmware.board();
        let board = Board { name: "Secure Boot", flash: None, ..plain };
        if let (Firmware::UefiArm64, Some([code, _])) = (firmware, plain.flash) {
            // It has Secure Boot in it.
            let mut machine = Self::with_board(Board { name: "Secure Boot on arm64", ..board });
            machine.files = flash(firmware_file(code), variables);
            return machine;
        }
        let board = Board { machine: "q35,smm=on", ..board };
        let mut machine = Self::with_board(board);
        // Only the firmware may write its variables, and that takes a mode of the processor which outlives no sleep.
        machine.shape.extend(["-global", "driver=cfi.pflash01,property=secure,value=on"].map(Into::into));
        machine.shape.extend(["-global", "ICH9-LPC.disable_s3=1"].map(Into::into));
        machine.files = flash(firmware_file("/usr/share/OVMF/OVMF_CODE_4M.secboot.fd"), variables);
        machine
    }

    /// One that starts a kernel without any bootloader.
    pub fn with_kernel(kernel: &Path, initrd: &Path, cmdline: &str) -> Self {
        let mut machine = Self::with_board(Board { name: "kernel", ..PC });
        machine.files.extend(["-kernel".into(), kernel.into(), "-initrd".into(), initrd.into()]);
        machine.files.extend(["-append".into(), cmdline.into()]);
        machine
    }

    fn with_board(board: Board) -> Self {
        let mut shape: Vec<OsString> = Vec::new();
        // hack/test says so where KVM runs kernels. Another architecture is always emulated.
        let kvm = board.arch == "amd64" && env::var_os("SLIPWAY_ACCEL").is_some_and(|accel| accel == "kvm");
        let (accel, cpu) = if kvm { ("kvm", "host") } else { ("tcg,thread=multi", board.cpu) };
        shape.extend(["-M", board.machine, "-accel", accel, "-cpu", cpu].map(Into::into));
        shape.extend(["-smp", "1", "-m", "512", "-nodefaults", "-no-user-config", "-nic", "none"].map(Into::into));
        shape.extend(["-display", "none", "-serial", "stdio"].map(Into::into));
        let (files, disks) = (Vec::new(), Vec::new());
        let machine = Machine {
            board,
            shape,
            files,
            disks,
            only_disks: !kvm,
            resets: false,
            vars: None,
            debugger: None,
            keyboard: None,
        };
        match board.flash {
            Some(flash) => machine.with_flash(flash),
            None => machine,
        }
    }

    fn with_flash(mut self, [code, fresh]: [&str; 2]) -> Self {
        let vars = scratch_file();
        fs::copy(firmware_file(fresh), vars.path()).expect("the firmware's variables can be copied");
        self.files = flash(firmware_file(code), vars.path());
        self.vars = Some(vars);
        self
    }

    /// Plug in a disk: the first one is `vda`, or `sda` with a world-wide name.
    pub fn drive(mut self, drive: &Drive) -> Self {
        let id = self.disks.len();
        let raw = drive.format == "raw";
        self.disks.push(raw.then(|| fs::metadata(drive.file).expect("the image is there").len()));
        let controller = "virtio-scsi-pci,id=scsi";
        if drive.model == SCSI && !self.shape.iter().any(|argument| argument == controller) {
            self.shape.extend(["-device".into(), controller.into()]);
        }
        self.shape.extend(["-device".into(), format!("{},drive=d{id}{}", drive.model, drive.device).into()]);
        match drive.log {
            Some(log) => self.logged(id, drive.file, log),
            None if !drive.bad.is_empty() => self.failing(id, drive),
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
        self.only_disks = false;
        self.files.extend(["-drive".into(), text]);
        for device in devices {
            self.shape.extend(["-device".into(), (*device).into()]);
        }
        if let Some(device) = self.shape.last_mut() {
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
        self.only_disks = false;
        self.files.extend(["-netdev".into(), text]);
        self.shape.extend(["-device".into(), device.into()]);
        self
    }

    /// Plug in a network card that is in no net. It has an option ROM with an unsigned EFI driver.
    pub fn network_card(mut self) -> Self {
        self.only_disks = false;
        self.shape.extend(["-device", "virtio-net-pci"].map(Into::into));
        self
    }

    /// Plug in a network card whose net ends at the host: DHCP gives addresses, and 10.0.2.2 answers. TCP connections to
    /// these ports of 10.0.2.100 end at those of the host's loopback device.
    pub fn test_net(self, servers: &[(u16, u16)]) -> Self {
        self.reached_at("", servers)
    }

    /// The same, and connections to this address of the host, `127.0.1.1:4000`, end at this port of the machine.
    pub fn served_net(self, servers: &[(u16, u16)], host: &str, port: u16) -> Self {
        self.reached_at(&format!(",hostfwd=tcp:{host}-:{port}"), servers)
    }

    fn reached_at(mut self, served: &str, servers: &[(u16, u16)]) -> Self {
        // A program for each connection: without one QEMU has a single connection for all, and opens it at once.
        let forward = |(at, port): &_| format!(",guestfwd=tcp:10.0.2.100:{at}-cmd:busybox nc 127.0.0.1 {port}");
        let net = format!("user,id=net,restrict=on{served}{}", servers.iter().map(forward).collect::<String>());
        self.only_disks = false;
        self.files.extend(["-netdev".into(), net.into()]);
        self.shape.extend(["-device", "virtio-net-pci,netdev=net,romfile="].map(Into::into));
        self
    }

    fn plain(&mut self, id: usize, drive: &Drive) {
        let snapshot = if drive.kept { "off" } else { "on" };
        // cache=unsafe: a flush ends in the page cache of the host, which outlives QEMU.
        let format = drive.format;
        let mut text =
            OsString::from(format!("if=none,id=d{id},format={format},cache=unsafe,snapshot={snapshot},file="));
        text.push(drive.file);
        self.files.extend(["-drive".into(), text]);
    }

    fn failing(&mut self, id: usize, drive: &Drive) {
        self.only_disks = false;
        let rule = |(n, at): (usize, &u64)| {
            let rule = format!("file.inject-error.{n}");
            format!(",{rule}.event=none,{rule}.iotype=read,{rule}.errno=5,{rule}.sector={}", at / 512)
        };
        let rules: String = drive.bad.iter().enumerate().map(rule).collect();
        let mut text = OsString::from(format!(
            "driver=raw,node-name=d{id},file.driver=blkdebug{rules},file.image.driver=file,file.image.filename="
        ));
        text.push(drive.file);
        self.files.extend(["-blockdev".into(), text]);
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
            self.files.extend(["-blockdev".into(), text]);
        }
    }

    /// With so much memory, for a system with more in it than ours.
    pub fn memory(mut self, mib: u32) -> Self {
        // The last word counts.
        self.shape.extend(["-m".into(), mib.to_string().into()]);
        self
    }

    /// Plug in a watchdog. It resets the machine when a system has started it and feeds it no longer.
    pub fn watchdog(mut self) -> Self {
        self.shape.extend(["-device", "i6300esb", "-action", "watchdog=reset"].map(Into::into));
        self
    }

    /// Plug in a TPM, which keeps its state in this directory, whose path has to be short. It ends with the machine.
    pub fn tpm(mut self, state: &Path) -> Self {
        let socket = state.join("socket").display().to_string();
        let (at, dir) = (format!("type=unixio,path={socket}"), format!("dir={}", state.display()));
        run("swtpm", ["socket", "--tpm2", "--daemon", "--terminate", "--tpmstate", &dir, "--ctrl", &at]);
        self.files.extend(["-chardev".into(), format!("socket,id=tpm,path={socket}").into()]);
        self.files.extend(["-tpmdev", "emulator,id=tpm,chardev=tpm", "-device", "tpm-crb,tpmdev=tpm"].map(Into::into));
        self
    }

    /// The machine can be hung.
    pub fn debugger(mut self) -> Self {
        // Not where the large files are: the path of a socket must be short.
        let dir = tempfile::tempdir().expect("a temporary directory can be made");
        let socket = dir.path().join(SOCKET);
        self.files.extend(["-gdb".into(), format!("unix:{},server=on,wait=off", socket.display()).into()]);
        self.debugger = Some(dir);
        self
    }

    /// A person sits at its keyboard, whose keys have names of QEMU: see `Console::press_until`.
    pub fn keyboard(mut self) -> Self {
        let qmp = Qmp::new();
        self.files.extend(qmp.args.clone());
        self.keyboard = Some(qmp);
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
            self.files.push("-no-reboot".into());
        }
        let begun = self.begun();
        // setpriv becomes QEMU (same process id) and has it killed when the thread of this test dies,
        // even where the whole test run is killed and nothing of ours can clean up.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", self.board.qemu]).args(&self.shape).args(&self.files);
        let qmp = begun.map(|state| {
            let qmp = Qmp::new();
            command.arg("-incoming").arg(format!("exec:cat '{}'", state.display())).args(&qmp.args);
            qmp
        });
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().expect("setpriv (util-linux) can be started");
        let mut console = Console::new(self.board.name, child, self.vars, self.debugger);
        if let Some(qmp) = qmp {
            qmp.resume();
        }
        console.keyboard = self.keyboard.map(Qmp::connect);
        console
    }

    /// The state that UEFI leaves a machine like this in, if it may begin there.
    fn begun(&self) -> Option<PathBuf> {
        let [code, fresh] = self.board.flash.filter(|_| self.only_disks)?;
        let disks: Vec<u64> = self.disks.iter().copied().collect::<Option<_>>()?;
        let vars = scratch_file();
        fs::copy(firmware_file(fresh), vars.path()).expect("the firmware's variables can be copied");
        Some(firmware::state(self.board.qemu, &self.shape, &disks, &flash(firmware_file(code), vars.path())))
    }
}

/// UEFI's code and its variables, as two flash chips.
fn flash(code: &Path, vars: &Path) -> Vec<OsString> {
    let chip = |unit, more: &str, file: &Path| {
        let mut text = OsString::from(format!("if=pflash,format=raw,unit={unit}{more},file="));
        text.push(file);
        text
    };
    vec!["-drive".into(), chip(0, ",readonly=on", code), "-drive".into(), chip(1, "", vars)]
}
