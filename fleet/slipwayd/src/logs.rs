//! The logs of the kernel and of services, as they come.

use std::{
    fs::{File, OpenOptions},
    io::{self, ErrorKind, Read as _, Seek as _, SeekFrom},
    os::unix::fs::OpenOptionsExt as _,
    process::Stdio,
    time::Duration,
};

use slipway_node_server::node::{Error, Lines};
use tokio::{
    io::AsyncReadExt as _,
    process::{Child, Command},
    sync::mpsc::{self, Sender},
    time::sleep,
};

/// One record of the kernel's is not longer.
const RECORD: usize = 8192;
/// The part of a service's log that is sent at once.
const PIECE: usize = 16 << 10;

/// Time between two looks into the kernel's log. To be woken would take code that Rust cannot check.
const PAUSE: Duration = Duration::from_millis(200);

type To = Sender<Result<Vec<u8>, Error>>;

/// The kernel's log.
pub fn kernel(follow: bool, only_new: bool) -> Result<Lines, Error> {
    let no_log = |e: io::Error| Error::Failed(format!("/dev/kmsg cannot be read: {e}"));
    let mut file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open("/dev/kmsg").map_err(no_log)?;
    if only_new {
        file.seek(SeekFrom::End(0)).map_err(no_log)?;
    }
    let (to, lines) = mpsc::channel(1);
    tokio::spawn(async move {
        let read = tokio::select! {
            read = records(file, follow, &to) => read,
            () = to.closed() => return,
        };
        if let Err(e) = read {
            // A client that has gone needs no answer.
            let _ = to.send(Err(no_log(e))).await;
        }
    });
    Ok(lines)
}

async fn records(mut file: File, follow: bool, to: &To) -> io::Result<()> {
    let mut record = vec![0; RECORD];
    loop {
        let text = match file.read(&mut record) {
            Ok(0) => return Ok(()),
            Ok(length) => line(&record[..length]),
            Err(e) if e.kind() == ErrorKind::WouldBlock && !follow => return Ok(()),
            Err(e) if e.kind() == ErrorKind::WouldBlock => {
                sleep(PAUSE).await;
                continue;
            }
            // The next record has been overwritten, and the read after this goes on with the oldest one.
            Err(e) if e.kind() == ErrorKind::BrokenPipe => {
                "some lines were overwritten before they were read\n".to_owned()
            }
            Err(e) => return Err(e),
        };
        if to.send(Ok(text.into_bytes())).await.is_err() {
            return Ok(());
        }
    }
}

/// A record of the kernel's as `dmesg -r` shows it: what comes before the first `;` are numbers, what follows the first
/// line are keys for programs.
fn line(record: &[u8]) -> String {
    let record = String::from_utf8_lossy(record);
    let (head, text) = record.split_once(';').unwrap_or(("", &record));
    let mut numbers = head.split(',');
    let priority = numbers.next().unwrap_or_default();
    let micros: u64 = numbers.nth(1).and_then(|time| time.parse().ok()).unwrap_or(0);
    let text = text.lines().next().unwrap_or_default();
    format!("<{priority}>[{:5}.{:06}] {text}\n", micros / 1_000_000, micros % 1_000_000)
}

/// The log of the unit `name`, if it is one of `units`.
pub fn unit(units: &[String], name: &str, follow: bool, lines: Option<u32>) -> Result<Lines, Error> {
    let is_named = |unit: &&String| *unit == name || unit.strip_suffix(".service") == Some(name);
    let unit = units.iter().find(is_named).ok_or_else(|| {
        Error::NotHere(format!("the log of {name:?} is not given; those of these units are: {}", units.join(", ")))
    })?;
    let lines = lines.map_or_else(|| "all".to_owned(), |lines| lines.to_string());
    let mut journal = Command::new("journalctl");
    journal.args(["--no-pager", "--output=short-iso", "--unit", unit, "--lines", &lines]);
    if follow {
        journal.arg("--follow");
    }
    run(journal)
}

/// The lines of this program, while a client wants them.
fn run(mut program: Command) -> Result<Lines, Error> {
    program.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let child = program.spawn().map_err(|e| match e.kind() {
        ErrorKind::NotFound => Error::NotHere("this node has no journalctl, and no other log of services".to_owned()),
        _ => Error::Failed(format!("journalctl cannot be run: {e}")),
    })?;
    let (to, lines) = mpsc::channel(1);
    tokio::spawn(async move {
        let ended = tokio::select! {
            ended = output(child, &to) => ended,
            // The program ends with what holds it.
            () = to.closed() => return,
        };
        if let Err(e) = ended {
            let _ = to.send(Err(Error::Failed(format!("journalctl: {e}")))).await;
        }
    });
    Ok(lines)
}

async fn output(mut child: Child, to: &To) -> io::Result<()> {
    let (mut out, mut err) = (child.stdout.take(), child.stderr.take());
    let complains = async {
        let mut text = String::new();
        if let Some(err) = &mut err {
            err.read_to_string(&mut text).await?;
        }
        Ok::<_, io::Error>(text)
    };
    let says = async {
        let mut piece = vec![0; PIECE];
        while let Some(out) = &mut out {
            let length = out.read(&mut piece).await?;
            if length == 0 || to.send(Ok(piece[..length].to_vec())).await.is_err() {
                break;
            }
        }
        Ok(())
    };
    let (text, ()) = tokio::try_join!(complains, says)?;
    let status = child.wait().await?;
    if status.success() { Ok(()) } else { Err(io::Error::other(format!("{status}: {}", text.trim()))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_becomes_a_line() {
        let record = b"6,4356,37770149548,-;EXT4-fs (loop0): unmounting\n SUBSYSTEM=block\n DEVICE=b7:0\n";
        assert_eq!(line(record), "<6>[37770.149548] EXT4-fs (loop0): unmounting\n");
        assert_eq!(line(b"12,1,5,-;short"), "<12>[    0.000005] short\n");
    }

    #[tokio::test]
    async fn only_logs_of_units_that_are_named_are_given() {
        let units = ["kubelet.service".to_owned()];
        for name in ["sshd", "sshd.service", "", "kubelet.service.d", "--since=2020", "../kubelet"] {
            let refused = unit(&units, name, false, None).unwrap_err();
            assert!(matches!(&refused, Error::NotHere(why) if why.contains("kubelet.service")), "{name}: {refused}");
        }
    }

    fn program(script: &str) -> Command {
        let mut program = Command::new("sh");
        program.args(["-c", script]);
        program
    }

    #[tokio::test]
    async fn a_log_is_sent_as_it_comes_and_its_failure_is_told() {
        let mut lines = run(program("echo one; echo why >&2; exit 3")).unwrap();
        assert_eq!(lines.recv().await, Some(Ok(b"one\n".to_vec())));
        let Some(Err(Error::Failed(why))) = lines.recv().await else { panic!("it failed") };
        assert!(why.contains("why") && why.contains('3'), "{why}");
        assert_eq!(lines.recv().await, None);
    }

    #[tokio::test]
    async fn who_wants_no_more_ends_the_program() {
        let mut lines = run(program("echo $$; exec sleep 1000")).unwrap();
        let pid = String::from_utf8(lines.recv().await.unwrap().unwrap()).unwrap();
        drop(lines);
        let process = std::path::Path::new("/proc").join(pid.trim());
        while process.exists() {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn a_program_that_is_not_there_is_named() {
        let refused = run(Command::new("/there/is/no/journalctl")).unwrap_err();
        assert!(matches!(refused, Error::NotHere(why) if why.contains("journalctl")));
    }

    #[tokio::test]
    async fn the_kernel_says_what_it_said() {
        let Ok(mut lines) = kernel(false, false) else {
            // Not by a macro: what a test prints that passes is not shown.
            io::Write::write_all(&mut io::stderr(), b"NOT RUN: /dev/kmsg cannot be read here\n").unwrap();
            return;
        };
        let first = lines.recv().await.unwrap().unwrap();
        assert!(first.starts_with(b"<") && first.ends_with(b"\n"), "{first:?}");
        // It ends, although the kernel goes on.
        while lines.recv().await.is_some() {}
    }
}
