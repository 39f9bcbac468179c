#!/bin/sh
# An initramfs' /init for enrolment: enrols the keys in /keys by `installer enroll`, after it was refused those in /other,
# and switches off. What is refused is done by force then.
export PATH=/bin
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
while read -r module options; do
    # shellcheck disable=SC2086 # several options are several words
    modprobe "$module" $options
done </etc/modules
variables=/sys/firmware/efi/efivars
mount -t efivarfs efivarfs $variables
dmesg -n 1

# The value is one byte, behind four of attributes.
value() { tail -c 1 "$variables/$1-8be4df61-93ca-11d2-aa0d-00e098032b8c" | hexdump -v -e '1/1 "%02x"'; }
firmware() { echo "SLIPWAY-$1 setup=$(value SetupMode) secure=$(value SecureBoot)"; }

# enroll ARGUMENT...: what it says, and its exit code.
enroll() {
    installer --progress none enroll "$@" >/said 2>&1
    code=$?
    sed 's/^/SLIPWAY-SAYS /' /said
    echo "SLIPWAY-EXIT $code"
}

firmware FIRMWARE
enroll /other
enroll /keys --dry-run
enroll /keys
[ $code -eq 0 ] || enroll /keys --mode=force
firmware NOW
echo SLIPWAY-END
sync
poweroff -f
