# shellcheck shell=bash
# What the scripts share that run as jobs inside a guest. Sourced, not run. On the medium they come on are
# beside them: payload/, and maybe installer and assets/.

set -Eeuo pipefail

here=/run/media
disk=/dev/vda
# Another than the system's own, if the medium has one.
installer=$here/installer
[[ -x $installer ]] || installer=/usr/bin/installer

say() { echo "== $*"; }
fail() {
    trap - ERR
    echo "FAILED: $*"
    exit 1
}
trap 'fail "line $LINENO: $BASH_COMMAND"' ERR

# Install the payload onto the disk: install ARG...
install() { "$installer" --progress plain install --disk "$disk" --source "dir:$here/payload" "$@" </dev/null; }

# A command that must be refused: with exit code 7, saying TEXT, and leaving the disk as it was.
# refused TEXT COMMAND...
refused() {
    local text=$1 output code=0 before
    shift
    before=$(fingerprint)
    output=$("$@" 2>&1) || code=$?
    echo "$output"
    [[ $code == 7 ]] || fail "exit code $code instead of 7: $*"
    [[ $output == *"$text"* ]] || fail "the refusal does not say \"$text\": $*"
    [[ $(fingerprint) == "$before" ]] || fail "a refused command has written: $*"
}

# A digest of both ends of the disk and of the kernel's idea of its partitions.
fingerprint() {
    local mib
    mib=$(($(blockdev --getsize64 "$disk") / 1048576))
    { on_disk 0 4 && on_disk $((mib - 4)) 4 && cat /proc/partitions; } | sha256sum
}

# What is on the disk, read past the page cache: on_disk MIB COUNT, both in MiB.
on_disk() { dd if="$disk" iflag=direct bs=1M skip="$1" count="$2" status=none; }

# The kernel has the new table of an 8 GiB disk: each partition with its size in KiB, and no others.
expect_nodes() {
    local expected actual node
    expected='vda1 307200
vda2 1024
vda3 1048576
vda4 1048576
vda5 1024
vda6 102400
vda7 5877760'
    actual=$(awk '$4 ~ /^vda./ { print $4, $3 }' /proc/partitions)
    [[ $actual == "$expected" ]] || fail "the kernel does not have the new table but: $actual"
    for node in /dev/vda{1..7}; do
        [[ -b $node ]] || fail "there is no $node"
    done
}

# The first MIB MiB that the node of a partition gives are those on the disk: expect_coherent NUMBER MIB
expect_coherent() {
    local start cached
    start=$(<"/sys/block/vda/vda$1/start")
    cached=$(dd if="$disk$1" bs=1M count="$2" status=none | sha256sum)
    [[ $cached == "$(on_disk $((start / 2048)) "$2" | sha256sum)" ]] ||
        fail "$disk$1 does not give what is on the disk"
}

# The kernel reads every partition the installer has written as what it is.
expect_content() {
    local number
    say "content through the nodes of the partitions"
    expect_coherent 1 8
    expect_coherent 2 1
    expect_coherent 3 40
    for number in 4 5 6 7; do
        expect_coherent $number 1
    done
    mkdir -p /tmp/mnt
    mount -t vfat -o ro "${disk}3" /tmp/mnt
    (cd /tmp/mnt && sha256sum --strict -c SHA256SUMS)
    cmp /tmp/mnt/vmlinuz "$here/payload/vmlinuz"
    umount /tmp/mnt
    for number in 6 7; do
        mount -t xfs "$disk$number" /tmp/mnt
        [[ -z $(ls -A /tmp/mnt) ]] || fail "$disk$number is not an empty file system"
        umount /tmp/mnt
    done
}

# META as the installer reads it, and as any program does that opens its partition: expect_meta KEY=VALUE
expect_meta() {
    local listed
    listed=$("$installer" meta list --disk "$disk")
    [[ $listed == "$1" ]] || fail "meta list says \"$listed\" instead of \"$1\""
    grep -aqF "${1#*=}" "${disk}5" || fail "${disk}5 does not have the value \"${1#*=}\""
}

# The installer's own view of the disk, through the kernel's block device.
expect_installed() {
    local status
    status=$("$installer" status --disk "$disk")
    echo "$status"
    [[ $status == *"next boot  slot A: "* ]] || fail "status does not say that slot A boots next"
    [[ $status != *problem* ]] || fail "status tells of a problem"
    "$installer" --progress plain verify --disk "$disk"
}
