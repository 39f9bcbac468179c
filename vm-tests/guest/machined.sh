# shellcheck shell=bash
# A container as machined starts the installer in; what it gets is in /usr/lib/slipway/launcher of the reference OS
# (hack/reference-os/launcher). Sourced by the jobs that need one, not run.
# On the medium they come on are beside them: rootfs/, an image unpacked; image-env, its environment, a variable a line;
# machine-config.yaml.

set -Eeuo pipefail
# shellcheck source=hack/reference-os/launcher
source /usr/lib/slipway/launcher

here=/run/media
machine_config=$here/machine-config.yaml
# The extraKernelArgs of the machine config; machined passes them all. What they are for: see hack/payload.
kernel_args=(--extra-kernel-arg "console=ttyS0,115200" --extra-kernel-arg quiet --extra-kernel-arg no_timer_check)
# shellcheck disable=SC2034 # for the jobs
upgrade=(/bin/installer install --disk=/dev/vda --platform=metal --config=none --upgrade=true --force=false --zero=false
    "${kernel_args[@]}")

say() { echo "== $*"; }
fail() {
    trap - ERR
    echo "FAILED: $*"
    exit 1
}
trap 'fail "line $LINENO: $BASH_COMMAND"' ERR

# Run a command line in an image that is unpacked on the medium: container IMAGE ARG... The machine config is its stdin,
# and what it says goes to the kernel log, line by line. Its writable layer is in memory, as machined's containerd has
# it. Ends with its exit code.
container() {
    local image=$1 bundle=/run/bundle code
    shift
    prepare_host
    mkdir -p $bundle/{upper,work,rootfs}
    mount -t overlay -o "lowerdir=$here/$image,upperdir=$bundle/upper,workdir=$bundle/work" overlay $bundle/rootfs
    bundle_config "$here/image-env" '' "$@" >$bundle/config.json
    set +e
    crun run --bundle $bundle upgrade <"$machine_config" 2>&1 |
        while IFS= read -r line; do echo "installer: $line" >/dev/kmsg; done
    code=${PIPESTATUS[0]}
    set -e
    umount $bundle/rootfs
    rm -r $bundle
    return "$code"
}

# The same, with its lines of the kernel log on the console, and the exit code that it must end with:
# expect CODE IMAGE ARG...
expect() {
    local expected=$1 code=0 from
    shift
    from=$(date +%s%N)
    echo "from $from" >/dev/kmsg
    container "$@" || code=$?
    dmesg | sed "1,/from $from/d" | grep 'installer: ' | tee /run/log || fail "nothing is in the kernel log"
    [[ $code == "$expected" ]] || fail "exit code $code instead of $expected: $*"
    say "exit code $code"
}

# What the last one has said has this in it.
expect_in_log() { grep -qF -- "$1" /run/log || fail "the kernel log does not say \"$1\""; }
