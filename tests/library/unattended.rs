//! What an unattended installation does to a machine with up to five disks. The laws go by what the disks are, the rule by
//! what can be seen of them: a disk that cannot be read, or has lost its boot state, may be any.

use proptest::prelude::*;
use slipway_core::{
    boot::{env::BootEnv, running::Running},
    config::{
        DiskChoice,
        unattended::{ExistingInstallation, Instructions, Then},
    },
    media::medium_id::MediumId,
    plan::{self, Action, DiskHolds, LeftAlone},
    units::SectorSize,
};
use slipway_test_support::system::installed;
use uuid::Uuid;

const ANOTHER: MediumId = MediumId(0xb2);

/// The kind of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Truth {
    Empty,
    LiveMedium,
    Data,
    Talos,
    /// By this live system or another one. Disks with the same number have the same GUID.
    Installed {
        by_us: bool,
        guid: u128,
    },
}

/// The visible state of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sight {
    All,
    /// Both copies of boot.env are lost.
    NoBootState,
    /// They were, and were made anew.
    NewBootState,
    /// It cannot be read, is locked, has vanished.
    Nothing,
}

type Disk = (Truth, Sight);

fn any_disk() -> impl Strategy<Value = Disk> {
    let one = |by_us| (0u128..4).prop_map(move |guid| Truth::Installed { by_us, guid });
    let truth = prop_oneof![
        2 => Just(Truth::Empty),
        1 => Just(Truth::LiveMedium),
        2 => Just(Truth::Data),
        1 => Just(Truth::Talos),
        1 => one(true),
        3 => one(false),
    ];
    let sight = prop_oneof![
        6 => Just(Sight::All),
        1 => Just(Sight::NoBootState),
        1 => Just(Sight::NewBootState),
        1 => Just(Sight::Nothing),
    ];
    (truth, sight).prop_map(|(truth, sight)| match (truth, sight) {
        // Only an installation has a boot state.
        (Truth::Installed { .. }, sight) | (_, sight @ (Sight::All | Sight::Nothing)) => (truth, sight),
        _ => (truth, Sight::All),
    })
}

#[derive(Clone, Debug)]
struct Machine {
    target: Disk,
    others: Vec<Disk>,
    existing: ExistingInstallation,
    halt: bool,
    us: Option<MediumId>,
}

prop_compose! {
    fn any_machine()(
        target in any_disk(),
        others in prop::collection::vec(any_disk(), 0..5),
        existing in prop_oneof![
            Just(ExistingInstallation::Refuse),
            Just(ExistingInstallation::Preserve),
            Just(ExistingInstallation::Overwrite),
        ],
        halt: bool,
        us in prop_oneof![1 => Just(None), 3 => Just(Some(MediumId(0xa1)))],
    ) -> Machine {
        Machine { target, others, existing, halt, us }
    }
}

impl Machine {
    fn sees(&self, (truth, sight): Disk) -> DiskHolds {
        match (truth, sight) {
            (_, Sight::Nothing) => DiskHolds::Unknown("Input/output error".to_owned()),
            (Truth::Empty, _) => DiskHolds::Nothing,
            (Truth::LiveMedium, _) => DiskHolds::Medium,
            (Truth::Data, _) => DiskHolds::Something("an ext4 file system".to_owned()),
            (Truth::Talos, _) => DiskHolds::Talos,
            (Truth::Installed { by_us, guid }, sight) => {
                let mut system = installed(SectorSize::S512);
                (system.running, system.gpt.disk_guid) = (Running::Unknown, Uuid::from_u128(guid));
                // A live system without a name leaves none.
                let medium = if by_us { self.us } else { Some(ANOTHER) };
                let env = match sight {
                    Sight::NoBootState => None,
                    Sight::NewBootState => Some(BootEnv { rebuilt: true, medium: None, ..BootEnv::installed(0) }),
                    Sight::All | Sight::Nothing => Some(BootEnv { medium, ..BootEnv::installed(0) }),
                };
                system.env_copies = [env.clone(), env.clone()];
                system.env = env;
                DiskHolds::System(Box::new(system))
            }
        }
    }

    fn decides(&self) -> Result<Action, LeftAlone> {
        let instructions = Instructions {
            by: "the test",
            disk: DiskChoice::Path("/dev/vda".to_owned()),
            existing: self.existing,
            then: Then::Reboot,
            halt_if_installed: self.halt,
            medium: self.us,
        };
        let others = self.others.iter().enumerate().map(|(n, disk)| (format!("/dev/vd{n}"), self.sees(*disk)));
        plan::unattended(&instructions, &self.sees(self.target), &others.collect::<Vec<_>>())
    }

    /// Forbids an installation beside another, unless something is said about those that there are.
    fn halts(&self) -> bool {
        self.halt && self.existing == ExistingInstallation::Refuse
    }

    /// All that matters of every other disk is known.
    fn no_doubt(&self) -> bool {
        self.others.iter().all(|(truth, sight)| {
            *sight == Sight::All && (self.us.is_some() || !matches!(truth, Truth::Installed { .. }))
        })
    }
}

fn ours((truth, _): &Disk) -> bool {
    matches!(truth, Truth::Installed { by_us: true, .. })
}

fn holds_an_installation((truth, _): &Disk) -> bool {
    matches!(truth, Truth::Installed { .. } | Truth::Talos)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever can be seen of it: what this live system has made is never made a second time over something else.
    #[test]
    fn never_on_another_disk_than_was_meant(machine in any_machine()) {
        let action = machine.decides();
        let overwrites = matches!(action, Ok(Action::Install { force: true, .. } | Action::Upgrade));
        let writes = overwrites || matches!(action, Ok(Action::Install { .. }));
        let Machine { target, others, existing, .. } = &machine;
        prop_assert!(!overwrites || !others.iter().any(ours), "installed elsewhere already: {action:?}");
        prop_assert!(!ours(target) || !matches!(action, Ok(Action::Install { .. })), "its own work: {action:?}");
        prop_assert!(!writes || !machine.halts() || !others.iter().any(holds_an_installation), "{action:?}");
        let refuses_to_touch = target.1 == Sight::Nothing || target.0 == Truth::LiveMedium;
        prop_assert!(!writes || !refuses_to_touch, "{action:?}");
        // What is not empty is touched on a word only, and only as the word says.
        match existing {
            ExistingInstallation::Refuse => prop_assert!(!overwrites, "{action:?}"),
            ExistingInstallation::Preserve => {
                prop_assert!(!matches!(action, Ok(Action::Install { force: true, .. })), "{action:?}");
            }
            ExistingInstallation::Overwrite => prop_assert!(!matches!(action, Ok(Action::Upgrade)), "{action:?}"),
        }
        if let Ok(Action::Install { force, .. }) = &action {
            prop_assert_eq!(*force, target.0 != Truth::Empty);
        }
        if action == Ok(Action::Upgrade) {
            let Truth::Installed { guid, .. } = target.0 else { panic!("no installation is upgraded") };
            let clone = |(truth, _): &Disk| matches!(truth, Truth::Installed { guid: other, .. } if *other == guid);
            prop_assert!(!others.iter().any(clone), "which of the two boots?");
        }
    }

    /// Doubt about one disk never opens the way to another. (On an empty one nothing is lost.)
    #[test]
    fn doubt_overwrites_nothing(machine in any_machine()) {
        let action = machine.decides();
        match &action {
            Ok(Action::Install { force: true, .. } | Action::Upgrade) => prop_assert!(machine.no_doubt(), "{action:?}"),
            Ok(Action::Install { force: false, despite }) => {
                prop_assert_eq!(despite.is_empty(), machine.no_doubt(), "it is said: {:?}", action);
                let blind = machine.others.iter().any(|(_, sight)| *sight == Sight::Nothing);
                prop_assert!(!machine.halts() || !blind, "{action:?}");
            }
            Ok(Action::Done { .. }) | Err(_) => {}
        }
    }

    /// Where no doubt is left, what is asked for is done: refusing everything is no way out.
    #[test]
    fn what_is_asked_for_is_done_where_no_doubt_is(machine in any_machine()) {
        let Machine { target, others, existing, us, .. } = &machine;
        let seen_and_ours = |disk: &Disk| us.is_some() && ours(disk) && disk.1 == Sight::All;
        let action = machine.decides();
        if seen_and_ours(target) || others.iter().any(seen_and_ours) {
            prop_assert!(matches!(action, Ok(Action::Done { .. })), "{action:?}");
            return Ok(());
        }
        let halted = machine.halts() && others.iter().any(|d| holds_an_installation(d) || d.1 == Sight::Nothing);
        if *target == (Truth::Empty, Sight::All) {
            prop_assert_eq!(matches!(action, Ok(Action::Install { force: false, .. })), !halted, "{:?}", action);
            return Ok(());
        }
        if halted || !machine.no_doubt() || target.1 != Sight::All {
            return Ok(());
        }
        let clone = |guid| move |(truth, _): &Disk| matches!(truth, Truth::Installed { guid: other, .. } if *other == guid);
        let expected = match (target.0, existing) {
            (Truth::Data | Truth::Talos, ExistingInstallation::Overwrite) => Some(true),
            (Truth::Installed { .. }, ExistingInstallation::Overwrite) => us.map(|_| true),
            (Truth::Installed { guid, .. }, ExistingInstallation::Preserve) if !others.iter().any(clone(guid)) => Some(false),
            _ => None,
        };
        match expected {
            Some(true) => prop_assert_eq!(action, Ok(Action::Install { force: true, despite: vec![] })),
            Some(false) => prop_assert_eq!(action, Ok(Action::Upgrade)),
            None => prop_assert!(action.is_err(), "{action:?}"),
        }
    }

    /// The order in which the kernel lists them means nothing.
    #[test]
    fn the_order_of_disks_decides_nothing(machine in any_machine()) {
        let kind = |action: Result<Action, LeftAlone>| action.map(|action| match action {
            Action::Install { force, .. } => format!("install {force}"),
            Action::Upgrade => "upgrade".to_owned(),
            Action::Done { .. } => "done".to_owned(),
        }).map_err(|_| "refused");
        let mut turned = machine.clone();
        turned.others.reverse();
        prop_assert_eq!(kind(machine.decides()), kind(turned.decides()));
    }
}
