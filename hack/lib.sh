# shellcheck shell=bash
# What every script here needs: where the project is, how to speak, what must be installed.
# Sourced, not run.

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

say() { printf '==> %s\n' "$*" >&2; }
die() {
    printf 'error: %s\n' "$*" >&2
    exit 1
}

# Install the Debian packages that bring these commands, if any is missing: need COMMAND-OR-FILE:PACKAGE…
need() {
    local pair missing=()
    for pair in "$@"; do
        case $pair in
        /*) [[ -e ${pair%%:*} ]] || missing+=("${pair#*:}") ;;
        *) PATH=$PATH:/usr/sbin:/sbin command -v "${pair%%:*}" >/dev/null || missing+=("${pair#*:}") ;;
        esac
    done
    [[ ${#missing[@]} -gt 0 ]] || return 0
    say "installing ${missing[*]}"
    [[ $(id -u) = 0 ]] || die "missing Debian packages: run as root, or: apt-get install ${missing[*]}"
    command -v apt-get >/dev/null || die "not a Debian system; install what brings: ${missing[*]}"
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq || die "apt-get update failed: the package lists cannot be fetched"
    apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null ||
        die "apt-get could not install: ${missing[*]}"
}

need_rust() {
    command -v cargo >/dev/null || die "cargo is missing: install Rust 1.89 or later (https://rustup.rs)"
    need cc:gcc /usr/include/stdlib.h:libc6-dev
}

# What builds and boots the sample system.
need_demo() {
    need mmdebstrap:mmdebstrap mksquashfs:squashfs-tools cpio:cpio xz:xz-utils /bin/busybox:busybox-static \
        dpkg-deb:dpkg mkfs.xfs:xfsprogs qemu-system-x86_64:qemu-system-x86 \
        /usr/share/seabios/bios-256k.bin:seabios /usr/share/OVMF/OVMF_CODE_4M.fd:ovmf
}

# A sealed sample payload: payload DIR VERSION [OPTION]... of hack/payload
payload() {
    "$top/hack/payload" "$top/$1" --version "${@:2}"
    "$top/out/installer" seal "$top/$1" --progress none >&2
}
