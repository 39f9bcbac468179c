//! The running slot in a node's status.

use crate::v1::{SlotContents, StatusResponse};

impl StatusResponse {
    /// The slot that runs; `None` if the node does not say.
    pub fn running_slot(&self) -> Option<&SlotContents> {
        let disk = self.disk.as_ref()?;
        disk.slots.iter().find(|slot| slot.slot == disk.running)
    }

    /// The version of the OS that runs; `None` if the node does not say.
    pub fn os_version(&self) -> Option<&str> {
        self.running_slot()?.version.as_deref()
    }
}
