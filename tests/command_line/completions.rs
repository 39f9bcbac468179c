//! Completions, in the shells themselves: keys are typed on a terminal, and what comes of the command line is looked at.

use std::{collections::BTreeSet, fs, os::unix::fs::symlink, path::PathBuf};

use slipway_test_support::world::{Outcome, World, finished, installer, installer_path, program};

const SHELLS: [&str; 3] = ["bash", "zsh", "fish"];
const PROGRAMS: [&str; 3] = ["installer", "slipway", "imager"];

/// A directory with payloads and files, and the shells' start files beside it.
struct Desk {
    world: World,
}

impl Desk {
    fn new() -> Self {
        let desk = Desk { world: World::new() };
        for dir in ["work/src/payload-1", "work/src/payload-2", "functions"] {
            fs::create_dir_all(desk.path(dir)).unwrap();
        }
        for file in ["work/src/b.tar", "work/disk.raw"] {
            fs::write(desk.path(file), "").unwrap();
        }
        for shell in SHELLS {
            let script = Outcome::of(&mut installer(["completions", shell])).succeeds().stdout;
            // zsh finds its functions by their names, in the directories that are for them.
            let file = if shell == "zsh" { "functions/_installer" } else { shell };
            fs::write(desk.path(file), script).unwrap();
        }
        // The program is a function that says how it was called, and ends the shell.
        let programs = |print: &str| {
            let result = desk.path("result");
            PROGRAMS.map(|name| format!("{name}() {{ {print} \"$@\" >{}; exit; }}\n", result.display())).concat()
        };
        let bash = format!(
            "PS1=\nbind 'set enable-bracketed-paste off'\nbind '\"\\C-xa\": insert-completions'\nsource {}\n{}",
            desk.path("bash").display(),
            programs("printf '%s\\n'")
        );
        fs::write(desk.path("bashrc"), bash).unwrap();
        let zsh = format!(
            "PS1=\nunset zle_bracketed_paste\nfpath=({} $fpath)\nautoload -U compinit && compinit -C -d {}\n\
             zle -C all-matches complete-word _generic\nbindkey '^Xa' all-matches\n\
             zstyle ':completion:all-matches:*' insert yes\n\
             zstyle ':completion:all-matches::::' completer _all_matches _complete\n{}",
            desk.path("functions").display(),
            // What the first start has found among a thousand functions, for the others. People have such a file, too.
            desk.path("zcompdump").display(),
            programs("print -rl --")
        );
        fs::write(desk.path(".zshrc"), zsh).unwrap();
        desk
    }

    fn path(&self, name: &str) -> PathBuf {
        self.world.path(name)
    }

    /// The words that the program gets after these keys, and Enter. `setup` is a shell script in a mount namespace.
    #[track_caller]
    fn typed(&self, shell: &str, setup: &str, keys: &str) -> Vec<String> {
        let _ = fs::remove_file(self.path("result"));
        let start = match shell {
            "bash" => format!("bash --noprofile --rcfile {} -i", self.path("bashrc").display()),
            _ => "zsh -d -i".to_owned(),
        };
        let mut script = program("script");
        script.args(["-qec", "exec unshare --mount sh -c \"$SETUP\nexec $START\"", "/dev/null"]);
        script.env("SETUP", setup).env("START", start).env("ZDOTDIR", self.path("")).env("TERM", "dumb");
        script.env("SHELL", "/bin/sh").current_dir(self.path("work")).write_stdin(format!("{keys}\n"));
        let said = Outcome::of(&mut script);
        let result = fs::read_to_string(self.path("result"));
        let result = result.unwrap_or_else(|e| panic!("{shell}: {keys:?}: {e}\n{}{}", said.stdout, said.stderr));
        result.lines().map(str::to_owned).collect()
    }

    /// All that a shell offers for the last word of a line.
    #[track_caller]
    fn offered(&self, shell: &str, setup: &str, line: &str) -> BTreeSet<String> {
        if shell == "fish" {
            let script = format!("{setup}\nexec fish --no-config -c 'source $argv[1]; complete -C $argv[2]' \"$@\"");
            let mut fish = program("unshare");
            fish.args(["--mount", "sh", "-c", &script, "sh"]).arg(self.path("fish")).arg(line);
            let said = finished(fish.current_dir(self.path("work")).env("HOME", self.path("")));
            return said.lines().map(|line| bare(line.split('\t').next().unwrap())).collect();
        }
        let words = self.typed(shell, setup, &format!("{line}\u{18}a"));
        let before = line.split(' ').count() - 2;
        words[before..].iter().map(|word| bare(word)).collect()
    }
}

/// Without what shells repeat or leave out: the flag, the scheme, the slash of a directory.
fn bare(word: &str) -> String {
    let word = if word.starts_with("--") { word.split_once('=').map_or(word, |(_, value)| value) } else { word };
    let word = ["dir:", "oci:", "oci-archive:"].iter().find_map(|scheme| word.strip_prefix(scheme)).unwrap_or(word);
    word.strip_suffix('/').unwrap_or(word).to_owned()
}

/// A line, and all that is offered for its last word.
const CASES: &[(&str, &[&str])] = &[
    ("installer upgrade --source d", &["dir:", "docker://"]),
    ("installer upgrade --source dir:src/", &["src/payload-1", "src/payload-2"]),
    ("installer upgrade --source=oci:src/", &["src/payload-1", "src/payload-2"]),
    ("slipway install --source oci-archive:src/", &["src/payload-1", "src/payload-2", "src/b.tar"]),
    ("installer image --container dir:src/payload-2", &["src/payload-2"]),
    ("installer pull docker://registry.example/os oci:src/", &["src/payload-1", "src/payload-2"]),
    ("slipway inspect dir:src/", &["src/payload-1", "src/payload-2"]),
    ("installer inspect dis", &["disk.raw"]),
    ("installer status --disk dis", &["disk.raw"]),
    ("installer install --platform a", &["akamai", "alibabacloud", "aws", "azure"]),
    ("imager metal --platform=met", &["metal"]),
    ("slipway image --arch ", &["amd64", "arm64"]),
    ("installer image --kind ", &["iso", "ova", "pxe", "qcow2", "raw", "vhd", "vmdk"]),
    ("installer image --out src/", &["src/payload-1", "src/payload-2", "src/b.tar"]),
    ("installer wipe ", &["STATE", "EPHEMERAL"]),
    ("slipway wipe --disk disk.raw STATE E", &["EPHEMERAL"]),
    ("installer upgrade --preserve=", &["true", "false"]),
    ("installer upgrade --dis", &["--disk"]),
    ("installer --output json sta", &["stage", "status"]),
    ("installer --output ", &["human", "json"]),
    ("slipway meta ", &["delete", "get", "list", "set"]),
    ("installer meta get 0x0a --dis", &["--disk"]),
    ("installer completions ", &["bash", "fish", "zsh"]),
    ("installer checksum src/", &["src/payload-1", "src/payload-2"]),
    ("imager metal-", &["metal-4k", "metal-uki"]),
    ("imager --output src/", &["src/payload-1", "src/payload-2"]),
    ("imager --output-kind i", &["image", "iso"]),
];

#[track_caller]
fn offers_what_it_should(shell: &str) {
    let desk = Desk::new();
    for (line, expected) in CASES {
        let expected: BTreeSet<String> = expected.iter().map(|word| bare(word)).collect();
        assert_eq!(desk.offered(shell, "", line), expected, "{shell}: {line}");
    }
    // Disks by their lasting names, without their partitions, and nothing of /dev that is no disk.
    let (old, new) = (desk.path("old"), desk.path("new"));
    let setup = format!(
        "set -e; mkdir -p {old} {new}; mount --rbind /dev {old}; mount -t tmpfs none {new}; \
         for node in /dev/*; do [ $node = /dev/disk ] || ln -s {old}/${{node##*/}} {new}; done; \
         mkdir -p {new}/disk/by-id; touch {new}/disk/by-id/nvme-DISK {new}/disk/by-id/nvme-DISK-part1; \
         mount --move {new} /dev; mount -t tmpfs none /sys/block; mkdir /sys/block/sdq /sys/block/loop0",
        old = old.display(),
        new = new.display()
    );
    let disks = |line: &str| desk.offered(shell, &setup, line);
    assert_eq!(
        disks("installer status --disk /dev/disk/by-id/"),
        BTreeSet::from(["/dev/disk/by-id/nvme-DISK".to_owned()])
    );
    let some = disks("slipway install --disk /dev/");
    assert!(some.contains("/dev/sdq") && some.contains("/dev/disk/by-id/nvme-DISK"), "{shell}: {some:?}");
    assert!(!some.contains("/dev/null") && !some.contains("/dev/loop0"), "{shell}: {some:?}");
}

#[test]
fn bash_offers_what_it_should() {
    offers_what_it_should("bash");
}

#[test]
fn zsh_offers_what_it_should() {
    offers_what_it_should("zsh");
}

#[test]
fn fish_offers_what_it_should() {
    offers_what_it_should("fish");
}

/// Beside a word there is room for a few, and they end where a thought ends.
#[test]
fn descriptions_are_not_cut_inside_a_word() {
    let desk = Desk::new();
    let described = |line: &str| {
        let mut fish = program("fish");
        fish.args(["--no-config", "-c", "source $argv[1]; complete -C $argv[2]"]).arg(desk.path("fish")).arg(line);
        finished(fish.current_dir(desk.path("work")).env("HOME", desk.path("")))
    };
    for (line, says) in [
        ("installer upgrade --sour", "--source\tWhere the payload comes from\n"),
        ("installer upgrade --mirr", "--mirror\tAsk a mirror before the registry\n"),
        ("installer upgrade --source dir:src/payload-1", "dir:src/payload-1/\tWhere the payload comes from\n"),
        (
            "installer meta get --disk disk.r",
            "disk.raw\tWhole disk (/dev/sda or a link in /dev/disk/by-id) or image file\n",
        ),
    ] {
        assert_eq!(described(line), says, "{line}");
    }
    for shell in SHELLS {
        let script =
            fs::read_to_string(desk.path(if shell == "zsh" { "functions/_installer" } else { shell })).unwrap();
        assert!(!script.contains("oci:DIR"), "{shell}: a description is cut at the bracket of a tag");
    }
}

/// With the key that people press, in the middle of a word that the shell would break at `=` and `:`.
#[test]
fn a_tab_leaves_the_command_that_was_meant() {
    let desk = Desk::new();
    for shell in ["bash", "zsh"] {
        for (keys, words) in [
            ("installer upgr\t--source dir:src/pay\t2", "upgrade --source dir:src/payload-2"),
            ("slipway stage --source=dir:src/pay\t1", "stage --source=dir:src/payload-1"),
            ("installer install --platform=aw\t--force=t\t", "install --platform=aws --force=true"),
            ("installer wipe STATE EP\t--disk dis\t", "wipe STATE EPHEMERAL --disk disk.raw"),
            ("imager metal-4\t--arch=ar\t", "metal-4k --arch=arm64"),
        ] {
            assert_eq!(desk.typed(shell, "", keys).join(" "), words, "{shell}: {keys:?}");
        }
    }
}

/// Packages install one file; the other names are links to it.
#[test]
fn fish_finds_the_script_by_any_name() {
    let desk = Desk::new();
    fs::rename(desk.path("fish"), desk.path("functions/installer.fish")).unwrap();
    for (name, verb) in [("slipway", "conf"), ("imager", "metal-4")] {
        symlink("installer.fish", desk.path("functions").join(format!("{name}.fish"))).unwrap();
        // Only for programs that are there.
        symlink(installer_path(), desk.path("functions").join(name)).unwrap();
        let line = format!("{name} {verb}");
        let mut fish = program("fish");
        fish.args(["--no-config", "-c", "set -a PATH $argv[1]; set fish_complete_path $argv[1]; complete -C $argv[2]"]);
        let said = finished(fish.arg(desk.path("functions")).arg(&line).env("HOME", desk.path("")));
        assert!(said.starts_with(verb), "{line}: {said:?}");
    }
}

#[test]
fn other_shells_are_refused() {
    Outcome::of(&mut installer(["completions", "nosuch"])).exits(2).says(&["nosuch", "bash"]);
}
