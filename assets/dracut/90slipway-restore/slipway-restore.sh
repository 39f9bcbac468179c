#!/bin/sh
# What it cannot put back keeps no system from starting.
/usr/bin/installer snapshot restore --boot --progress=none --root "${NEWROOT:-/sysroot}" </dev/null >/dev/kmsg 2>&1 || true
