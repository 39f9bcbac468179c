# shellcheck shell=bash
# What the scripts share that run as jobs inside a guest. Sourced, not run. The medium they come on has
# beside them: installer, assets/, payload/.

here=/run/media
disk=/dev/vda
installer=$here/installer

say() { echo "== $*"; }
fail() {
    echo "FAILED: $*"
    exit 1
}
trap 'fail "line $LINENO: $BASH_COMMAND"' ERR

# install ARG...: install the payload onto the disk.
install() { "$installer" install --disk "$disk" --source "dir:$here/payload" "$@"; }

# refused TEXT COMMAND...: the command ends with exit code 7, says TEXT, and leaves the disk as it was.
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

# Digest of both ends of the disk and of the partition table as the kernel knows it. Read past the cache.
fingerprint() {
    {
        dd if="$disk" iflag=direct bs=1M count=4 status=none
        dd if="$disk" iflag=direct bs=1M skip=$(($(blockdev --getsize64 "$disk") / 1048576 - 4)) status=none
        cat /proc/partitions
    } | sha256sum
}

# The kernel knows the new table of an 8 GiB disk: number and KiB of each partition, and no others.
expect_nodes() {
    local expected actual
    expected='vda1 307200
vda2 1024
vda3 1048576
vda4 1048576
vda5 1024
vda6 102400
vda7 5877760'
    actual=$(awk '$4 ~ /^vda./ { print $4, $3 }' /proc/partitions)
    diff <(echo "$expected") <(echo "$actual") || fail "the kernel does not have the new partition table"
    for node in /dev/vda{1..7}; do
        [[ -b $node ]] || fail "there is no $node"
    done
}

# What a partition's node gives (through the page cache) is what is on the medium (read past it).
# coherent NUMBER MIB: the first MIB MiB of the partition.
coherent() {
    local start
    start=$(<"/sys/block/vda/vda$1/start")
    cmp <(dd if="${disk}$1" bs=1M count="$2" status=none) \
        <(dd if="$disk" iflag=direct bs=1M skip=$((start / 2048)) count="$2" status=none) ||
        fail "${disk}$1 does not give what is on the medium"
}

# The kernel reads every partition the installer has written as what it is.
expect_content() {
    say "content through the partition nodes"
    for part in '1 8' '2 1' '3 40' '4 2' '5 1' '6 16' '7 16'; do
        # shellcheck disable=SC2086 # two words
        coherent $part
    done
    mkdir -p /tmp/mnt
    mount -t vfat -o ro "${disk}3" /tmp/mnt
    (cd /tmp/mnt && sha256sum --strict -c SHA256SUMS)
    cmp /tmp/mnt/vmlinuz "$here/payload/vmlinuz"
    umount /tmp/mnt
    for number in 6 7; do
        mount -t xfs "${disk}$number" /tmp/mnt
        [[ -z $(ls -A /tmp/mnt) ]] || fail "${disk}$number is not an empty file system"
        umount /tmp/mnt
    done
}

# META as the installer reads it and as a program would that opens its partition.
expect_meta() {
    local listed
    listed=$("$installer" meta list --disk "$disk")
    [[ $listed == "$1" ]] || fail "meta list says \"$listed\" instead of \"$1\""
    coherent 5 1
    grep -aqF "${1#*=}" "${disk}5" || fail "${disk}5 does not have the value \"${1#*=}\""
}

# The installer's own view of the disk, through the kernel's block device.
expect_installed() {
    local status
    status=$("$installer" status --disk "$disk")
    echo "$status"
    [[ $status == *"next boot  slot A: "* ]] || fail "status does not say that slot A boots next"
    [[ $status != *problem* ]] || fail "status tells of a problem"
    "$installer" verify --disk "$disk"
}
