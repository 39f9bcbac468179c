//! `grow`.

use clap::Args;

use super::ChangeArgs;

#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct GrowArgs {
    #[command(flatten)]
    pub change: ChangeArgs,
}

const EXAMPLES: &str = "\
Examples:
  installer grow                            the disk of the running system, while all of it is mounted
  installer grow --dry-run                  only say what it would do
  installer grow --disk disk.raw            an image file that was made larger: its file system grows once mounted

A power cut at any moment leaves the old table or the new one. Run it again: it goes on where it stopped. Called at every
boot, as slipway-grow.service does, it costs milliseconds where there is nothing to do.";
