//! The page that `inspect DISK` prints: facts about the disk, its picture, its problems.

use crate::prelude::*;

use core::fmt;

use super::{draw, paragraphs, text::size};
use crate::{
    boot::running::Running,
    disk::{identity::DiskKind, region::TableKind},
    report::{LayoutReport, status::next_boot},
    text::quoted,
};

impl fmt::Display for LayoutReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.disk.kind {
            DiskKind::Image => "image",
            DiskKind::Disk => "disk",
        };
        let table = match self.table {
            TableKind::Gpt => "GPT",
            TableKind::Mbr => "MBR",
        };
        let (path, sector) = (&self.disk.path, self.sector_bytes);
        let mut lines = vec![(kind, format!("{path} ({}, {sector}-byte sectors, {table})", size(self.bytes)))];
        if let Some(guid) = self.disk_guid {
            lines.push(("disk GUID", guid.to_string()));
        }
        if let Some(system) = &self.system {
            lines.push(("next boot", next_boot(&system.next_boot)));
            if system.running != Running::Unknown {
                lines.push(("running", system.running.to_string()));
            }
            lines.extend(system.bootloaders.rows());
            // The picture calls a slot good by its boot state.
            if system.is_unread() {
                let verify = format!("`installer verify --disk {}` reads them", quoted(path));
                lines.push(("not read", format!("the root file systems: {verify}")));
            }
        }
        if let Some(why) = &self.not_ours {
            lines.push(("not ours", why.clone()));
        }
        for line in paragraphs(&lines, self.style) {
            writeln!(f, "{line}")?;
        }
        write!(f, "\n{}", draw(self))?;
        let writer = self.writer.iter().map(|writer| ("writer", writer.to_string()));
        let problems = self.problems.iter().map(|problem| ("problem", problem.clone()));
        let problems: Vec<_> = writer.chain(problems).collect();
        if !problems.is_empty() {
            writeln!(f)?;
        }
        paragraphs(&problems, self.style).iter().try_for_each(|line| write!(f, "\n{line}"))
    }
}
