//! The arithmetic of etcd's quorum, against a second statement of it that counts votes one by one.

use proptest::{collection::vec, prelude::*};
use slipway_node::quorum::{Answer, Blocked, Cluster, Going, Member, NotWell};

/// The index that the leader had applied when the look began.
const SINCE: u64 = 100;
const QUOTA: u64 = 1_000_003;

/// The faults of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ill {
    Well,
    Silent,
    Behind,
    OtherTerm,
    OtherLeader,
    NoLeader,
    Errors,
}

impl Ill {
    const ALL: [Self; 7] =
        [Self::Well, Self::Silent, Self::Behind, Self::OtherTerm, Self::OtherLeader, Self::NoLeader, Self::Errors];
}

fn member(n: usize, leader: u64, ill: Ill, ahead: u64) -> Member {
    let answer = Answer { leader, term: 4, applied: SINCE + ahead, ..Answer::default() };
    let says = match ill {
        Ill::Well => Some(answer),
        Ill::Silent => None,
        Ill::Behind => Some(Answer { applied: SINCE - 1, ..answer }),
        Ill::OtherTerm => Some(Answer { term: 3, ..answer }),
        Ill::OtherLeader => Some(Answer { leader: leader + 1, ..answer }),
        Ill::NoLeader => Some(Answer { leader: 0, ..answer }),
        Ill::Errors => Some(Answer { errors: vec!["etcdserver: corrupt".to_owned()], ..answer }),
    };
    Member { id: n as u64 + 1, name: format!("m{n}"), says, ..Member::default() }
}

/// Voters, each with its fault and its progress, and the one that most of them follow.
fn voters() -> impl Strategy<Value = (Vec<(Ill, u64)>, usize)> {
    let one = (prop_oneof![3 => Just(Ill::Well), 2 => proptest::sample::select(&Ill::ALL[..])], 0..5_u64);
    vec(one, 1..=7).prop_flat_map(|voters| {
        let leader = 0..voters.len();
        (Just(voters), leader)
    })
}

fn cluster(voters: &[(Ill, u64)], leader: usize) -> Cluster {
    let id = leader as u64 + 1;
    let members = voters.iter().enumerate().map(|(n, (ill, ahead))| member(n, id, *ill, *ahead));
    Cluster { members: members.collect(), alarms: Vec::new() }
}

/// It takes part in what a majority of the voters does under its leader: counted, not computed.
fn takes_part(cluster: &Cluster, id: u64) -> bool {
    let answers = || cluster.members.iter().filter_map(|member| member.says.as_ref().map(|says| (member.id, says)));
    let Some((_, own)) = answers().find(|(of, _)| *of == id) else { return false };
    let leads_itself = answers().any(|(of, says)| of == own.leader && (says.leader, says.term) == (of, own.term));
    let mut votes = 0_i32;
    for member in &cluster.members {
        let follows = member.says.as_ref().is_some_and(|says| (says.leader, says.term) == (own.leader, own.term));
        votes += if follows { 1 } else { -1 };
    }
    leads_itself && votes > 0 && own.errors.is_empty() && own.applied >= SINCE
}

/// Most of the voters follow it, and it agrees.
fn leads(cluster: &Cluster, id: u64) -> bool {
    let term = cluster.members.iter().find(|member| member.id == id).and_then(|member| member.says.as_ref());
    let Some(term) = term.filter(|says| says.leader == id).map(|says| says.term) else { return false };
    let follows = |member: &&Member| member.says.as_ref().is_some_and(|says| (says.leader, says.term) == (id, term));
    cluster.members.iter().filter(follows).count() * 2 > cluster.members.len()
}

/// Let `me` go, and count the members that are left to agree: is it more than half of those that have a vote then?
fn keeps_quorum(cluster: &Cluster, me: u64, going: Going) -> bool {
    let mut votes = 0_i32;
    for member in &cluster.members {
        votes += match (member.id == me, going) {
            (true, Going::Away) => 0,
            (true, Going::Down) => -1,
            (false, _) if takes_part(cluster, member.id) => 1,
            (false, _) => -1,
        };
    }
    votes > 0
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_member_may_go_if_the_rest_can_agree((voters, leader) in voters(), me in 0..7_usize, away: bool) {
        let cluster = cluster(&voters, leader);
        let me = (me % voters.len()) as u64 + 1;
        let going = if away { Going::Away } else { Going::Down };
        let may = cluster.may_go(me, SINCE, going);
        prop_assert_eq!(may.is_ok(), keeps_quorum(&cluster, me, going), "{:?}", may);
        if let Err(Blocked::Quorum { voters: after, healthy_left, needed, sick }) = may {
            prop_assert!(healthy_left < needed && needed * 2 > after && (needed - 1) * 2 <= after);
            prop_assert_eq!(after, voters.len() - usize::from(away));
            prop_assert_eq!(sick.len() + healthy_left + 1, voters.len());
        }
    }

    #[test]
    fn who_leads_next_is_well_and_the_furthest((voters, leader) in voters(), me in 0..7_usize) {
        let cluster = cluster(&voters, leader);
        let me = (me % voters.len()) as u64 + 1;
        let applied = |id: u64| cluster.members[id as usize - 1].says.as_ref().map(|says| says.applied);
        let well: Vec<u64> =
            cluster.members.iter().map(|member| member.id).filter(|id| *id != me && takes_part(&cluster, *id)).collect();
        match cluster.successor(me, SINCE) {
            Some(next) => {
                prop_assert!(well.contains(&next));
                prop_assert!(well.iter().all(|other| applied(*other) <= applied(next)));
            }
            None => prop_assert!(well.is_empty() || !leads(&cluster, me)),
        }
    }

    #[test]
    fn learners_alarms_and_a_full_database_block((voters, leader) in voters(), of in 0..7_usize, bytes in 0..=QUOTA) {
        let plain = cluster(&voters, leader);
        let may = |cluster: &Cluster| cluster.may_go(1, SINCE, Going::Down);
        let of = of % voters.len();
        let mut learns = plain.clone();
        learns.members.push(Member { id: 99, name: "new".to_owned(), learner: true, ..Member::default() });
        prop_assert_eq!(may(&learns), Err(Blocked::Learner("new".to_owned())));
        // It is in the list, and has no vote yet.
        prop_assert_eq!(learns.may_go(99, SINCE, Going::Down), Err(Blocked::Learner("new".to_owned())));
        let alarms = Cluster { alarms: vec!["NOSPACE".to_owned()], ..plain.clone() };
        prop_assert_eq!(may(&alarms), Err(Blocked::Alarm("NOSPACE".to_owned())));
        let mut full = plain.clone();
        if let Some(says) = &mut full.members[of].says {
            (says.db_bytes, says.quota_bytes) = (bytes, QUOTA);
            // Four fifths of the quota, without a division.
            let is_full = bytes + bytes / 4 >= QUOTA && bytes * 5 >= QUOTA * 4;
            prop_assert_eq!(matches!(may(&full), Err(Blocked::NearlyFull { .. })), is_full);
        }
        prop_assert_eq!(plain.may_go(98, SINCE, Going::Away), Err(Blocked::NotAMember));
    }
}

/// etcd has an alarm in the answers of all members. It makes none of them ill that takes part, and is named.
#[test]
fn an_alarm_is_no_illness_of_each_member() {
    let error = "memberID:10276657743932975437 alarm:NOSPACE ".to_owned();
    let faults = [Ill::Well, Ill::Well, Ill::Behind, Ill::Silent, Ill::Errors];
    let mut cluster = cluster(&faults.map(|ill| (ill, 0)), 0);
    let itself = |errors: &[&String]| Some(NotWell::Itself(errors.iter().map(|error| (*error).clone()).collect()));
    let corrupt = "etcdserver: corrupt".to_owned();
    let why = |cluster: &Cluster| (1..=6).map(|id| cluster.not_well(id, SINCE)).collect::<Vec<_>>();
    assert_eq!(why(&cluster), [None, None, itself(&[]), itself(&[]), itself(&[&corrupt]), itself(&[])]);
    cluster.members.iter_mut().filter_map(|of| of.says.as_mut()).for_each(|says| says.errors.push(error.clone()));
    let alarm = |name: &str| Some(NotWell::Alarm { name: name.to_owned(), is_own: false });
    // It was disarmed in the meantime, or not.
    for (alarms, name) in [(vec![], error.trim()), (vec!["NOSPACE".to_owned()], "NOSPACE")] {
        cluster.alarms = alarms;
        let rest = [itself(&[&error]), itself(&[]), itself(&[&corrupt, &error]), itself(&[])];
        assert_eq!(why(&cluster), [[alarm(name), alarm(name)].as_slice(), &rest].concat());
        assert!(!cluster.is_well(1, SINCE));
    }
}

/// The payload is not at fault for what another member has raised, nor for what was there before.
#[test]
fn the_alarm_of_another_member_is_no_reason_to_give_a_system_up() {
    let mut cluster = cluster(&[(Ill::Well, 0), (Ill::Well, 0), (Ill::Behind, 0)], 0);
    cluster.alarms = vec!["NOSPACE".to_owned()];
    // Nor is the member 22 the member 2.
    let errors = ["memberID:2 alarm:NOSPACE ".to_owned(), "memberID:22 alarm:NOSPACE ".to_owned()];
    let goes_on = |cluster: &Cluster, in_spite: bool| {
        [1, 2, 3].map(|id| cluster.not_well(id, SINCE).is_none_or(|why| why.is_no_fault(in_spite)))
    };
    for (error, of_two) in errors.iter().zip([false, true]) {
        cluster.members.iter_mut().filter_map(|of| of.says.as_mut()).for_each(|says| says.errors = vec![error.clone()]);
        assert_eq!(goes_on(&cluster, false), [true, of_two, false], "{error}");
        assert_eq!(goes_on(&cluster, true), [true, true, false], "{error}");
    }
    // Corrupt data is a fault whatever the operation began with.
    let error = "memberID:2 alarm:CORRUPT ".to_owned();
    cluster.members.iter_mut().filter_map(|of| of.says.as_mut()).for_each(|says| says.errors.push(error.clone()));
    assert_eq!(goes_on(&cluster, true), [true, false, false]);
}

/// All members name the one whose data is corrupt: that one alone is ill.
#[test]
fn a_member_with_corrupt_data_is_ill() {
    let mut cluster = cluster(&[(Ill::Well, 0), (Ill::Well, 0), (Ill::Well, 0)], 0);
    let error = "memberID:2 alarm:CORRUPT ".to_owned();
    cluster.alarms = vec!["CORRUPT".to_owned()];
    cluster.members.iter_mut().filter_map(|of| of.says.as_mut()).for_each(|says| says.errors.push(error.clone()));
    let why = [1, 2, 3].map(|id| cluster.not_well(id, SINCE));
    let alarm = || Some(NotWell::Alarm { name: "CORRUPT".to_owned(), is_own: false });
    assert_eq!(why, [alarm(), Some(NotWell::Itself(vec![error])), alarm()]);
    // Of whom it is unknown, nobody is called ill.
    let error = "memberID:0 alarm:CORRUPT ".to_owned();
    cluster.members.iter_mut().filter_map(|of| of.says.as_mut()).for_each(|says| says.errors = vec![error.clone()]);
    assert_eq!([1, 2, 3].map(|id| cluster.not_well(id, SINCE)), [alarm(), alarm(), alarm()]);
}

/// As the design has it: what a cluster of healthy members allows.
#[test]
fn healthy_clusters() {
    let may = |n: usize, ill: &[usize], going| {
        let voters: Vec<_> = (0..n).map(|m| (if ill.contains(&m) { Ill::Silent } else { Ill::Well }, 0)).collect();
        // Member 1 asks, the last one leads.
        cluster(&voters, n - 1).may_go(1, SINCE, going).is_ok()
    };
    for (n, down, away) in
        [(1, false, false), (2, false, true), (3, true, true), (4, true, true), (5, true, true), (7, true, true)]
    {
        assert_eq!((may(n, &[], Going::Down), may(n, &[], Going::Away)), (down, away), "{n}");
    }
    // Another one is ill: only a cluster of five can lose one more. A member that is ill itself may be mended.
    assert!(!may(3, &[1], Going::Down) && may(5, &[1], Going::Down) && !may(5, &[1, 2], Going::Down));
    assert!(may(3, &[0], Going::Down) && may(3, &[0], Going::Away) && may(5, &[0, 1], Going::Down));
}

/// What goes with `me` is not left, however well it is.
#[test]
fn a_member_on_the_same_host_goes_too() {
    let mut cluster = cluster(&[(Ill::Well, 0); 5], 1);
    assert_eq!(cluster.may_go(1, SINCE, Going::Down), Ok(()));
    cluster.members[3].beside = true;
    assert_eq!(cluster.may_go(1, SINCE, Going::Down), Ok(()), "three of five are left");
    cluster.members[4].beside = true;
    let why = cluster.may_go(1, SINCE, Going::Down).unwrap_err().to_string();
    assert!(why.contains("needs 3 healthy voters of 5, and 2 would be left"), "{why}");
    assert!(why.ends_with("not healthy: m3 (on this node, too), m4 (on this node, too)"), "{why}");
    // Nor does it get the leadership.
    let mut two = self::cluster(&[(Ill::Well, 0), (Ill::Well, 9), (Ill::Well, 0)], 0);
    assert_eq!(two.successor(1, SINCE), Some(2));
    two.members[1].beside = true;
    assert_eq!(two.successor(1, SINCE), Some(3));
}

/// Who has not started has no name, and a URL may lead to another member.
#[test]
fn who_does_not_count_is_named_in_a_way_that_people_find() {
    let silent = |member: Member| {
        let mut cluster = cluster(&[(Ill::Well, 0), (Ill::Well, 0), (Ill::Silent, 0)], 1);
        cluster.members[2] = member;
        cluster.may_go(1, SINCE, Going::Down).unwrap_err().to_string()
    };
    let new = Member { id: 0xa1, ..Member::default() };
    assert!(silent(new.clone()).ends_with("not healthy: a1 (not started)"), "{}", silent(new.clone()));
    let told = "etcd's member a1 (not started) is a learner: wait until it votes, or remove it";
    assert_eq!(silent(Member { learner: true, ..new }), told);
    let dead = Member { id: 3, name: "m2".to_owned(), foreign: Some(0xb2), ..Member::default() };
    let told = "not healthy: m2 (the member b2 answers at its client URLs)";
    assert!(silent(dead.clone()).ends_with(told), "{}", silent(dead));
}

#[test]
fn what_blocks_is_said() {
    let text = Blocked::Quorum { voters: 3, healthy_left: 1, needed: 2, sick: vec!["b".to_owned()] }.to_string();
    assert_eq!(text, "etcd needs 2 healthy voters of 3, and 1 would be left; not healthy: b");
    // With one or two members the only way is to do without etcd.
    for n in [1, 2] {
        let cluster = cluster(&vec![(Ill::Well, 0); n], 0);
        let text = cluster.may_go(1, SINCE, Going::Down).unwrap_err().to_string();
        let how = "--allow-outage, or spec.allowControlPlaneOutage of a NodePool, goes on, and etcd is down meanwhile";
        assert!(text.ends_with(how) && !text.contains("not healthy"), "{text}");
        // Of one alone no outage is asked for: there is no other copy.
        let away = cluster.may_go(1, SINCE, Going::Away);
        assert_eq!(away, if n == 1 { Err(Blocked::OnlyMember) } else { Ok(()) });
        assert_eq!((cluster.keeps_data(1, Going::Away), cluster.keeps_data(1, Going::Down)), (away, Ok(())));
    }
    let text = Blocked::OnlyMember.to_string();
    assert!(text.contains("keep EPHEMERAL, without --discard") && !text.contains("allow-outage"), "{text}");
}
