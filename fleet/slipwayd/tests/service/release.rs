//! EPHEMERAL is released: real file systems, and real processes that hold them. A loop device takes the place of the
//! partition.
//!
//! Needs: root; says NOT RUN without.

use std::{
    env, fs,
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Mutex, PoisonError},
};

use slipwayd::machine::{
    holders,
    mounts::{Dev, unescaped},
    volume::{Volume, devices},
};
use tempfile::{TempDir, tempdir};

/// Set in a test's own mount namespace.
const OWN: &str = "SLIPWAY_TEST_OWN_MOUNTS";

static ALONE: Mutex<()> = Mutex::new(());

/// A directory with a volume that is mounted in it, and nothing left of it afterwards.
struct Place {
    // Fields drop in this order.
    _device: Loop,
    dir: TempDir,
    volume: Volume,
}

fn run(program: &str, args: &[&str]) -> bool {
    Command::new(program).args(args).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}

fn sized(path: PathBuf, bytes: u64) -> PathBuf {
    fs::File::create(&path).unwrap().set_len(bytes).unwrap();
    path
}

fn dev(path: &Path) -> Dev {
    holders::number(fs::metadata(path).unwrap().dev())
}

impl Place {
    /// For the test of this name, which runs in a mount namespace of its own: else the namespaces of other tests, and of
    /// whatever else is started meanwhile, would hold what it mounts. `None` outside of that, when the test was run there.
    fn new(test: &str) -> Option<Self> {
        if env::var_os(OWN).is_none() {
            if !run("unshare", &["--mount", "true"]) {
                slipway_test_support::not_run("only root may mount");
                return None;
            }
            // One at a time: the number of a tmpfs that is gone is the next one's.
            let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
            let mut inside = Command::new("unshare");
            inside.arg("--mount").arg(env::current_exe().unwrap());
            inside.args(["--exact", &format!("release::{test}"), "--nocapture"]).env(OWN, "1");
            let output = inside.output().unwrap();
            let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
            eprintln!("{said}");
            assert!(output.status.success() && said.contains("1 passed"));
            return None;
        }
        let dir = tempdir().unwrap();
        let device = Loop::on(&sized(dir.path().join("device"), 32 << 20));
        let node = device.0.display().to_string();
        assert!(run("mkfs.ext4", &["-q", &node]));
        let mut place = Self { _device: device, dir, volume: Volume::default() };
        assert!(place.mount("eph", &["-t", "ext4", &node]));
        place.volume.goes.push(dev(&place.path("eph")));
        Some(place)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    fn mount(&self, name: &str, how: &[&str]) -> bool {
        fs::create_dir_all(self.path(name)).unwrap();
        run("mount", &[how, &[self.text(name).as_str()]].concat())
    }

    /// The mounts in it, the last first.
    fn mounted(&self) -> Vec<PathBuf> {
        let text = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let points = text.lines().filter_map(|line| line.split(' ').nth(4)).map(|point| unescaped(point).into());
        let mut points: Vec<PathBuf> = points.filter(|point: &PathBuf| point.starts_with(self.dir.path())).collect();
        points.reverse();
        points
    }

    /// A process holds the volume: the reason names it, and how. Without it the volume goes.
    fn is_held(&self, mut by: Held, words: &[&str]) {
        let why = self.volume.release().unwrap_err();
        let who = format!("process {} (", by.0.id());
        assert!(why.contains(&who) && words.iter().all(|word| why.contains(word)), "{why}: {who} {words:?}");
        by.end();
        assert_eq!(self.volume.release(), Ok(()));
        assert!(self.mounted().is_empty());
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        for point in self.mounted() {
            run("umount", &["-l", &point.display().to_string()]);
        }
    }
}

/// A process that ends with the test.
struct Held(Child);

impl Held {
    /// A shell that has done this, says so, and stays. No other process is between it and the test.
    fn by(script: &str, args: &[&str]) -> Self {
        let text = format!("{script}; echo ready; read -r _");
        Self::of(Command::new("sh").args(["-c", &text, "sh"]).args(args))
    }

    fn of(command: &mut Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        let out = child.stdout.take().unwrap();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(out), &mut line).unwrap();
        assert_eq!(line, "ready\n");
        Self(child)
    }

    fn end(&mut self) {
        let _ = self.0.kill();
        self.0.wait().unwrap();
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.end();
    }
}

#[test]
fn everything_of_the_volume_goes_and_the_rest_stays() {
    let Some(place) = Place::new("everything_of_the_volume_goes_and_the_rest_stays") else { return };
    for dir in ["files/var", "work/var", "a b", "inside"] {
        fs::create_dir_all(place.path("eph").join(dir)).unwrap();
    }
    fs::create_dir(place.path("low")).unwrap();
    assert!(place.mount("bound\there", &["--bind", &place.text("eph/a b")]));
    assert!(place.mount("eph/inside", &["-t", "tmpfs", "inside"]));
    assert!(place.mount("other", &["-t", "tmpfs", "other"]));
    let [low, upper, work] = ["low", "eph/files/var", "eph/work/var"].map(|name| place.text(name));
    let layers = format!("lowerdir={low},upperdir={upper},workdir={work}");
    let has_overlay = place.mount("var", &["-t", "overlay", "overlay", "-o", &layers]);
    if has_overlay {
        assert!(place.mount("var/lib", &["--bind", &place.text("eph/a b")]));
    } else {
        slipway_test_support::not_run("no overlays here");
    }
    assert_eq!(place.mounted().len(), if has_overlay { 6 } else { 4 });
    assert_eq!(place.volume.is_mounted(), Ok(true));
    assert_eq!(place.volume.may_go(), Ok(()));
    assert_eq!(place.volume.release(), Ok(()));
    assert_eq!(place.mounted(), [place.path("other")]);
    assert_eq!(place.volume.is_mounted(), Ok(false));
    assert_eq!(place.volume.release(), Ok(()), "it can be done again");
}

#[test]
fn nothing_is_unmounted_where_state_would_be() {
    let Some(mut place) = Place::new("nothing_is_unmounted_where_state_would_be") else { return };
    assert!(place.mount("state", &["-t", "tmpfs", "state"]));
    place.volume.stays.push(dev(&place.path("state")));
    assert!(place.mount("eph/deep/er", &["-t", "tmpfs", "er"]));
    assert!(place.mount("eph/deep/er/journal", &["--bind", &place.text("state")]));
    let before = place.mounted();
    let why = place.volume.release().unwrap_err();
    assert!(why.contains("eph/deep/er/journal is of STATE"), "{why}");
    assert_eq!(place.mounted(), before);
    assert!(run("umount", &[&place.text("eph/deep/er/journal")]));
    assert_eq!(place.volume.release(), Ok(()));
    assert_eq!(place.mounted(), [place.path("state")]);
}

#[test]
fn who_works_in_it_is_named() {
    let Some(place) = Place::new("who_works_in_it_is_named") else { return };
    let dir = place.text("eph/data");
    let held = Held::by("mkdir -p \"$1\" && cd \"$1\"", &[&dir]);
    place.is_held(held, &["is in use: ", &format!("works in {dir}")]);
}

#[test]
fn who_has_a_file_open_is_named() {
    let Some(place) = Place::new("who_has_a_file_open_is_named") else { return };
    let file = place.text("eph/log");
    let held = Held::by("exec 7>\"$1\"", &[&file]);
    place.is_held(held, &[&format!("has open {file}")]);
}

#[test]
fn who_has_a_file_open_that_was_deleted_is_named() {
    let Some(place) = Place::new("who_has_a_file_open_that_was_deleted_is_named") else { return };
    let file = place.text("eph/log");
    let held = Held::by("exec 7>\"$1\" && rm \"$1\"", &[&file]);
    place.is_held(held, &[&format!("has open {file} (deleted)")]);
}

#[test]
fn who_runs_from_it_is_named() {
    let Some(place) = Place::new("who_runs_from_it_is_named") else { return };
    let shell = place.text("eph/shell");
    assert!(run("cp", &["--dereference", "/bin/sh", &shell]));
    let held = Held::of(Command::new(&shell).args(["-c", "echo ready; read -r _"]));
    place.is_held(held, &[&format!("runs {shell}")]);
}

/// Its own namespace still has the volume when ours has not: the file system is in use all the same.
#[test]
fn who_has_it_mounted_in_another_namespace_is_named() {
    let Some(place) = Place::new("who_has_it_mounted_in_another_namespace_is_named") else { return };
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c", "echo ready; read -r _"]);
    let held = Held::of(&mut command);
    place.is_held(held, &[&format!("has it mounted on {} in its mount namespace", place.text("eph"))]);
}

/// As systemd gives a service: the part of `/var` that it writes to is mounted in its own namespace once more, so `/var` stays
/// there when it goes everywhere else.
#[test]
fn who_has_a_part_of_an_overlay_in_another_namespace_is_named() {
    let Some(place) = Place::new("who_has_a_part_of_an_overlay_in_another_namespace_is_named") else { return };
    for dir in ["eph/var", "eph/work", "low/lib"] {
        fs::create_dir_all(place.path(dir)).unwrap();
    }
    let [low, upper, work] = ["low", "eph/var", "eph/work"].map(|name| place.text(name));
    assert!(
        place.mount(
            "var",
            &["-t", "overlay", "overlay", "-o", &format!("lowerdir={low},upperdir={upper},workdir={work}")]
        )
    );
    assert!(run("mount", &["--make-rshared", "/"]));
    let mut command = Command::new("unshare");
    let script = "mount --bind \"$1\" \"$1\"; echo ready; read -r _";
    command.args(["--mount", "--propagation", "slave", "sh", "-c", script, "sh", &place.text("var/lib")]);
    let held = Held::of(&mut command);
    place.is_held(held, &[&format!("has an overlay that may lie on it mounted on {}", place.text("var"))]);
}

#[test]
fn many_holders_are_not_all_named() {
    let Some(place) = Place::new("many_holders_are_not_all_named") else { return };
    let dir = place.text("eph");
    let held: Vec<Held> = (0..12).map(|_| Held::by("cd \"$1\"", &[&dir])).collect();
    let why = place.volume.release().unwrap_err();
    assert_eq!((why.matches("process ").count(), why.ends_with("; and 2 more")), (10, true), "{why}");
    drop(held);
    assert_eq!(place.volume.release(), Ok(()));
}

/// As the kernel shows them: a partition, and what lies on it.
#[test]
fn the_devices_of_a_volume_are_those_of_its_partition_and_what_lies_on_it() {
    let sys = tempdir().unwrap();
    let write = |path: &str, text: &str| {
        let path = sys.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    for (number, name) in [(6, "vda6"), (7, "vda7")] {
        write(&format!("vda/{name}/partition"), &format!("{number}\n"));
        write(&format!("vda/{name}/dev"), &format!("253:{number}\n"));
    }
    write("vda/queue/rotational", "0\n");
    for (holder, dev) in [("dm-0", "254:0"), ("dm-1", "254:1")] {
        write(&format!("{holder}/dev"), &format!("{dev}\n"));
    }
    write("vda/vda7/holders/dm-0/x", "");
    write("dm-0/holders/dm-1/x", "");
    let of = |number| devices(sys.path(), "vda", number);
    let [crypt, above] = [0, 1].map(|minor| Dev { major: 254, minor });
    assert_eq!(of(7), Ok(vec![Dev { major: 253, minor: 7 }, crypt, above]));
    assert_eq!(of(6), Ok(vec![Dev { major: 253, minor: 6 }]));
    assert_eq!(of(5), Err("the kernel knows no partition 5 of vda".to_owned()));
    assert!(devices(sys.path(), "vdb", 7).unwrap_err().contains("vdb cannot be read"));
    fs::remove_file(sys.path().join("dm-1/dev")).unwrap();
    assert!(of(7).unwrap_err().contains("dm-1 does not say its number"));
}

/// A loop device that goes with the test.
struct Loop(PathBuf);

impl Loop {
    fn on(file: &Path) -> Self {
        let output = Command::new("losetup").args(["--find", "--show"]).arg(file).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        Self(String::from_utf8(output.stdout).unwrap().trim().into())
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        run("losetup", &["--detach", &self.0.display().to_string()]);
    }
}

/// The real thing: a partition of a disk, its file system, and what the kernel says of them.
#[test]
fn a_partition_of_a_disk_goes() {
    let Some(mut place) = Place::new("a_partition_of_a_disk_goes") else { return };
    if !["losetup", "addpart", "mkfs.xfs"].iter().all(|tool| run("which", &[tool])) {
        slipway_test_support::not_run("losetup, addpart or mkfs.xfs is missing");
        return;
    }
    let disk = Loop::on(&sized(place.path("disk"), 400 << 20));
    let name = disk.0.file_name().unwrap().to_str().unwrap();
    let node = format!("{}p7", disk.0.display());
    // A loop device keeps its partitions for the next one who takes it.
    run("delpart", &[&disk.0.display().to_string(), "7"]);
    assert!(run("addpart", &[&disk.0.display().to_string(), "7", "2048", "700000"]));
    let goes = devices(Path::new("/sys/class/block"), name, 7).unwrap();
    assert_eq!(goes, [holders::number(fs::metadata(&node).unwrap().rdev())]);
    place.volume.goes = goes;
    assert!(run("mkfs.xfs", &["-q", &node]) && place.mount("part", &[&node]));
    let file = sized(place.path("part/file"), 1 << 20);
    let on_it = Loop::on(&file);
    let why = place.volume.release().unwrap_err();
    let words = format!("{}, which is attached to {}", on_it.0.display(), file.display());
    assert!(why.contains(&words), "{why}");
    drop(on_it);
    assert_eq!(place.volume.release(), Ok(()));
    // It is unused now: the installer may take it for itself.
    let exclusive = rustix::fs::OFlags::EXCL.bits().cast_signed();
    fs::OpenOptions::new().read(true).custom_flags(exclusive).open(&node).unwrap();
    assert!(run("delpart", &[&disk.0.display().to_string(), "7"]));
}
