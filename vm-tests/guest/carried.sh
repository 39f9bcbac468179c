#!/bin/bash
# A job in a live system: what its medium carries is there, whole, and an installer can take it from there.

set -Eeuo pipefail
trap 'echo "FAILED: line $LINENO: $BASH_COMMAND"' ERR

cd /run/slipway/payload
sha256sum --check --strict SHA256SUMS
printf '%s\n' * >/tmp/there
printf '%s\n' SHA256SUMS cmdline initramfs.xz manifest.json os-release rootfs.squashfs vmlinuz >/tmp/expected
LC_ALL=C diff /tmp/expected /tmp/there
installer inspect --strict dir:/run/slipway/payload | grep -F "sums     yes"
installer inspect --strict dir:/run/slipway/payload | grep -F "version  $(sed -n 's/^VERSION_ID=//p' /etc/os-release)"
# The container image: all of its blobs are read and compared.
installer pull oci-archive:/run/slipway/image.tar oci:/tmp/pulled
# No disk is in use.
[[ -z $(awk '$1 ~ "^/dev/(vd|sd|sr)" && $2 != "/run/media"' /proc/mounts) ]]
