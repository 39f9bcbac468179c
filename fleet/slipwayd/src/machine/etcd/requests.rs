//! The requests about etcd from clients of the API.

use etcd_client::{AlarmAction, AlarmType};
use slipway_node_api::machine::{EtcdMember, EtcdMemberAlarm, EtcdMemberStatus};

use super::{ANSWER, Etcd, Result, within};

impl Etcd {
    /// The members of the cluster.
    pub fn list(&self) -> Result<Vec<EtcdMember>> {
        self.runtime.block_on(async {
            let list = within(ANSWER, self.connect().await?.member_list()).await?;
            let member = |member: &etcd_client::Member| EtcdMember {
                id: member.id(),
                hostname: member.name().to_owned(),
                peer_urls: member.peer_urls().to_vec(),
                client_urls: member.client_urls().to_vec(),
                is_learner: member.is_learner(),
            };
            Ok(list.members().iter().map(member).collect())
        })
    }

    /// The status of this node's member.
    pub fn status(&self) -> Result<EtcdMemberStatus> {
        let members = self.list()?;
        let me = members.into_iter().find(|member| member.hostname == self.config.name);
        let me = me.ok_or_else(|| format!("{} is no member of etcd's cluster", self.config.name))?;
        self.runtime.block_on(async {
            let status = within(ANSWER, self.connect_to(&me.client_urls).await?.status()).await?;
            Ok(EtcdMemberStatus {
                protocol_version: status.version().to_owned(),
                db_size: status.db_size(),
                db_size_in_use: status.raft_used_db_size(),
                leader: status.leader(),
                raft_index: status.raft_index(),
                raft_term: status.raft_term(),
                raft_applied_index: status.raft_applied_index(),
                errors: status.errors().to_vec(),
                is_learner: status.is_learner(),
                member_id: me.id,
                storage_version: status.storage_version().to_owned(),
            })
        })
    }

    /// The alarms of the cluster.
    pub fn alarms(&self) -> Result<Vec<EtcdMemberAlarm>> {
        self.runtime.block_on(async {
            let alarms = within(ANSWER, self.connect().await?.alarm(AlarmAction::Get, AlarmType::None, None)).await?;
            let alarm = |of: &etcd_client::AlarmMember| EtcdMemberAlarm {
                member_id: of.member_id(),
                // The numbers are etcd's own.
                alarm: of.alarm() as i32,
            };
            Ok(alarms.alarms().iter().map(alarm).collect())
        })
    }

    /// Give the leadership away, if this node's member has it. Who leads then.
    pub fn forfeit(&self) -> Result<Option<String>> {
        if !self.leads()? {
            return Ok(None);
        }
        self.hand_over()?;
        let leader = self.status()?.leader;
        let name = self.list()?.into_iter().find(|member| member.id == leader).map(|member| member.hostname);
        name.map(Some).ok_or_else(|| "the leadership was given away, and no member of the list has it".to_owned())
    }
}
