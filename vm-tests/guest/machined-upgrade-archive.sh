#!/bin/bash
# Upgrade the OS that runs as machined does, by an image without a payload, from an archive on a medium.
# shellcheck source=vm-tests/guest/machined.sh
source "$(dirname "$0")/machined.sh"

# The container has no directory of the host but this one.
mkdir -p /.extra
mount --bind "$here/extra" /.extra

say "the image itself has nothing to install"
expect 2 rootfs "${upgrade[@]}"
expect_in_log '/usr/install/amd64'

say "an upgrade"
expect 0 rootfs "${upgrade[@]}" --source=oci-archive:/.extra/image.tar
