#!/bin/bash
# Upgrade the OS that runs as machined does, with the payload that is in the image.
# shellcheck source=vm-tests/guest/machined.sh
source "$(dirname "$0")/machined.sh"

say "an ESP that the host has mounted"
mkdir -p /run/esp
mount -t vfat -o ro /dev/vda1 /run/esp
expect 7 rootfs "${upgrade[@]}"
expect_in_log '/run/esp'
umount /run/esp

say "an upgrade"
expect 0 rootfs "${upgrade[@]}"
