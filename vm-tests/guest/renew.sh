#!/bin/bash
# Put the boot loaders of this installer on a disk that has those of an earlier one.
# shellcheck source=vm-tests/guest/lib.sh
source "$(dirname "$0")/lib.sh"

"$installer" --progress plain bootloader update --offline --disk "$disk"
