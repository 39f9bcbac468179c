#!/bin/bash
# Install onto the second disk as machined does. The OS runs from the first one.
# shellcheck source=vm-tests/guest/machined.sh
source "$(dirname "$0")/machined.sh"

install=(/bin/installer install --platform=metal --config=none --upgrade=false --force=true --zero=false
    --extra-kernel-arg "console=ttyS0,115200" --extra-kernel-arg quiet)

say "the disk that the host runs from"
expect 7 rootfs "${install[@]}" --disk=/dev/vda
expect_in_log '/system/state'

say "an empty disk"
expect 0 rootfs "${install[@]}" --disk=/dev/vdb
