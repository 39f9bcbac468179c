#!/bin/bash
# Partitions that device mapper and md hold: what they hold is not written, and the message says who. A disk that is
# itself a mapping, with partitions that are mappings too, as multipath makes them.
# On the medium are beside the rest: modules/, the kernel's; dmsetup and busybox, with libraries in lib/.
# shellcheck source=vm-tests/guest/lib.sh
source "$(dirname "$0")/lib.sh"

mapper() { LD_LIBRARY_PATH=$here/lib "$here/dmsetup" --noudevsync --noudevrules "$@"; }
in_sysfs() { cat "/sys/block/vda/vda$1/$2"; }
# Runs as a system would that was booted from slot A: as_booted VERB ARG...
as_booted() { "$installer" "$@" --disk "$disk" --progress plain </dev/null; }
# A payload that is in no slot yet: a squashfs may have zeros behind it.
another() { truncate -s +4096 /run/next/rootfs.squashfs; }
stage() { as_booted stage --source dir:/run/next; }

say "install"
install --meta 0x0a=held
guid=$("$installer" inspect "$disk" | awk '/^disk GUID/ { print $3 }')
echo "quiet slipway.slot=A slipway.disk=$guid slipway.try=0" >/run/cmdline
mount --bind /run/cmdline /proc/cmdline
cp -r "$here/payload" /run/next
rm /run/next/{SHA256SUMS,manifest.json}
for module in dm-mod md-mod raid1; do "$here/busybox" insmod "$here/modules/$module.ko"; done

say "the slot, by device mapper"
another
mapper create held --table "0 2048 linear ${disk}4 0"
refused '/dev/vda4 is held by dm-0 (held)' stage
refused '/dev/vda4 is held by dm-0 (held)' install --force
say "other partitions may be written meanwhile"
as_booted wipe STATE
say "a volume, and what is mounted on that"
mapper remove held
mapper create held --table "0 $(in_sysfs 7 size) linear ${disk}7 0"
mkdir -p /run/mnt
mount -t xfs /dev/dm-0 /run/mnt
refused '/dev/dm-0 is mounted on /run/mnt' as_booted wipe EPHEMERAL
say "neither an upgrade nor the way back writes there"
as_booted upgrade --source dir:/run/next
as_booted rollback
umount /run/mnt
mapper remove held

say "a range of the disk, across its partitions"
another
mapper create held --table "0 2048 linear $disk $(in_sysfs 4 start)"
refused '/dev/vda is held by dm-0 (held)' stage
refused '/dev/vda is held by dm-0 (held)' install --force
mapper remove held

say "a volume, by md"
echo md_held >/sys/module/md_mod/parameters/new_array
echo none >/sys/block/md_held/md/metadata_version
echo raid1 >/sys/block/md_held/md/level
echo 1 >/sys/block/md_held/md/raid_disks
in_sysfs 6 dev >/sys/block/md_held/md/new_dev
refused '/dev/vda6 is held by md_held' as_booted wipe STATE
refused '/dev/vda6 is held by md_held' install --force
echo clear >/sys/block/md_held/md/array_state
as_booted wipe STATE

say "a disk that is a mapping"
mapper create disk --table "0 $(cat /sys/block/vda/size) linear $disk 0"
for number in 1 2 3 4 5 6 7; do
    mapper create "disk$number" --uuid "part$number-mpath-x" \
        --table "0 $(in_sysfs $number size) linear /dev/dm-0 $(in_sysfs $number start)"
done
disk=/dev/dm-0
mount -t xfs /dev/dm-7 /run/mnt
say "the slot is mounted: it is not written"
mkdir -p /run/slot
mount -t vfat -o ro /dev/dm-3 /run/slot
mapper create held --table "0 2048 linear /dev/dm-4 0"
refused '/dev/dm-4 is held by dm-8 (held)' stage
mapper remove held
say "other partitions are mounted: that is no matter"
stage
as_booted activate
as_booted rollback
umount /run/slot
refused '/dev/dm-7 is mounted on /run/mnt' as_booted wipe EPHEMERAL
umount /run/mnt
expect_installed
