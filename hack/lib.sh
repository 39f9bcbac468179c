# shellcheck shell=bash
# What every script here needs: where the project is, how to speak, what must be installed.
# Sourced, not run.

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

say() { printf '==> %s\n' "$*" >&2; }
die() {
    printf 'error: %s\n' "$*" >&2
    exit 1
}

# Run a command beside what follows: beside COMMAND…, and later wait "$beside". It ends with this script: a process group of
# its own, because what runs in the background ignores Ctrl-C.
beside() {
    set -m
    "$@" &
    beside=$!
    set +m
    # shellcheck disable=SC2064 # now
    trap "kill -- -$beside 2>/dev/null || :" EXIT
}

# What is expensive to make, for all clones on this machine. It may be removed when nothing runs here.
cache=$(realpath --canonicalize-missing "${SLIPWAY_CACHE:-${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/slipway}")

# A digest of stdin that is short enough for the name of a file.
key() { sha256sum | cut -c 1-16; }

# What COMMAND makes, made once: kept KIND KEY COMMAND…. KEY is a digest of all that it is made from. If the cache has no such
# directory, COMMAND is called with an empty one as its last argument. $kept is the directory then. The three of a kind that
# were used last stay, and what was used within a day: another clone may just use it.
kept() {
    local kind=$1 dir=$cache/$1/$2 new held old
    mkdir -p "$cache/$kind"
    # Two clones at once must not make the same.
    exec {held}>"$cache/$kind/lock"
    flock "$held"
    if [[ ! -d $dir ]]; then
        rm -rf "$cache/$kind"/new.*
        new=$(mktemp -d "$cache/$kind/new.XXXXXX")
        chmod 755 "$new"
        "${@:3}" "$new" {held}>&-
        mv -T "$new" "$dir"
    fi
    touch "$dir"
    find "$cache/$kind" -mindepth 1 -maxdepth 1 -type d -printf '%T@ %p\n' | sort -rn | tail -n +4 | cut -d ' ' -f 2- |
        while read -r old; do find "$old" -maxdepth 0 -mmin +1440 -exec rm -rf {} +; done
    # What is of a kind that is not used any more, as of an older kernel.
    find "$cache" -mindepth 2 -maxdepth 2 -type d -mtime +60 -exec rm -rf {} +
    exec {held}>&-
    # shellcheck disable=SC2034 # for who calls this
    kept=$dir
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
    mkdir -p "$cache"
    exec 9>"$cache/packages.lock"
    flock 9
    # To install one package may take away another that was there, of a version that does not go with it.
    for _ in 1 2; do
        mapfile -t missing < <(lacking "$@")
        [[ ${#missing[@]} -eq 0 ]] || install_packages "${missing[@]}" 9>&-
    done
    exec 9>&-
    mapfile -t missing < <(lacking "$@")
    [[ ${#missing[@]} -eq 0 ]] || die "apt-get has installed them, and their commands are missing: ${missing[*]}"
}

install_packages() {
    say "installing $*"
    export DEBIAN_FRONTEND=noninteractive
    # Once for a script and all it starts.
    [[ ${SLIPWAY_APT_UPDATED:-} ]] || apt-get update -qq || die "apt-get update failed: the package lists cannot be fetched"
    export SLIPWAY_APT_UPDATED=1
    apt-get install -y -qq -o DPkg::Lock::Timeout=600 --no-install-recommends "$@" >/dev/null || die "apt-get could not install: $*"
}

# What is released is compiled without lints in the compiler (hack/compile), also where a test calls for it.
unset RUSTC_WORKSPACE_WRAPPER CLIPPY_ARGS

need_rust() {
    command -v cargo >/dev/null || die "cargo is missing: install Rust 1.91 or later (https://rustup.rs)"
    need cc:gcc /usr/include/stdlib.h:libc6-dev
}

# Where the sources of crates are, as the compiler sees them: in the registry of this user's Cargo, or vendored.
crate_dirs() {
    local manifest
    for manifest in Cargo.toml loader/Cargo.toml; do
        cargo metadata --quiet --locked --format-version 1 --manifest-path "$manifest"
    done | python3 -c '
import json, os, sys
for line in sys.stdin:
    for package in json.loads(line)["packages"]:
        if package["source"]:
            print(os.path.dirname(os.path.dirname(package["manifest_path"])))
' | sort -u | sed "s,^$top/,$build_dir/,"
}

# What Cargo has compiled of other people's crates: a clone that has nothing yet takes it from the cache. If there is none of
# just these crates, then the last one of this compiler: Cargo tells what fits.
seed_target() {
    local dir compiler held
    [[ ! -d ${CARGO_TARGET_DIR:-target} && -d $cache/cargo ]] || return 0
    compiler=$(rustc --version --verbose | key)
    dir=$cache/cargo/$compiler-$(crates_key)
    # shellcheck disable=SC2012 # these names have letters and digits only
    [[ -d $dir ]] || dir=$(ls -td "$cache/cargo/$compiler"-*/ 2>/dev/null | head -n 1) || return 0
    exec {held}>"$cache/cargo/lock"
    flock --shared "$held"
    hack/cargo-cache seed "$dir"
    exec {held}>&-
}
keep_target() { kept cargo "$(rustc --version --verbose | key)-$(crates_key)" hack/cargo-cache keep; }
crates_key() { { cat Cargo.lock loader/Cargo.lock && sed -n '/^\[profile/,$p' Cargo.toml; } | key; }

# Where everything that is released is built: in a container, and on any machine. Cargo makes names of symbols out of the
# place of what lies outside of a workspace, as core/boot does for the loader, so elsewhere it would be other bytes.
build_dir=/usr/src

# Run a command with this project at $build_dir, by a mount that nothing else sees.
in_build_dir() {
    # shellcheck disable=SC2016 # for the shell inside
    local as=() inside='mount --rbind "$1" "$2" && cd "$2" && shift 2 && exec "$@"'
    if [[ $top = "$build_dir" ]]; then
        "$@"
        return
    fi
    need unshare:util-linux mount:mount
    [[ $(id -u) = 0 ]] || as=(--user --map-root-user)
    unshare "${as[@]}" --mount -- sh -c "$inside" sh "$top" "$build_dir" true ||
        die "nothing can be mounted here for one program alone: build in $build_dir, where every release is built"
    unshare "${as[@]}" --mount -- sh -c "$inside" sh "$top" "$build_dir" "$@"
}

# The paths of this machine that a file has in it.
own_paths() {
    local path paths=()
    for path in "$top" "${CARGO_HOME:-$HOME/.cargo}" "$HOME"; do
        [[ $path =~ ^/?$ || $path = "$build_dir" ]] || paths+=(-e "$path/")
    done
    { grep --text --only-matching --fixed-strings "${paths[@]}" "$1" || [[ $? = 1 ]]; } | sort -u
}

# What tells of a release build where it was made: messages of panics name source files. Flags for rustc, as $flags.
release_flags() {
    local dirs dir
    dirs=$(crate_dirs)
    flags+=("--remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=/cargo" "--remap-path-prefix=$build_dir=/src")
    # The last one that fits counts.
    while read -r dir; do flags+=("--remap-path-prefix=$dir=/crates"); done <<<"$dirs"
}

# Rust's name for programs of an architecture.
rust_target() {
    case $1 in
    amd64) echo x86_64-unknown-linux-gnu ;;
    arm64) echo aarch64-unknown-linux-gnu ;;
    *) die "there are no programs for $1" ;;
    esac
}

# What compiles for another architecture than this machine's: need_cross ARCH. Settings for env, as $cross, and more $flags.
need_cross() {
    local target tools foreign
    cross=()
    [[ $1 != "$(dpkg --print-architecture)" ]] || return 0
    target=$(rust_target "$1")
    tools=${target/-unknown/}
    need "$tools-gcc:gcc-$tools" "/usr/$tools/lib/libc.a:libc6-dev-$1-cross"
    need_rust_target "$target"
    # The C library that Debian's cross compilers bring gets no security updates. What is linked in is what has them.
    foreign "$1" "usr/lib/$tools" "libc6-dev=$(dpkg-query --show --showformat '${Version}' libc6-dev)"
    flags+=(-C "link-arg=-B$foreign" -C "link-arg=-L$foreign")
    target=${target//-/_}
    cross=("CARGO_TARGET_${target^^}_LINKER=$tools-gcc" "CC_$target=$tools-gcc" "AR_$target=$tools-ar")
}

# A static build: static_build PROFILE ARGUMENTS of cargo build. For this machine, or for the architecture $build_for. It is in
# the directory $built then.
# crt-static for the target only: procedural macros, which run here, cannot be static. Random numbers by the
# system call: without libc's symbols the crate would wait for /dev/random to become ready, which on a machine
# without a hardware source nothing makes it.
static_build() {
    local target flags cross profile=$1 arch=${build_for:-$(dpkg --print-architecture)}
    shift
    target=$(rust_target "$arch")
    flags=(-C target-feature=+crt-static --cfg 'getrandom_backend="linux_getrandom"')
    need_cross "$arch"
    # Nothing unwinds a stack. Without tables for that a program is smaller by a fifteenth. The path is one of the source, so that
    # programs are the same wherever they are built.
    flags+=(-C 'link-arg=-Wl,-T,hack/no-unwinding.ld')
    # Rust's own linker for amd64, lld, keeps all of these tables or none. Relative relocations in a bitmap (DT_RELR, glibc 2.36)
    # take a twentieth of the room. Debian's linker for arm64 makes none.
    [[ $arch != amd64 ]] || flags+=(-C linker-features=-lld -C 'link-arg=-Wl,-z,pack-relative-relocs')
    release_flags
    # A path may have a space.
    CARGO_ENCODED_RUSTFLAGS=$(IFS=$'\x1f' && echo "${flags[*]}") \
        in_build_dir env "${cross[@]}" cargo build --quiet --profile "$profile" --locked --target "$target" --target-dir target "$@"
    # shellcheck disable=SC2034 # for who sources this
    built=$top/target/$target/$profile
}

# Beside Rust itself its libraries for this target are needed, which rustup brings. rustup must not run beside itself.
need_rust_target() {
    need_rust
    [[ ! -d $(rustc --print target-libdir --target "$1") ]] || return 0
    mkdir -p "$cache"
    say "installing Rust's libraries for $1"
    flock "$cache/rustup.lock" rustup target add "$1" >&2 || die "Rust has no libraries for $1: rustup target add $1"
}

# What compiles and counts the tests; and with the loader.
need_tools() {
    need_rust
    need "${fleet_packages[@]}" python3:python3 git:git
}
need_compiler() {
    need_tools
    need_rust_target x86_64-unknown-uefi
    need_rust_target aarch64-unknown-uefi
}

# Time stamp of what is built, where it has one: any fixed time.
epoch=${SOURCE_DATE_EPOCH:-1735689600}

# The UEFI loader for an architecture, as the file $loader: build_loader ARCH.
build_loader() {
    local target flags=()
    case $1 in
    amd64) target=x86_64-unknown-uefi ;;
    arm64) target=aarch64-unknown-uefi ;;
    *) die "there is no loader for $1" ;;
    esac
    need_rust_target "$target"
    release_flags
    # The linker would write down when it ran.
    flags+=(-C "link-arg=/TIMESTAMP:$epoch")
    CARGO_ENCODED_RUSTFLAGS=$(IFS=$'\x1f' && echo "${flags[*]}") \
        in_build_dir cargo build --quiet --release --locked --manifest-path loader/Cargo.toml --target "$target" \
        --target-dir target/loader
    loader=$top/target/loader/$target/release/slipway-loader.efi
    [[ $(stat -c %s "$loader") -lt $loader_limit_bytes ]] || die "the loader for $1 has $(stat -c %s "$loader") bytes"
}

# Of the loader: it is in memory twice while it is verified, and an ESP may be small. Bytes.
loader_limit_bytes=128000

# What installer, loader and boot images are built from. The Containerfile copies all of it: hack/check.
source_paths=(Cargo.toml Cargo.lock LICENSE hack/build hack/lib.sh hack/no-unwinding.ld hack/notices assets core loader/Cargo.toml
    loader/Cargo.lock loader/src payload src)
# Its files, each ended by a zero byte.
source_files() { find "${source_paths[@]}" -type f -print0; }

# What makes GRUB's images for an architecture: its modules, as the directory $modules.
need_grub() {
    local targets version list
    targets=$("$top/assets/build" --packages "$1")
    if [[ $1 = "$(dpkg --print-architecture)" ]]; then
        modules=/usr/lib/grub
        mapfile -t list < <(awk -v dir="$modules" '{ print dir "/" $1 "/moddep.lst:" $2 }' <<<"$targets")
        need grub-mkimage:grub-common dpkg-query:dpkg "${list[@]}"
    else
        # Of grub-mkimage's own version.
        need grub-mkimage:grub-common dpkg-query:dpkg
        version=$(dpkg-query --show --showformat '${Version}' grub-common)
        mapfile -t list < <(awk -v "version=$version" '{ print $2 "=" version }' <<<"$targets")
        foreign "$1" usr/lib/grub "${list[@]}"
        modules=$foreign
    fi
}

# GRUB's images and the loader for an architecture: boot_assets ARCH DIRECTORY. It has a directory of that name then.
boot_assets() {
    local modules loader found
    need_grub "$1"
    build_loader "$1"
    found=$(own_paths "$loader")
    [[ ! $found ]] || die "the loader for $1 has paths of this machine in it: ${found//$'\n'/, }"
    "$top/assets/build" --loader "$loader" --modules "$modules" "$2" "$1"
}

# Put a directory in the place of another, if that is not the same: a test may just read it. replace FROM TO
replace() {
    ! diff --recursive --brief "$1" "$2" >/dev/null 2>&1 || return 0
    rm -rf "$2.new" "$2.old"
    cp -r "$1" "$2.new"
    [[ ! -e $2 ]] || mv -T "$2" "$2.old"
    mv -T "$2.new" "$2"
    rm -rf "$2.old"
}

# What packages of another architecture have under PATH, not installed, as the directory $foreign:
# foreign ARCH PATH PACKAGE=VERSION…
foreign() {
    kept "foreign-$1-${2//\//-}" "$(echo "${*:3}" | key)" unpack_foreign "$@"
    # shellcheck disable=SC2034 # for who calls this
    foreign=$kept
}

# unpack_foreign ARCH PATH PACKAGE=VERSION… DIRECTORY
unpack_foreign() {
    local tmp file dir=${*: -1}
    tmp=$dir.unpacked
    mkdir "$tmp"
    say "downloading ${*:3:$#-3} for $1"
    (cd "$tmp" && "$top/hack/apt" "$1" apt-get -qq download "${@:3:$#-3}" >&2) ||
        die "${*:3:$#-3} for $1, as old as this machine's own, cannot be fetched: see above"
    for file in "$tmp"/*.deb; do dpkg-deb -x "$file" "$tmp/root"; done
    cp -a "$tmp/root/$2/." "$dir/"
    rm -rf "$tmp"
}

# What builds the sample system, what boots it, what examples/mkosi needs beside that, what builds the container image.
# shellcheck disable=SC2034 # for who sources this
payload_packages=(mmdebstrap:mmdebstrap mksquashfs:squashfs-tools cpio:cpio zstd:zstd busybox:busybox-static
    readelf:binutils dpkg-deb:dpkg mkfs.xfs:xfsprogs depmod:kmod)
# shellcheck disable=SC2034 # for who sources this
machine_packages=(qemu-system-x86_64:qemu-system-x86 /usr/share/seabios/bios-256k.bin:seabios
    /usr/share/OVMF/OVMF_CODE_4M.fd:ovmf)
# shellcheck disable=SC2034 # for who sources this
mkosi_packages=(mkosi:mkosi systemd-nspawn:systemd-container debootstrap:debootstrap)
# shellcheck disable=SC2034 # for who sources this
image_packages=(buildah:buildah skopeo:skopeo mmdebstrap:mmdebstrap flock:util-linux)

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

# A system of examples/, with checksums, and the same as another version, to upgrade to: out/systems/NAME-1.0.0 and -1.1.0.
# Built if anything in it has changed: example NAME
example() {
    local inputs version
    inputs=$(cd "$top" && find "examples/$1" examples/common assets/{systemd,openrc,busybox,initramfs-tools,dracut} out/installer -type f -print0 |
        sort -z | xargs -0 sha256sum)
    kept "system-$1" "$({ echo "$inputs" && debian_today && declare -f build_example; } | key)" build_example "$1"
    mkdir -p "$top/out/systems"
    for version in 1.0.0 1.1.0; do
        rm -rf "$top/out/systems/$1-$version"
        ln -s "$kept/$1-$version" "$top/out/systems/$1-$version"
    done
}

# build_example NAME DIRECTORY
build_example() {
    local next=$2/$1-1.1.0
    say "building examples/$1 (some minutes)"
    "$top/examples/$1/build" "$2/$1-1.0.0" 1.0.0 >&2
    cp -r "$2/$1-1.0.0" "$next"
    sed -i 's/^VERSION_ID=.*/VERSION_ID=1.1.0/' "$next/os-release"
    # Without a difference in what boots, an upgrade would have nothing to do.
    echo 'example.version=1.1.0' >>"$next/cmdline"
    "$top/out/installer" checksum "$2/$1-1.0.0" --progress none >&2
    "$top/out/installer" checksum "$next" --progress none >&2
}

# What a Debian is made of changes when Debian does: the lists of its packages say so.
debian_today() { apt-cache policy base-files linux-image-cloud-amd64 systemd libc6 | grep Candidate; }

# A sample payload with checksums: payload DIR VERSION [OPTION]... of hack/payload
payload() {
    "$top/hack/payload" "$top/$1" --version "${@:2}"
    "$top/out/installer" checksum "$top/$1" --progress none >&2
}

# What runs on a node of the fleet, as the tests have compiled it: out/node
node_programs() {
    local programs=${CARGO_TARGET_DIR:-$top/target}/debug name
    say "building what runs on a node"
    # With the features that the tests have them with: all else would be compiled twice.
    hack/compile test --quiet --locked --workspace --no-run
    rm -rf out/node
    mkdir -p out/node
    for name in slipwayd slipwayctl slipway-fleet; do strip -o "out/node/$name" "$programs/$name"; done
    for name in out/parts/{etcd,kube-apiserver,kubelet,kubectl} out/parts/containerd/{containerd,containerd-shim-runc-v2,ctr,runc}; do
        # The campaign's are not there for the gate.
        [[ ! -e $name ]] || ln -s "$(realpath "$name")" "out/node/${name##*/}"
    done
}

# What hack/check takes.
# shellcheck disable=SC2034 # for who sources this
check_packages=(shellcheck:shellcheck grub-script-check:grub-common openssl:openssl dpkg-deb:dpkg)

# etcd's client is made from etcd's own messages when it is compiled.
# shellcheck disable=SC2034 # for who sources this
fleet_packages=(protoc:protobuf-compiler /usr/include/google/protobuf/descriptor.proto:libprotobuf-dev)
