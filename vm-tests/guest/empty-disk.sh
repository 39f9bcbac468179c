#!/bin/bash
# Install onto an empty disk from inside a running system, and then try what must be refused.
# shellcheck source=vm-tests/guest/lib.sh
source "$(dirname "$0")/lib.sh"

say "install"
install --meta 0x0a=found-in-META
expect_nodes
expect_content
expect_meta 0x0a=found-in-META
expect_installed

say "refusals"
refused 'not empty: it holds a GPT with 7 partitions' install
refused 'partition 1 of /dev/vda' "$installer" install --disk /dev/vda1 --source "dir:$here/payload" --force
mkdir -p /tmp/mounted
mount -t xfs /dev/vda6 /tmp/mounted
refused '/tmp/mounted' install --force
umount /tmp/mounted
expect_installed
