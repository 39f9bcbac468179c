//! Decides whether etcd keeps its quorum while, or after, one member goes.

use core::fmt;

use serde::{Deserialize, Serialize};

/// The members' reports, taken at about the same time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cluster {
    /// All members that the member list names, those that do not answer among them.
    pub members: Vec<Member>,
    /// Alarms that are raised, such as `NOSPACE`.
    pub alarms: Vec<String>,
}

/// One member.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Its identifier.
    pub id: u64,
    /// Its name; empty if it has not started yet.
    pub name: String,
    /// It does not vote yet.
    pub learner: bool,
    /// It is on the same host as this node's member, and goes with it.
    pub beside: bool,
    /// The member that answers at its client URLs in its place, where they lead to another one.
    pub foreign: Option<u64>,
    /// Its answer; `None` without one.
    pub says: Option<Answer>,
}

impl Member {
    /// How people find it, and why it does not count if that is not its own fault.
    fn called(&self) -> String {
        let name = if self.name.is_empty() { format!("{:x} (not started)", self.id) } else { self.name.clone() };
        match self.foreign {
            _ if self.beside => format!("{name} (on this node, too)"),
            Some(other) => format!("{name} (the member {other:x} answers at its client URLs)"),
            None => name,
        }
    }
}

/// A member's answer to a status request, and to a linearizable read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// The leader as it sees it; 0 for none.
    pub leader: u64,
    /// The raft term.
    pub term: u64,
    /// The highest index that it has applied, asked for some seconds after the leader's.
    pub applied: u64,
    /// The faults that it reports.
    pub errors: Vec<String>,
    /// Bytes of its database.
    pub db_bytes: u64,
    /// Bytes that its database may have; 0 if it does not say.
    pub quota_bytes: u64,
    /// The version of its program.
    pub version: String,
    /// The version of its data; empty before etcd 3.6, which does not say it.
    pub storage: String,
    /// The version to which it says the cluster is being downgraded; empty for none.
    pub downgrade: String,
}

/// The way in which this member goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Going {
    /// For one reboot: it stays a voter that does not answer.
    Down,
    /// For good: one voter less.
    Away,
}

/// Why a member is not well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotWell {
    /// An alarm is raised, which etcd has in the answer of each member. This one takes part all the same, and its data is not
    /// what is corrupt.
    Alarm {
        /// Which.
        name: String,
        /// This member has raised it.
        is_own: bool,
    },
    /// It does not take part, or not yet. Has the faults that it reports.
    Itself(Vec<String>),
}

impl NotWell {
    /// True if that is no reason to give a new system up. The alarm of another member is none. Nor is one of its own where
    /// the operation began in spite of alarms: it may have been there before.
    pub const fn is_no_fault(&self, began_in_spite: bool) -> bool {
        matches!(self, Self::Alarm { is_own, .. } if began_in_spite || !*is_own)
    }
}

/// Why this member may not go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Blocked {
    /// This node's member is not in the list.
    NotAMember,
    /// A learner is being taken in.
    Learner(String),
    /// An alarm is raised.
    Alarm(String),
    /// A database is nearly full.
    NearlyFull { name: String, db_bytes: u64, quota_bytes: u64 },
    /// It is the only member that votes, and its data would go with it.
    OnlyMember,
    /// Not enough healthy voters would be left.
    Quorum { voters: usize, healthy_left: usize, needed: usize, sick: Vec<String> },
}

impl fmt::Display for Blocked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAMember => write!(f, "this node's member is not in etcd's member list"),
            Self::Learner(name) => write!(f, "etcd's member {name} is a learner: wait until it votes, or remove it"),
            Self::Alarm(alarm) => write!(f, "etcd has the alarm {alarm}: mend it, then disarm it"),
            Self::NearlyFull { name, db_bytes, quota_bytes } => {
                write!(f, "the database of etcd's member {name} has {db_bytes} of {quota_bytes} bytes: defragment it")
            }
            Self::OnlyMember => write!(
                f,
                "this is etcd's only member that votes, and its data would go with it: keep EPHEMERAL, without --discard or \
                 spec.discardEphemeral"
            ),
            Self::Quorum { voters, healthy_left, needed, sick } => {
                write!(f, "etcd needs {needed} healthy voters of {voters}, and {healthy_left} would be left")?;
                if sick.is_empty() {
                    // Also with every member well: there are too few of them.
                    return write!(
                        f,
                        "; so few members spare none: --allow-outage, or spec.allowControlPlaneOutage of a NodePool, goes on, \
                         and etcd is down meanwhile"
                    );
                }
                write!(f, "; not healthy: {}", sick.join(", "))
            }
        }
    }
}

impl Cluster {
    /// The leader, its term and the index it has applied, if a majority of the voters agrees on leader and term.
    fn leader(&self) -> Option<(u64, u64, u64)> {
        let voters = self.voters().count();
        self.voters().find_map(|member| {
            let says = member.says.as_ref().filter(|says| says.leader == member.id)?;
            let agree = self.voters().filter_map(|other| other.says.as_ref());
            let agree = agree.filter(|other| (other.leader, other.term) == (says.leader, says.term)).count();
            (agree > voters / 2).then_some((member.id, says.term, says.applied))
        })
    }

    fn voters(&self) -> impl Iterator<Item = &Member> {
        self.members.iter().filter(|member| !member.learner)
    }

    /// True if a voter answers, sees the leader that a majority sees, and has applied what `since` says.
    fn follows(&self, member: &Member, since: u64) -> bool {
        let Some((leader, term, _)) = self.leader() else { return false };
        let says = member.says.as_ref();
        says.is_some_and(|says| (says.leader, says.term) == (leader, term) && says.applied >= since)
    }

    /// The same, and it reports no fault.
    fn is_healthy(&self, member: &Member, since: u64) -> bool {
        self.follows(member, since) && member.says.as_ref().is_some_and(|says| says.errors.is_empty())
    }

    /// A member in whose place another one answers: what it says itself is unknown.
    pub fn foreign(&self) -> Option<String> {
        self.members.iter().find(|member| member.foreign.is_some()).map(Member::called)
    }

    /// True if the member with this identifier votes and is healthy.
    pub fn is_well(&self, id: u64, since: u64) -> bool {
        self.voters().any(|member| member.id == id && self.is_healthy(member, since))
    }

    /// Why the member with this identifier is not well; `None` if it is.
    pub fn not_well(&self, id: u64, since: u64) -> Option<NotWell> {
        let member = self.voters().find(|member| member.id == id);
        if member.is_some_and(|member| self.is_healthy(member, since)) {
            return None;
        }
        let errors = member.and_then(|member| member.says.as_ref()).map(|says| says.errors.clone()).unwrap_or_default();
        // Which member has raised an alarm, etcd says in the answer of each. Whose data is corrupt, that one is ill.
        let is_own = |error: &String| error.contains(&format!("memberID:{id} "));
        let is_alarm = |error: &String| error.contains("alarm:") && !(error.contains("alarm:CORRUPT") && is_own(error));
        // Without errors it is not that which makes it unwell.
        let is_alarm_alone = !errors.is_empty() && errors.iter().all(is_alarm);
        if is_alarm_alone && member.is_some_and(|member| self.follows(member, since)) {
            let name = self.alarms.first().or(errors.first()).map(|alarm| alarm.trim().to_owned());
            return name.map(|name| NotWell::Alarm { name, is_own: errors.iter().any(is_own) });
        }
        Some(NotWell::Itself(errors))
    }

    /// The best member to lead when `me` goes: healthy, and the furthest. `None` if `me` does not lead.
    pub fn successor(&self, me: u64, since: u64) -> Option<u64> {
        self.leader().filter(|(leader, ..)| *leader == me)?;
        let others = self.voters().filter(|member| member.id != me && !member.beside);
        let others = others.filter(|member| self.is_healthy(member, since));
        let applied = |member: &Member| member.says.as_ref().map_or(0, |says| says.applied);
        others.max_by_key(|member| (applied(member), u64::MAX - member.id)).map(|member| member.id)
    }

    /// Checks whether the data of etcd stays when `me` goes. No person's word about an outage is one about that.
    pub fn keeps_data(&self, me: u64, going: Going) -> Result<(), Blocked> {
        let is_only = self.voters().all(|member| member.id == me);
        if going == Going::Away && is_only { Err(Blocked::OnlyMember) } else { Ok(()) }
    }

    /// Checks whether `me` may go. `since` is the index that the leader had applied when the look began.
    pub fn may_go(&self, me: u64, since: u64, going: Going) -> Result<(), Blocked> {
        if !self.members.iter().any(|member| member.id == me) {
            return Err(Blocked::NotAMember);
        }
        if let Some(learner) = self.members.iter().find(|member| member.learner) {
            return Err(Blocked::Learner(learner.called()));
        }
        if let Some(alarm) = self.alarms.first() {
            return Err(Blocked::Alarm(alarm.clone()));
        }
        for member in self.voters() {
            let Some(says) = &member.says else { continue };
            if says.quota_bytes > 0 && u128::from(says.db_bytes) * 5 >= u128::from(says.quota_bytes) * 4 {
                let (db_bytes, quota_bytes) = (says.db_bytes, says.quota_bytes);
                return Err(Blocked::NearlyFull { name: member.called(), db_bytes, quota_bytes });
            }
        }
        self.keeps_data(me, going)?;
        let voters = self.voters().count();
        let stays = |member: &Member| !member.beside && self.is_healthy(member, since);
        let others = || self.voters().filter(|member| member.id != me);
        let healthy_left = others().filter(|member| stays(member)).count();
        let after = match going {
            Going::Down => voters,
            Going::Away => voters - 1,
        };
        let needed = after / 2 + 1;
        if healthy_left >= needed {
            return Ok(());
        }
        let sick = others().filter(|member| !stays(member)).map(Member::called).collect();
        Err(Blocked::Quorum { voters: after, healthy_left, needed, sick })
    }
}
