#!/bin/bash
# shellcheck disable=SC2154 # dracut sets these
# Into /usr/lib/dracut/modules.d/90slipway-restore/: puts back the configuration of a system that came back, before its init
# starts.

check() { return 0; }

depends() { return 0; }

# What the loader tells a unified kernel image is in a variable of the firmware.
installkernel() { instmods efivarfs; }

install() {
    inst_multiple /usr/bin/installer
    # After hooks that mount volumes.
    inst_hook pre-pivot 95 "$moddir/slipway-restore.sh"
}
