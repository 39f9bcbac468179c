# shellcheck shell=bash
# What every script here needs: where the project is, how to speak, what must be installed.
# Sourced, not run.

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

say() { printf '==> %s\n' "$*" >&2; }
die() {
    printf 'error: %s\n' "$*" >&2
    exit 1
}

# The packages of those that are missing: lacking COMMAND-OR-FILE:PACKAGE…
lacking() {
    local pair
    for pair in "$@"; do
        case $pair in
        /*) [[ -e ${pair%%:*} ]] || echo "${pair#*:}" ;;
        *) PATH=$PATH:/usr/sbin:/sbin command -v "${pair%%:*}" >/dev/null || echo "${pair#*:}" ;;
        esac
    done
}

# Install the Debian packages that bring these commands, if any is missing: need COMMAND-OR-FILE:PACKAGE…
need() {
    local missing
    mapfile -t missing < <(lacking "$@")
    [[ ${#missing[@]} -gt 0 ]] || return 0
    [[ $(id -u) = 0 ]] || die "missing Debian packages: run as root, or: apt-get install ${missing[*]}"
    command -v apt-get >/dev/null || die "not a Debian system; install what brings: ${missing[*]}"
    # One after the other: another script here may install the same. What apt starts must not keep the lock.
    mkdir -p "$top/out"
    exec 9>"$top/out/packages.lock"
    flock 9
    mapfile -t missing < <(lacking "$@")
    [[ ${#missing[@]} -eq 0 ]] || install_packages "${missing[@]}" 9>&-
    exec 9>&-
}

install_packages() {
    say "installing $*"
    export DEBIAN_FRONTEND=noninteractive
    # Once for a script and all it starts.
    [[ ${SLIPWAY_APT_UPDATED:-} ]] || apt-get update -qq || die "apt-get update failed: the package lists cannot be fetched"
    export SLIPWAY_APT_UPDATED=1
    apt-get install -y -qq --no-install-recommends "$@" >/dev/null || die "apt-get could not install: $*"
}

need_rust() {
    command -v cargo >/dev/null || die "cargo is missing: install Rust 1.91 or later (https://rustup.rs)"
    need cc:gcc /usr/include/stdlib.h:libc6-dev
}

# Where the sources of crates are: in the registry of this user's Cargo, or vendored.
crate_dirs() {
    cargo metadata --quiet --locked --format-version 1 | grep -o '"manifest_path":"[^"]*/Cargo.toml"' |
        sed 's,^[^:]*:"\(.*\)/[^/]*/Cargo.toml"$,\1,' | sort -u | grep -vxF -e "$top" -e "$top/core" -e "$top/tests" -e "${top%/*}" -e ''
}

# The paths of this machine that a file has in it. /src is where every container image is built, and common.
own_paths() {
    local path paths=()
    for path in "$top" "${CARGO_HOME:-$HOME/.cargo}" "$HOME"; do
        [[ $path =~ ^/?$ || $path = /src ]] || paths+=(-e "$path/")
    done
    { grep --text --only-matching --fixed-strings "${paths[@]}" "$1" || [[ $? = 1 ]]; } | sort -u
}

# A static release build: static_build ARGUMENTS of cargo build. It is in the directory $built then.
# crt-static for the target only: procedural macros, which run here, cannot be static. Random numbers by the
# system call: without libc's symbols the crate would wait for /dev/random to become ready, which on a machine
# without a hardware source nothing makes it. Messages of panics name source files: not by this machine's paths, which
# nobody else has.
static_build() {
    local target dirs dir flags
    dirs=$(crate_dirs)
    target=$(uname -m)-unknown-linux-gnu
    flags=(-C target-feature=+crt-static --cfg 'getrandom_backend="linux_getrandom"')
    # The last one that fits counts.
    flags+=("--remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=/cargo" "--remap-path-prefix=$top=/src")
    while read -r dir; do flags+=("--remap-path-prefix=$dir=/crates"); done <<<"$dirs"
    # A path may have a space.
    CARGO_ENCODED_RUSTFLAGS=$(IFS=$'\x1f' && echo "${flags[*]}") \
        cargo build --quiet --release --locked --target "$target" "$@"
    # shellcheck disable=SC2034 # for who sources this
    built=$top/target/$target/release
}

# Beside Rust itself its core library for this target is needed, which rustup brings.
need_uefi_target() {
    need_rust
    [[ ! -d $(rustc --print target-libdir --target "$1") ]] || return 0
    say "installing Rust's libraries for $1"
    rustup target add "$1" >&2 || die "Rust has no libraries for $1: rustup target add $1"
}

# Time stamp of what is built, where it has one: any fixed time.
epoch=${SOURCE_DATE_EPOCH:-1735689600}

# The UEFI loader for an architecture, as the file $loader: build_loader ARCH. Messages of panics name source files: not by
# this machine's paths.
build_loader() {
    local target flags
    case $1 in
    amd64) target=x86_64-unknown-uefi ;;
    arm64) target=aarch64-unknown-uefi ;;
    *) die "there is no loader for $1" ;;
    esac
    need_uefi_target "$target"
    flags=("--remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=/cargo" "--remap-path-prefix=$top=/src")
    # The linker would write down when it ran.
    flags+=(-C "link-arg=/TIMESTAMP:$epoch")
    # A path may have a space.
    CARGO_ENCODED_RUSTFLAGS=$(IFS=$'\x1f' && echo "${flags[*]}") \
        cargo build --quiet --release --locked --manifest-path "$top/loader/Cargo.toml" --target "$target" \
        --target-dir "$top/target/loader"
    loader=$top/target/loader/$target/release/slipway-loader.efi
    [[ $(stat -c %s "$loader") -lt $loader_limit_bytes ]] || die "the loader for $1 has $(stat -c %s "$loader") bytes"
}

# Of the loader: it is in memory twice while it is verified, and an ESP may be small. Bytes.
loader_limit_bytes=128000

# GRUB's images and the loader for these architectures, in out/assets: boot_assets ARCH…
boot_assets() {
    local arch targets modules version list loader
    need grub-mkimage:grub-common dpkg-query:dpkg
    for arch; do
        targets=$("$top/assets/build" --packages "$arch")
        if [[ $arch = "$(dpkg --print-architecture)" ]]; then
            modules=/usr/lib/grub
            mapfile -t list < <(awk -v dir=$modules '{ print dir "/" $1 "/moddep.lst:" $2 }' <<<"$targets")
            need "${list[@]}"
        else
            # Of grub-mkimage's own version.
            version=$(dpkg-query --show --showformat '${Version}' grub-common)
            modules=$top/out/cache/grub-$arch-$version
            mapfile -t list < <(awk -v "version=$version" '{ print $2 "=" version }' <<<"$targets")
            [[ -d $modules ]] || unpack_foreign "$arch" usr/lib/grub "$modules" "${list[@]}"
        fi
        build_loader "$arch"
        "$top/assets/build" --loader "$loader" --modules "$modules" "$top/out/assets" "$arch"
    done
}

# What packages of another architecture have under PATH, as the directory DIR and not installed:
# unpack_foreign ARCH PATH DIR PACKAGE=VERSION…
unpack_foreign() {
    local tmp file
    mkdir -p "$top/out/cache"
    tmp=$(mktemp -d "$top/out/cache/foreign.XXXXXX")
    say "downloading ${*:4} for $1"
    (cd "$tmp" && "$top/hack/apt" "$1" apt-get -qq download "${@:4}" >&2) ||
        die "${*:4} for $1, as old as this machine's own, cannot be fetched: see above"
    for file in "$tmp"/*.deb; do dpkg-deb -x "$file" "$tmp/root"; done
    mv -T "$tmp/root/$2" "$3"
    rm -rf "$tmp"
}

# What builds the sample system, what boots it, what examples/mkosi needs beside that, what builds the container image.
payload_packages=(mmdebstrap:mmdebstrap mksquashfs:squashfs-tools cpio:cpio zstd:zstd busybox:busybox-static
    readelf:binutils dpkg-deb:dpkg mkfs.xfs:xfsprogs depmod:kmod)
machine_packages=(qemu-system-x86_64:qemu-system-x86 /usr/share/seabios/bios-256k.bin:seabios
    /usr/share/OVMF/OVMF_CODE_4M.fd:ovmf)
# shellcheck disable=SC2034 # for who sources this
mkosi_packages=(mkosi:mkosi systemd-nspawn:systemd-container debootstrap:debootstrap)
# shellcheck disable=SC2034 # for who sources this
image_packages=(buildah:buildah skopeo:skopeo mmdebstrap:mmdebstrap flock:util-linux)

need_demo() { need "${payload_packages[@]}" "${machine_packages[@]}"; }

# What runs machines here: kvm if it starts the sample system's kernel within some seconds, else tcg. That there is a
# /dev/kvm does not say so: in a machine that is itself virtual it may be there, and run no kernel or take minutes.
accelerator() {
    local log=$top/out/kvm.log
    [[ -r /dev/kvm && -w /dev/kvm ]] || { echo tcg && return; }
    timeout --kill-after=1 15 qemu-system-x86_64 -M pc -accel kvm -cpu host -m 256 -nodefaults -nic none -display none \
        -no-reboot -serial stdio -kernel "$top/out/payload/vmlinuz" -append 'console=ttyS0,115200 panic=-1' \
        </dev/null >"$log" 2>&1 || :
    # Without an initramfs a kernel that works panics, and that ends the machine.
    if grep -q 'Kernel panic - not syncing: VFS' "$log"; then echo kvm; else echo tcg; fi
}

# A system of examples/, with checksums, in out/systems/NAME-1.0.0, built if anything in it has changed: example NAME
example() {
    local dir=$top/out/systems/$1-1.0.0 inputs
    inputs=$(cd "$top" && find "examples/$1" examples/common assets/{systemd,openrc,busybox,initramfs-tools,dracut} out/installer -type f -print0 |
        sort -z | xargs -0 sha256sum)
    [[ ! -f $dir/SHA256SUMS || $(cat "$dir.inputs" 2>/dev/null) != "$inputs" ]] || return 0
    say "building examples/$1 (some minutes)"
    rm -rf "$dir"
    "$top/examples/$1/build" "$dir" 1.0.0 >&2
    "$top/out/installer" checksum "$dir" --progress none >&2
    echo "$inputs" >"$dir.inputs"
}

# The same system as another version, to upgrade to: next_version NAME VERSION
next_version() {
    local from=$top/out/systems/$1-1.0.0 dir=$top/out/systems/$1-$2
    [[ ! $dir/SHA256SUMS -nt $from/SHA256SUMS ]] || return 0
    rm -rf "$dir"
    cp -r "$from" "$dir"
    rm "$dir"/{SHA256SUMS,manifest.json}
    sed -i "s/^VERSION_ID=.*/VERSION_ID=$2/" "$dir/os-release"
    # Without a difference in what boots, an upgrade would have nothing to do.
    echo "example.version=$2" >>"$dir/cmdline"
    "$top/out/installer" checksum "$dir" --progress none >&2
}

# A sample payload with checksums: payload DIR VERSION [OPTION]... of hack/payload
payload() {
    "$top/hack/payload" "$top/$1" --version "${@:2}"
    "$top/out/installer" checksum "$top/$1" --progress none >&2
}

# What runs on a node of the fleet, as the fleet's own tests have compiled it: out/node
node_programs() {
    local programs=${CARGO_TARGET_DIR:-$top/fleet/target}/debug name
    say "building what runs on a node"
    cargo test --quiet --locked --manifest-path "$top/fleet/Cargo.toml" --workspace --no-run
    "$top/fleet/hack/parts" etcd
    "$top/fleet/hack/parts" containerd
    mkdir -p "$top/out/node"
    for name in slipwayd slipwayctl; do strip -o "$top/out/node/$name" "$programs/$name"; done
    cp "$top/out/cache/fleet/etcd" "$top"/out/cache/fleet/containerd/{containerd,containerd-shim-runc-v2,ctr,runc} \
        "$top/out/node/"
    # A cluster with a node in QEMU: only the large campaign has one.
    [[ ${SLIPWAY_SYSTEMS-} = all ]] || return 0
    "$top/fleet/hack/parts" kube
    "$top/fleet/hack/parts" kubelet
    cp "$top"/out/cache/fleet/{kube-apiserver,kubelet,kubectl} "$top/out/node/"
    strip -o "$top/out/node/slipway-fleet" "$programs/slipway-fleet"
}

# etcd's client is made from etcd's own messages when it is compiled.
# shellcheck disable=SC2034 # for who sources this
fleet_packages=(protoc:protobuf-compiler /usr/include/google/protobuf/descriptor.proto:libprotobuf-dev)
