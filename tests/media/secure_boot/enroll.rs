//! `installer enroll`, with a firmware that is played. vm-tests/enrolment.rs has a real one.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    fs, io,
    time::Duration,
};

use slipway::{
    device::{EfiVariables, OptionRom},
    error::Failure,
    ops::enroll::{self, EnrollRequest, Machine},
    report_failure,
};
use slipway_core::{
    digest::Sha256,
    efi::{
        auth::Auth,
        enroll_mode::EnrollMode,
        option_rom::{Driver, drivers},
        pe::Pe,
        signature_list::{certificate_list, digest_list},
        variable::Variable,
    },
    report::EnrollReport,
};
use slipway_test_support::fixtures::Silent;

use super::*;

/// As far as an enrolment sees it.
#[derive(Default)]
struct Firmware {
    held: RefCell<BTreeMap<Variable, Vec<u8>>>,
    has_platform_key: Cell<bool>,
    /// It does not take this one.
    refuses: Cell<Option<Variable>>,
    /// It takes this one, and holds something else.
    mangles: Cell<Option<Variable>>,
    taken: RefCell<Vec<Variable>>,
}

impl EfiVariables for Firmware {
    fn read(&self, variable: Variable) -> io::Result<Option<Vec<u8>>> {
        Ok(self.held.borrow().get(&variable).cloned())
    }

    fn flag(&self, name: &str) -> io::Result<Option<bool>> {
        Ok(Some(name == "SetupMode" && !self.has_platform_key.get()))
    }

    fn change(&self, variable: Variable, auth: &[u8]) -> io::Result<()> {
        if self.refuses.get() == Some(variable) {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let mut content = Auth::parse(variable, auth).map_err(io::Error::other)?.content;
        if self.mangles.get() == Some(variable) {
            content.pop();
        }
        self.held.borrow_mut().insert(variable, content);
        self.taken.borrow_mut().push(variable);
        self.has_platform_key.set(self.has_platform_key.get() || variable == Variable::Pk);
        Ok(())
    }
}

/// Keys of ours, a program that they have signed, and a firmware.
struct Bench {
    world: World,
    firmware: Firmware,
    request: EnrollRequest,
    roms: Vec<Vec<u8>>,
    is_virtual: Option<bool>,
}

impl Bench {
    fn new() -> Self {
        let world = world();
        let key = Key::rsa(&world, "ours");
        let (keys, program) = (world.path("keys"), world.path("signed.efi"));
        Outcome::of(installer(["keys", "--progress=none"]).arg(&keys).args(key.args())).succeeds();
        uki(&world, &program, &key, &[]);
        let request = EnrollRequest {
            dir: keys,
            mode: EnrollMode::Manual,
            disk: None,
            lock_timeout: Duration::ZERO,
            starts: vec![program],
            dry_run: false,
            plan_hash: None,
        };
        Bench { world, firmware: Firmware::default(), request, roms: vec![], is_virtual: Some(false) }
    }

    fn run(&self, request: &EnrollRequest) -> Result<EnrollReport, Failure> {
        let rom = |content: &Vec<u8>| OptionRom { device: "0000:00:03.0".to_owned(), content: Ok(content.clone()) };
        let option_roms = || Ok(self.roms.iter().map(rom).collect());
        let machine = Machine { variables: &self.firmware, is_virtual: self.is_virtual, option_roms: &option_roms };
        enroll::run(request, &machine, &mut Silent)
    }

    fn mode(&self, mode: EnrollMode) -> Result<EnrollReport, Failure> {
        self.run(&EnrollRequest { mode, ..self.request.clone() })
    }

    /// Nothing is written, and it says why.
    fn refuses(&self, request: &EnrollRequest, id: &str, words: &str) {
        let failure = self.run(request).unwrap_err();
        let report = report_failure::report(&failure, Some("enroll"));
        assert_eq!(report.id, id, "{failure}");
        assert!(report.message.contains(words), "{failure}\n(wanted {words:?})");
        assert_eq!(report.disk_state.as_deref(), Some("nothing was written"));
        assert_eq!(*self.firmware.taken.borrow(), [], "{failure}");
    }

    /// The key and certificate that have signed.
    fn key(&self) -> Key {
        Key { key: self.world.path("ours.key"), certificate: self.world.path("ours.pem") }
    }

    fn certificate(&self) -> Vec<u8> {
        let args = ["x509", "-outform", "DER", "-in"];
        slipway_test_support::world::finished_bytes(program("openssl").args(args).arg(&self.key().certificate))
    }
}

const ALL: [Variable; 3] = [Variable::Db, Variable::Kek, Variable::Pk];

#[test]
fn keys_are_written_in_their_order_and_one_time() {
    let bench = Bench::new();
    let dry = bench.run(&EnrollRequest { dry_run: true, ..bench.request.clone() }).unwrap();
    assert!(!dry.changed && dry.setup_mode && bench.firmware.taken.borrow().is_empty());
    let text = dry.to_string();
    assert!(text.contains("   3. write      PK: 1 certificate, ") && text.contains("   <- commit point\n"), "{text}");
    assert!(text.ends_with("dry run: nothing was written"), "{text}");

    let other = EnrollRequest { plan_hash: Some(Sha256::of(b"")), ..bench.request.clone() };
    bench.refuses(&other, "plan-changed", "is not what it was when the plan was made");
    let report = bench.run(&EnrollRequest { plan_hash: Some(dry.plan_hash), ..bench.request.clone() }).unwrap();
    assert!(report.changed && !report.setup_mode);
    assert_eq!(report.plan, dry.plan);
    assert_eq!(*bench.firmware.taken.borrow(), ALL);
    let certificate = Sha256::of(&bench.certificate());
    assert!(report.plan.steps.iter().all(|step| step.certificates == [certificate]));

    let again = bench.run(&bench.request).unwrap();
    assert!(!again.changed, "{again}");
    assert!(again.to_string().starts_with("nothing to do: the firmware has these keys"), "{again}");
    assert_eq!(bench.firmware.taken.borrow().len(), 3);
}

/// Until PK is there the firmware is in setup mode, and everything can be done again.
#[test]
fn a_write_that_fails_leaves_setup_mode_and_the_next_run_ends() {
    for (refused, number) in [(Variable::Db, 1), (Variable::Kek, 2), (Variable::Pk, 3)] {
        let bench = Bench::new();
        bench.firmware.refuses.set(Some(refused));
        let failure = bench.run(&bench.request).unwrap_err();
        let report = report_failure::report(&failure, Some("enroll"));
        assert_eq!((report.exit_code, report.step.as_ref().map(|step| (step.number, step.of))), (7, Some((number, 3))));
        let state = report.disk_state.unwrap();
        assert!(state.starts_with("the firmware is in setup mode still, so it starts everything"), "{state}");
        assert_eq!(report.remedy.as_deref(), Some("run the same command again"));
        bench.firmware.refuses.set(None);
        let report = bench.run(&bench.request).unwrap();
        // What is there already is not written again.
        assert_eq!(report.plan.steps.len(), 4 - number);
        assert_eq!(*bench.firmware.taken.borrow(), ALL);
    }
    let bench = Bench::new();
    bench.firmware.mangles.set(Some(Variable::Kek));
    let failure = bench.run(&bench.request).unwrap_err();
    assert!(failure.to_string().contains("KEK, read back, is not what was written"), "{failure}");
    assert_eq!(*bench.firmware.taken.borrow(), ALL[..2]);
}

#[test]
fn modes() {
    let mut bench = Bench::new();
    for (is_virtual, words) in [(Some(false), "this is no virtual machine"), (None, "nothing says that this is a")] {
        bench.is_virtual = is_virtual;
        let report = bench.mode(EnrollMode::IfSafe).unwrap();
        assert!(!report.changed && report.to_string().contains(words), "{report}");
    }
    assert!(!bench.mode(EnrollMode::Off).unwrap().changed);
    assert_eq!(*bench.firmware.taken.borrow(), []);
    bench.is_virtual = Some(true);
    assert!(bench.mode(EnrollMode::IfSafe).unwrap().changed);

    // Keys of another owner.
    let bench = Bench { firmware: Firmware::default(), ..bench };
    bench.firmware.has_platform_key.set(true);
    assert!(!bench.mode(EnrollMode::IfSafe).unwrap().changed);
    for mode in [EnrollMode::Manual, EnrollMode::Force] {
        let request = EnrollRequest { mode, ..bench.request.clone() };
        bench.refuses(&request, "not-in-setup-mode", "in its menu, under Secure Boot, delete the platform key");
    }
}

#[test]
fn what_would_not_start_stands_in_the_way() {
    let bench = Bench::new();
    let (other, unsigned) = (bench.world.path("other.efi"), bench.world.path("unsigned.efi"));
    uki(&bench.world, &other, &Key::rsa(&bench.world, "other"), &[]);
    Outcome::of(&mut uki_command(&bench.world, &unsigned, &[])).succeeds();
    let changed = bench.world.path("changed.efi");
    let mut bytes = fs::read(&bench.request.starts[0]).unwrap();
    let at = bytes.windows(5).position(|text| text == b"quiet").unwrap();
    bytes[at] ^= 1;
    fs::write(&changed, bytes).unwrap();
    // The signature of another program, in which the digest was replaced by this one's.
    let moved = bench.world.path("moved.efi");
    let digest = |bytes: &[u8]| Pe::parse(bytes).unwrap().digest().0;
    let mut bytes = fs::read(&changed).unwrap();
    let (was, is) = (digest(&fs::read(&bench.request.starts[0]).unwrap()), digest(&bytes));
    let at = bytes.windows(32).rposition(|part| part == was).unwrap();
    bytes[at..at + 32].copy_from_slice(&is);
    fs::write(&moved, bytes).unwrap();
    for (program, words) in [
        (&moved, "no certificate in db is behind its signature"),
        (&other, "no certificate in db is behind its signature"),
        (&changed, "no certificate in db is behind its signature"),
        (&unsigned, "it is not signed"),
    ] {
        let request =
            EnrollRequest { starts: vec![bench.request.starts[0].clone(), program.clone()], ..bench.request.clone() };
        bench.refuses(&request, "would-not-start", words);
    }

    // dbx counts more than db.
    let digest = Pe::parse(&fs::read(&bench.request.starts[0]).unwrap()).unwrap().digest();
    let owner = uuid::Uuid::nil();
    for (dbx, words) in [
        (digest_list(&[digest], owner), "dbx forbids it"),
        (certificate_list(&bench.certificate(), owner), "dbx forbids what its signer has signed"),
        (vec![1], "dbx has entries that Slipway cannot read"),
    ] {
        bench.firmware.held.borrow_mut().insert(Variable::Dbx, dbx);
        bench.refuses(&bench.request, "would-not-start", words);
    }
    let report = bench.mode(EnrollMode::Force).unwrap();
    assert!(report.changed && report.plan.warnings.len() == 1, "{:?}", report.plan.warnings);
}

/// An image of a ROM with this program in it.
fn rom(program: &[u8], packed: bool) -> Vec<u8> {
    let begin = 512;
    let blocks = (begin + program.len()).div_ceil(512);
    let mut bytes = vec![0; blocks * 512];
    let count = (blocks as u16).to_le_bytes();
    bytes[..4].copy_from_slice(&[0x55, 0xaa, count[0], count[1]]);
    bytes[4..6].copy_from_slice(&[0xf1, 0x0e]);
    bytes[0xc] = packed.into();
    let begin = bytes.len() - program.len();
    bytes[0x16..0x18].copy_from_slice(&(begin as u16).to_le_bytes());
    bytes[0x18] = 0x1c;
    bytes[0x1c..0x20].copy_from_slice(b"PCIR");
    bytes[0x2c..0x2e].copy_from_slice(&count);
    bytes[0x30] = 3;
    bytes[0x31] = 0x80;
    bytes[begin..].copy_from_slice(program);
    bytes
}

#[test]
fn option_roms_that_would_not_start_stand_in_the_way() {
    let mut bench = Bench::new();
    // QEMU's network card has one with an unsigned driver of iPXE.
    let ipxe = fs::read("/usr/lib/ipxe/qemu/efi-virtio.rom").unwrap();
    assert!(matches!(&drivers(&ipxe).unwrap()[..], [Driver::Program(program)] if program.starts_with(b"MZ")));
    bench.roms = vec![ipxe];
    bench.refuses(&bench.request, "option-rom", "the option ROM of 0000:00:03.0: it ");
    let signed = fs::read(&bench.request.starts[0]).unwrap();
    let stub = fs::read(STUB).unwrap();
    for (content, words) in [
        (rom(&slipway_core::efi::pe::without_symbols(&stub).unwrap(), false), "it is not signed"),
        (rom(&signed, true), "its driver is packed, and cannot be looked at"),
        (vec![0xff; 4096], "image 1 in it is cut short, or is none"),
    ] {
        bench.roms = vec![content];
        bench.refuses(&bench.request, "option-rom", words);
    }
    bench.roms = vec![rom(&signed, false)];
    let report = bench.run(&bench.request).unwrap();
    assert!(report.changed && report.option_roms.len() == 1);
}

/// What efitools make, with a key for each: PK's owner signs KEK, and KEK's signs db.
#[test]
fn files_of_efitools_are_taken_and_what_does_not_belong_together_is_not() {
    let bench = Bench::new();
    let world = &bench.world;
    let [pk, kek] = ["pk", "kek"].map(|name| Key::rsa(world, name));
    let db = bench.key();
    let dir = world.path("efitools");
    fs::create_dir(&dir).unwrap();
    let sign = |name: &str, certificates: &[&Key], by: &Key| {
        let mut lists = Vec::new();
        for key in certificates {
            let list = world.path("one.esl");
            finished(program("cert-to-efi-sig-list").arg(&key.certificate).arg(&list));
            lists.extend(fs::read(list).unwrap());
        }
        let list = world.path("all.esl");
        fs::write(&list, lists).unwrap();
        let mut command = program("sign-efi-sig-list");
        command.arg("-k").arg(&by.key).arg("-c").arg(&by.certificate).arg(name).arg(&list);
        finished(command.arg(dir.join(format!("{name}.auth"))));
    };
    let request = EnrollRequest { dir: dir.clone(), ..bench.request.clone() };
    let good = || {
        sign("PK", &[&pk], &pk);
        sign("KEK", &[&kek], &pk);
        sign("db", &[&db], &kek);
    };
    for (name, certificates, by, words) in [
        ("PK", &[&pk][..], &kek, "PK.auth: it is not signed for PK, or by none of its own certificate"),
        ("PK", &[&pk, &kek], &pk, "PK.auth: it holds 2 signatures, and PK has one certificate"),
        ("KEK", &[&kek], &kek, "KEK.auth: it is not signed for KEK, or by none of PK"),
        ("db", &[&db], &db, "db.auth: it is not signed for db, or by none of KEK and PK"),
    ] {
        good();
        sign(name, certificates, by);
        bench.refuses(&request, "secure-boot-keys", words);
    }
    good();
    fs::copy(dir.join("KEK.auth"), dir.join("db.auth")).unwrap();
    bench.refuses(&request, "secure-boot-keys", "db.auth: it is not signed for db");
    good();
    for length in [0, 10, 39, 1000] {
        let whole = fs::read(dir.join("db.auth")).unwrap();
        fs::write(dir.join("db.auth"), &whole[..length]).unwrap();
        bench.refuses(&request, "secure-boot-keys", "db.auth: it ");
        fs::write(dir.join("db.auth"), whole).unwrap();
    }
    fs::remove_file(dir.join("db.auth")).unwrap();
    bench.refuses(&request, "secure-boot-keys", "db.auth: No such file");
    good();
    assert!(bench.run(&request).unwrap().changed);
}

/// A machine with nothing but ours, and one with Microsoft's beside it.
#[test]
fn well_known_certificates_are_there_if_wanted() {
    let bench = Bench::new();
    let dir = bench.world.path("well-known");
    let mut command = installer(["keys", "--progress=none", "--include-well-known-certs"]);
    Outcome::of(command.arg(&dir).args(bench.key().args())).succeeds();
    let report = bench.run(&EnrollRequest { dir, ..bench.request.clone() }).unwrap();
    let counts: Vec<_> = report.plan.steps.iter().map(|step| step.certificates.len()).collect();
    assert_eq!(counts, [6, 3, 1]);
}

/// A machine whose BIOS started it has no such variables, and the user has to know what is missing.
#[test]
fn without_variables_it_says_so() {
    struct None;
    impl EfiVariables for None {
        fn read(&self, _: Variable) -> io::Result<Option<Vec<u8>>> {
            Ok(Option::None)
        }
        fn flag(&self, _: &str) -> io::Result<Option<bool>> {
            Ok(Option::None)
        }
        fn change(&self, _: Variable, _: &[u8]) -> io::Result<()> {
            unreachable!("nothing is written")
        }
    }
    let bench = Bench::new();
    let machine = Machine { variables: &None, is_virtual: Some(true), option_roms: &|| Ok(vec![]) };
    let failure = enroll::run(&bench.request, &machine, &mut Silent).unwrap_err();
    let report = report_failure::report(&failure, Some("enroll"));
    assert_eq!((report.exit_code, report.id.as_str()), (4, "firmware-variables"));
    assert!(report.remedy.unwrap().starts_with("`mount -t efivarfs"));
}
