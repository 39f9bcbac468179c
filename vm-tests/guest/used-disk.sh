#!/bin/bash
# Install onto a disk that was in use until a moment ago: the kernel has nodes of the old partitions, and
# pages of the disk in its cache.
# shellcheck source=vm-tests/guest/lib.sh
source "$(dirname "$0")/lib.sh"

say "use the old partitions"
[[ -b /dev/vda1 && -b /dev/vda2 && ! -e /dev/vda3 ]] || fail "the kernel does not see the two old partitions"
mkfs.xfs -q -f /dev/vda2
mkdir -p /tmp/old
mount -t xfs /dev/vda2 /tmp/old
head -c 32M /dev/urandom >/tmp/old/data
umount /tmp/old
for node in /dev/vda1 /dev/vda2; do
    dd if=$node of=/dev/null bs=1M count=64 status=none
done
# As long as this is open the kernel keeps pages of the whole disk: here of where the table, the ESP and
# slot A come to lie.
exec 7</dev/vda
dd bs=1M count=16 status=none <&7 >/dev/null
dd bs=1M skip=286 count=32 status=none <&7 >/dev/null

say "install"
refused 'GPT with 2 partitions' install
install --force --meta 0x0a=found-in-META
expect_nodes
expect_content
expect_meta 0x0a=found-in-META
expect_installed
for mib in 0 302; do
    cached=$(dd if=$disk bs=1M skip=$mib count=16 status=none | sha256sum)
    [[ $cached == "$(on_disk $mib 16 | sha256sum)" ]] || fail "$disk does not give at $mib MiB what is on the disk"
done
exec 7<&-

say "no install while somebody has a partition open: what is dirty in its cache would be written later"
exec 8</dev/vda2
refused "/dev/vda2 is open in process $$ (" install --force
exec 8<&-
install --force --meta 0x0b=installed-again
expect_nodes
expect_content
expect_meta 0x0b=installed-again
expect_installed
