#!/bin/bash
# Install onto the second disk as machined does. The OS runs from the first one.
# shellcheck source=vm-tests/guest/machined.sh
source "$(dirname "$0")/machined.sh"

install=(/bin/installer install --platform=metal --config=none --upgrade=false --force=true --zero=false
    "${kernel_args[@]}")

say "the disk that the host runs from"
expect 7 rootfs "${install[@]}" --disk=/dev/vda
expect_in_log '/system/state'

say "a machine config with a key that nobody knows"
sed 's/ disk:/ disc:/' "$machine_config" >/run/wrong.yaml
machine_config=/run/wrong.yaml expect 2 rootfs "${install[@]}" --disk=/dev/vdb
expect_in_log 'disc'

say "an empty disk"
expect 0 rootfs "${install[@]}" --disk=/dev/vdb
