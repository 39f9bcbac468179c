//! The order of unmounting, for any tree of mounts.

use std::{collections::BTreeSet, path::Path};

use proptest::{collection::vec, prelude::*, sample::select};
use slipwayd::machine::mounts::{Dev, Mount, Never, to_unmount};

const VOLUME: Dev = Dev { major: 253, minor: 7 };
const CRYPT: Dev = Dev { major: 254, minor: 0 };
const KEPT: Dev = Dev { major: 253, minor: 6 };
const OTHER: Dev = Dev { major: 0, minor: 31 };

/// A mount as a test has it.
#[derive(Clone, Debug)]
struct Place {
    parent: usize,
    point: String,
    dev: Dev,
    /// It is an overlay whose upper directory lies on this one.
    over: Option<usize>,
}

/// The path in the initramfs, before it became the root.
fn before(path: &str) -> String {
    format!("/root{path}")
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\134").replace(' ', "\\040").replace('\t', "\\011").replace('\n', "\\012")
}

/// As the kernel writes it.
fn mountinfo(places: &[Place]) -> String {
    let line = |(at, place): (usize, &Place)| {
        let Dev { major, minor } = place.dev;
        let file_system = match place.over {
            Some(over) => {
                let upper = escaped(&format!("{}/files/var", before(&places[over].point)));
                format!("overlay eph rw,lowerdir=/root/var,upperdir={upper},workdir=/w")
            }
            None => "xfs /dev/vda7 rw,attr2,inode64".to_owned(),
        };
        let (id, parent, point) = (at + 20, place.parent + 20, escaped(&place.point));
        format!("{id} {parent} {major}:{minor} / {point} rw,relatime shared:1 master:2 - {file_system}\n")
    };
    places.iter().enumerate().map(line).collect()
}

/// Any tree below a root: each mount inside of an earlier one, under a name that nothing else has.
fn a_tree() -> impl Strategy<Value = Vec<Place>> {
    let devs = select(&[OTHER, OTHER, OTHER, VOLUME, CRYPT, KEPT][..]);
    let names = select(&["m", "a b", "tab\there", "back\\slash", "new\nline", "\\040"][..]);
    vec((any::<prop::sample::Index>(), devs, names, any::<prop::sample::Index>(), 0..4), 0..20).prop_map(|all| {
        let mut places = vec![Place { parent: 0, point: "/".to_owned(), dev: OTHER, over: None }];
        for (parent, dev, name, over, kind) in all {
            let at = places.len();
            let parent = parent.index(at);
            let point = format!("{}/{name}{at}", places[parent].point.trim_end_matches('/'));
            let over = (kind == 0).then(|| over.index(at)).filter(|over| *over > 0);
            let dev = if over.is_some() { Dev { major: 0, minor: 100 + u32::try_from(at).unwrap() } } else { dev };
            places.push(Place { parent, point, dev, over });
        }
        places
    })
}

/// Whether the mount `at` has to go.
fn goes(places: &[Place], at: usize) -> bool {
    let place = &places[at];
    [VOLUME, CRYPT].contains(&place.dev)
        || place.over.is_some_and(|over| goes(places, over))
        || (at > 0 && goes(places, place.parent))
}

fn points(mounts: &[Mount]) -> Vec<&str> {
    mounts.iter().map(|mount| mount.point.to_str().unwrap()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn all_of_the_volume_goes_and_nothing_else_and_what_is_inside_goes_first(places in a_tree()) {
        let text = mountinfo(&places);
        let due: BTreeSet<&str> =
            (0..places.len()).filter(|at| goes(&places, *at)).map(|at| places[at].point.as_str()).collect();
        // Nothing is kept, for now.
        let order = to_unmount(&text, &[VOLUME, CRYPT], &[]).unwrap();
        let order = points(&order);
        prop_assert_eq!(order.iter().copied().collect::<BTreeSet<_>>(), due);
        for (first, point) in order.iter().enumerate() {
            let inside = order[..first].iter().all(|before| !Path::new(point).starts_with(before));
            prop_assert!(inside, "{} comes after what it is inside of: {:?}", point, order);
        }
    }

    #[test]
    fn nothing_of_state_is_ever_unmounted(places in a_tree()) {
        // A mount on a path inside of STATE counts as STATE: rather too much than too little.
        let is_inside = |at: usize| {
            let up = |at: &usize| (*at > 0).then(|| places[*at].parent);
            std::iter::successors(Some(at), up).any(|at| places[at].dev == KEPT)
        };
        let is_of_state = |place: &Place| place.dev == KEPT || place.over.is_some_and(is_inside);
        let in_the_way = (0..places.len()).filter(|at| goes(&places, *at)).any(|at| is_of_state(&places[at]));
        let order = to_unmount(&mountinfo(&places), &[VOLUME, CRYPT], &[KEPT]);
        prop_assert_eq!(matches!(order, Err(Never::Kept(_))), in_the_way, "{:?}", order);
        prop_assert!(in_the_way || order.is_ok(), "{:?}", order);
    }
}

/// A node of the Debian example, with a pod that has ended and left its mounts behind.
const NODE: &str = "\
22 1 0:22 / / rw,relatime shared:1 - overlay overlay rw,lowerdir=/run/live/rootfs/filesystem.squashfs/,upperdir=/cow/rw,workdir=/cow/work
23 22 253:6 / /system/state rw,relatime shared:2 - xfs /dev/vda6 rw,attr2,inode64
24 22 253:7 / /system/ephemeral rw,relatime shared:3 - xfs /dev/vda7 rw,attr2,inode64
25 22 0:30 / /var rw,relatime shared:4 - overlay ephemeral rw,lowerdir=/root/var,upperdir=/root/system/ephemeral/files/var,workdir=/root/system/ephemeral/work/var
26 22 0:31 / /etc/ssh rw,relatime shared:5 - overlay state rw,lowerdir=/root/etc/ssh,upperdir=/root/system/state/files/etc/ssh,workdir=/root/system/state/work/etc/ssh
27 22 0:5 / /dev rw,nosuid shared:6 - devtmpfs udev rw,size=1k
40 25 0:40 / /var/lib/kubelet/pods/1/volumes/token rw,relatime shared:7 - tmpfs tmpfs rw,size=1k
41 25 253:7 /files/var/lib/data /var/lib/kubelet/pods/1/volume-subpaths/data/0 rw,relatime shared:3 - xfs /dev/vda7 rw,attr2
42 41 253:7 /files/var/lib/data /var/lib/kubelet/pods/1/volume-subpaths/data/0 rw,relatime shared:3 - xfs /dev/vda7 rw,attr2
";

#[test]
fn a_node() {
    let order = to_unmount(NODE, &[VOLUME], &[KEPT]).unwrap();
    let pod = "/var/lib/kubelet/pods/1";
    let [subpath, token] = ["volume-subpaths/data/0", "volumes/token"].map(|name| format!("{pod}/{name}"));
    // One is on top of the other in the same place.
    assert_eq!(points(&order), [subpath.as_str(), &subpath, &token, "/var", "/system/ephemeral"]);
    assert_eq!(points(&to_unmount(NODE, &[Dev { major: 9, minor: 9 }], &[KEPT]).unwrap()), [""; 0]);
}

#[test]
fn what_can_never_be_unmounted_is_said() {
    let root = Dev { major: 0, minor: 22 };
    assert_eq!(to_unmount(NODE, &[root], &[]), Err(Never::Root));
    let of_state = Dev { major: 0, minor: 31 };
    assert_eq!(to_unmount(NODE, &[of_state], &[KEPT]), Err(Never::Kept("/etc/ssh".into())));
    let inside = format!("{NODE}43 25 253:6 /x /var/lib/x rw - xfs /dev/vda6 rw\n");
    let never = to_unmount(&inside, &[VOLUME], &[KEPT]).unwrap_err();
    assert_eq!(never, Never::Kept("/var/lib/x".into()));
    assert!(never.to_string().contains("/var/lib/x is of STATE"), "{never}");
    for line in ["nonsense", "1 2 3:4 / /x rw", "1 2 3 / /x rw - xfs a rw", "1 2 3:4 / /x rw - xfs"] {
        assert_eq!(to_unmount(line, &[], &[]), Err(Never::Unknown(line.to_owned())));
    }
}
