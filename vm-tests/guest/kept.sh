#!/bin/bash
# EPHEMERAL is mounted, and holds what it held before the upgrade.
set -euo pipefail
mountpoint --quiet /var
[[ $(</var/kept) == 'it was here before' ]]
grep -q 'slipway.slot=B' /proc/cmdline
