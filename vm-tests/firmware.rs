//! What UEFI does before it looks at any disk takes a third of an emulated boot, and is the same whatever is on the
//! disks. For machines of one shape (board, devices, sizes of disks) it is done once: a machine whose disks cannot be read
//! stops at the first read, and its state is kept. Every other machine of this shape begins there: that first read, and
//! all that follows, is of its own disks. After a reset the firmware starts from its beginning.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    io::{BufRead as _, BufReader, Write as _},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Mutex, OnceLock, PoisonError},
    thread::sleep,
    time::{Duration, Instant},
};

use tempfile::TempDir;

use crate::{times, world::fresh_dir};

/// The time that the firmware may take on a busy machine.
const LIMIT: Duration = Duration::from_secs(200);

/// States by the shape of the machine: its arguments, without files.
type States = BTreeMap<Vec<OsString>, PathBuf>;

/// The state of a machine of this shape at its first read of a disk; `flash` is the rest of its arguments.
pub fn state(qemu: &str, shape: &[OsString], disks: &[u64], flash: &[OsString]) -> PathBuf {
    static DIR: OnceLock<PathBuf> = OnceLock::new();
    static STATES: Mutex<States> = Mutex::new(States::new());
    let dir = DIR.get_or_init(|| fresh_dir("firmware-states"));
    let mut states = STATES.lock().unwrap_or_else(PoisonError::into_inner);
    let number = states.len();
    let sizes = disks.iter().map(|bytes| OsString::from(bytes.to_string()));
    let key = [qemu.into()].into_iter().chain(shape.iter().cloned()).chain(sizes).collect();
    let made = states.entry(key).or_insert_with(|| {
        let file = dir.join(number.to_string());
        make(qemu, &[shape, flash].concat(), disks, &file);
        file
    });
    made.clone()
}

fn make(qemu: &str, args: &[OsString], disks: &[u64], to: &Path) {
    let qmp = Qmp::new();
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", qemu]).args(args).args(&qmp.args);
    // A read that fails stops the machine, and is done again when it goes on.
    command.args(["-global", "driver=virtio-blk-device,property=rerror,value=stop"]);
    for (id, bytes) in disks.iter().enumerate() {
        let disk = format!(
            "driver=blkdebug,node-name=d{id},image.driver=null-co,image.size={bytes},\
            inject-error.0.event=none,inject-error.0.iotype=read"
        );
        command.args(["-blockdev", &disk]);
    }
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::inherit());
    let machine = Machine(command.spawn().expect("setpriv (util-linux) can be started"));
    let mut qmp = qmp.connect();
    qmp.wait_for("query-status", "\"io-error\"");
    qmp.say(&format!(r#"{{"execute":"migrate","arguments":{{"uri":"exec:cat >'{}'"}}}}"#, to.display()));
    qmp.wait_for("query-migrate", "\"completed\"");
    drop(machine);
}

/// Gone when dropped.
struct Machine(Child);

impl Drop for Machine {
    fn drop(&mut self) {
        times::count(self.0.id());
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A machine's socket for commands, by QEMU's machine protocol.
pub struct Qmp {
    /// Its path must be short: not where the large files are.
    dir: TempDir,
    pub args: [OsString; 2],
}

impl Qmp {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory can be made");
        let socket = format!("unix:{}/qmp,server=on,wait=off", dir.path().display());
        Qmp { dir, args: ["-qmp".into(), socket.into()] }
    }

    /// Let a machine go on that began with a state.
    pub fn resume(self) {
        let mut qmp = self.connect();
        // It stopped at a read that failed, and is still stopped when the state has been loaded.
        qmp.wait_for("query-status", "\"io-error\"");
        qmp.say(r#"{"execute":"cont"}"#);
        qmp.wait_for("query-status", "\"running\"");
    }

    pub fn connect(self) -> Connection {
        let (path, began) = (self.dir.path().join("qmp"), Instant::now());
        let stream = loop {
            match UnixStream::connect(&path) {
                Ok(stream) => break stream,
                Err(e) => assert!(began.elapsed() < LIMIT, "QEMU does not listen: {e}"),
            }
            sleep(Duration::from_millis(20));
        };
        stream.set_read_timeout(Some(LIMIT)).expect("a socket can have a time limit");
        let mut connection = Connection { lines: BufReader::new(stream) };
        connection.say(r#"{"execute":"qmp_capabilities"}"#);
        connection
    }
}

pub struct Connection {
    lines: BufReader<UnixStream>,
}

impl Connection {
    /// A command, and the answer to it.
    pub fn say(&mut self, command: &str) -> String {
        writeln!(self.lines.get_mut(), "{command}").expect("QEMU reads");
        loop {
            let mut line = String::new();
            assert!(
                self.lines.read_line(&mut line).expect("QEMU answers") > 0,
                "QEMU ended before it answered {command}"
            );
            assert!(!line.starts_with(r#"{"error"#), "{command}: {line}");
            // Before it may come a greeting, and what has happened.
            if line.starts_with(r#"{"return"#) {
                return line;
            }
        }
    }

    /// Ask until the answer has this in it.
    fn wait_for(&mut self, query: &str, text: &str) {
        let (began, command) = (Instant::now(), format!(r#"{{"execute":"{query}"}}"#));
        loop {
            let answer = self.say(&command);
            if answer.contains(text) {
                return;
            }
            assert!(began.elapsed() < LIMIT, "{query} does not say {text} but {answer}");
            sleep(Duration::from_millis(20));
        }
    }
}
