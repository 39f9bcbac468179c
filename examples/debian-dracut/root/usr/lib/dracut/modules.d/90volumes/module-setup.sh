#!/bin/bash
# dracut's part of /usr/bin/volumes.
# shellcheck disable=SC2154 # dracut sets moddir

check() { return 0; }

depends() { echo dmsquash-live; }

# FAT for the slot, XFS for the volumes, and what these load by name.
installkernel() { instmods vfat nls_ascii nls_cp437 xfs crc32c overlay; }

install() {
    inst_multiple /usr/bin/volumes cp grep mkdir mount mv readlink sleep sync tr
    inst_hook pre-pivot 50 "$moddir/mount-volumes.sh"
}
