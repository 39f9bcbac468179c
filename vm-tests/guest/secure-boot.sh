#!/bin/sh
# An initramfs' /init for Secure Boot: tells what the firmware says, enrols the keys in /keys in setup mode, appends
# /keys/dbx.auth outside of it, and switches off.
export PATH=/bin
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
modprobe efivarfs
variables=/sys/firmware/efi/efivars
mount -t efivarfs efivarfs $variables
dmesg -n 1
global=8be4df61-93ca-11d2-aa0d-00e098032b8c
database=d719b2cb-3d3a-4596-a3bc-dad00e67656f

# The value is one byte, behind four of attributes.
value() { tail -c 1 "$variables/$1-$global" | hexdump -v -e '1/1 "%02x"'; }

# write NAME GUID FLAGS: one write() with the attributes in front, or the firmware sees a part.
write() {
    [ -e "/keys/$1.auth" ] || return
    { printf '%b\0\0\0' "$3" && cat "/keys/$1.auth"; } >/variable
    dd if=/variable of="$variables/$1-$2" bs=1M 2>/dev/null && echo "SLIPWAY-WROTE $1"
}

setup=$(value SetupMode)
echo "SLIPWAY-FIRMWARE setup=$setup secure=$(value SecureBoot)"
echo "SLIPWAY-CMDLINE $(cat /proc/cmdline)"
if [ "$setup" = 01 ]; then
    write db $database '\047'
    write KEK $global '\047'
    write PK $global '\047'
    echo "SLIPWAY-ENROLLED setup=$(value SetupMode)"
else
    # The attributes of what is appended are other ones.
    write dbx $database '\147'
fi
echo SLIPWAY-END
sync
poweroff -f
