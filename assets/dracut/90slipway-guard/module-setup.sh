#!/bin/bash
# shellcheck disable=SC2154 # dracut sets these
# Into /usr/lib/dracut/modules.d/90slipway-guard/: takes the guard of a trial into the initramfs, as a unit of its systemd.

check() { return 0; }

depends() { echo systemd; }

# What the loader tells a unified kernel image is in a variable of the firmware.
installkernel() { instmods efivarfs; }

install() {
    inst_multiple /usr/bin/installer
    inst_simple "$moddir/slipway-guard-initrd.service" "$systemdsystemunitdir/slipway-guard-initrd.service"
    $SYSTEMCTL -q --root "$initdir" add-wants sysinit.target slipway-guard-initrd.service
}
