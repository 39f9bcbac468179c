//! What each test costs, a line in `out/times.tsv`: seconds from its first machine or disk to its end, seconds of
//! processor time that its machines took, and how many machines it started. `hack/times` lists the slowest.

use std::{
    cell::Cell,
    fs::{self, File},
    io::Write as _,
    path::Path,
    thread,
    time::Instant,
};

/// Clock ticks of `/proc/PID/stat` in a second: what Linux tells programs, whatever it counts with.
const TICKS: f64 = 100.0;

thread_local! {
    /// The test of this thread: libtest gives each a thread that has its name.
    static TEST: Test = Test::begin();
}

struct Test {
    name: String,
    began: Instant,
    machines: Cell<u32>,
    cpu: Cell<f64>,
}

impl Test {
    fn begin() -> Self {
        let name = thread::current().name().unwrap_or("main").to_owned();
        Test { name, began: Instant::now(), machines: Cell::new(0), cpu: Cell::new(0.0) }
    }
}

impl Drop for Test {
    fn drop(&mut self) {
        let (wall, cpu) = (self.began.elapsed().as_secs_f64(), self.cpu.get());
        let line = format!("{}\t{wall:.1}\t{cpu:.1}\t{}\n", self.name, self.machines.get());
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("out/times.tsv");
        let file = File::options().create(true).append(true).open(path);
        // The test has said what it has to say: nothing that is wrong here changes that.
        let _ = file.and_then(|mut file| file.write_all(line.as_bytes()));
    }
}

/// The test has begun, if it had not yet.
pub fn begin() {
    TEST.with(|_| ());
}

/// Count a machine that is about to end, with the processor time it has used so far.
pub fn count(process: u32) {
    TEST.with(|test| {
        test.machines.set(test.machines.get() + 1);
        test.cpu.set(test.cpu.get() + processor_seconds(process).unwrap_or_default());
    });
}

/// User and system time of a process that was not waited for yet: proc(5), fields 14 and 15 of `stat`.
fn processor_seconds(process: u32) -> Option<f64> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The second field is a name in brackets, which may have anything in it.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let [user, system]: [f64; 2] = [fields.next()?.parse().ok()?, fields.next()?.parse().ok()?];
    Some((user + system) / TICKS)
}
