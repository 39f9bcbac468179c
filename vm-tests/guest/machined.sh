# shellcheck shell=bash
# A container as machined starts the installer in, by any OCI runtime. Sourced by the jobs that need one, not run.
# On the medium they come on are beside them: rootfs/, an image unpacked; image-env, its environment, a variable a line;
# machine-config.yaml.

set -Eeuo pipefail

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

# What a host has that starts containers: cgroups, and a kernel log that takes every line.
prepare_host() {
    mountpoint -q /sys/fs/cgroup || mount -t cgroup2 cgroup2 /sys/fs/cgroup
    # Refused where the command line has said it.
    echo on 2>/dev/null >/proc/sys/kernel/printk_devkmsg || :
}

# All capabilities but CAP_SYS_BOOT and CAP_SYS_MODULE.
capabilities() {
    local name names=(
        CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID SETPCAP LINUX_IMMUTABLE NET_BIND_SERVICE
        NET_BROADCAST NET_ADMIN NET_RAW IPC_LOCK IPC_OWNER SYS_RAWIO SYS_CHROOT SYS_PTRACE SYS_PACCT SYS_ADMIN SYS_NICE
        SYS_RESOURCE SYS_TIME SYS_TTY_CONFIG MKNOD LEASE AUDIT_WRITE AUDIT_CONTROL SETFCAP MAC_OVERRIDE MAC_ADMIN SYSLOG
        WAKE_ALARM BLOCK_SUSPEND AUDIT_READ PERFMON BPF CHECKPOINT_RESTORE
    )
    for name in "${names[@]}"; do echo "\"CAP_$name\""; done | paste -sd ,
}

# Words as JSON strings; none of them has a quote or a backslash in it.
json() { printf '"%s"\n' "$@" | paste -sd ,; }

# The mounts: those of every container, then machined's own. What a host may not have is left out.
mounts() {
    cat <<END
{"destination": "/proc", "type": "proc", "source": "proc", "options": ["nosuid", "noexec", "nodev"]},
{"destination": "/sys", "type": "sysfs", "source": "sysfs", "options": ["nosuid", "noexec", "nodev", "rw"]},
{"destination": "/sys/fs/cgroup", "type": "cgroup", "source": "cgroup", "options": ["nosuid", "noexec", "nodev", "rw"]},
{"destination": "/run", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755", "size=65536k"]},
{"destination": "/dev", "type": "bind", "source": "/dev", "options": ["rbind", "rshared", "rw"]}
END
    local path
    for path in /system/run/machined/machine.sock /.extra /etc/hosts /etc/resolv.conf; do
        [[ ! -e $path ]] ||
            echo ",{\"destination\": \"$path\", \"type\": \"bind\", \"source\": \"$path\", \"options\": [\"rbind\", \"rshared\", \"ro\"]}"
    done
    [[ ! -d /sys/firmware/efi/efivars ]] || cat <<END
,{"destination": "/sys/firmware/efi/efivars", "type": "efivarfs", "source": "efivarfs",
  "options": ["rw", "nosuid", "nodev", "noexec", "relatime"]}
END
}

# The bundle's config.json for a command line: the namespaces of network and process numbers are the host's, so they
# are not named; no seccomp, nothing masked or read-only.
config() {
    local all env
    all=$(capabilities)
    mapfile -t env <"$here/image-env"
    cat <<END
{
  "ociVersion": "1.0.2",
  "process": {
    "terminal": false,
    "user": {"uid": 0, "gid": 0},
    "args": [$(json "$@")],
    "env": [$(json "${env[@]}")],
    "cwd": "/",
    "capabilities": {"bounding": [$all], "effective": [$all], "permitted": [$all], "inheritable": [$all]},
    "rlimits": [{"type": "RLIMIT_NOFILE", "hard": 1024, "soft": 1024}]
  },
  "root": {"path": "rootfs", "readonly": false},
  "mounts": [$(mounts)],
  "linux": {
    "cgroupsPath": "/system/installer",
    "resources": {"devices": [{"allow": true, "access": "rwm"}]},
    "namespaces": [{"type": "mount"}, {"type": "ipc"}, {"type": "uts"}]
  }
}
END
}

# Run a command line in an image that is unpacked on the medium: container IMAGE ARG... The machine config is its stdin,
# and what it says goes to the kernel log, line by line. Its writable layer is in memory, as machined's containerd has
# it. Ends with its exit code.
container() {
    local image=$1 bundle=/run/bundle code
    shift
    prepare_host
    mkdir -p $bundle/{upper,work,rootfs}
    mount -t overlay -o "lowerdir=$here/$image,upperdir=$bundle/upper,workdir=$bundle/work" overlay $bundle/rootfs
    config "$@" >$bundle/config.json
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
