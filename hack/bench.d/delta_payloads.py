"""What the section `delta` upgrades from and to: roots of Debian's packages, packed reproducibly, each with the kernel and the
initramfs that belong to it.

    old       as Debian released it
    updated   its security updates, without the kernel's
    kernel    all security updates
    file      the old one, where one file of 12 MiB is another
    other     the updated one, packed by another compressor
"""

import hashlib
import json
import os
import shutil
from pathlib import Path

from run import MIB, quiet, say

PACKAGES = ("systemd,systemd-sysv,udev,dbus,containerd,runc,crun,iptables,nftables,openssh-server,curl,ca-certificates,python3,perl,"
            "git,vim-tiny,xfsprogs,e2fsprogs,lvm2,cryptsetup,dosfstools,etcd-server,etcd-client,kubernetes-client,podman,conntrack,"
            "ethtool,socat,tcpdump,bind9-dnsutils,openssl,libc-bin,linux-image-cloud-amd64,multipath-tools,open-iscsi,nfs-common,"
            "chrony,qemu-guest-agent,locales")
MAIN = "deb http://deb.debian.org/debian bookworm main"
SECURITY = "deb http://deb.debian.org/debian-security bookworm-security main"
# The kernel stays as it was released.
HOLD = "Package: linux-image-*\nPin: release l=Debian-Security\nPin-Priority: 100\n"
EPOCH = "1735689600"
LARGE_FILE = "usr/lib/one-large-file"


def squashfs(root, to, *options):
    quiet("mksquashfs", root, to, *options, "-b", "128K", "-all-root", "-no-xattrs", "-noappend", "-mkfs-time", EPOCH,
          "-all-time", EPOCH, "-quiet", "-no-progress")


def debootstrap(home, root, sources, hold):
    """Unpack Debian into `root`."""
    tar = home / "root.tar"
    exclude = [f"--dpkgopt=path-exclude=/usr/share/{part}/*" for part in ("doc", "man", "locale")]
    (home / "hold").write_text(HOLD)
    pinned = [f"--setup-hook=cp {home / 'hold'} \"$1\"/etc/apt/preferences.d/hold"] if hold else []
    quiet("mmdebstrap", "--quiet", "--variant=minbase", f"--include={PACKAGES}", *exclude, *pinned, "bookworm", tar, *sources,
          env={**os.environ, "SOURCE_DATE_EPOCH": EPOCH})
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir()
    quiet("tar", "-C", root, "-xf", tar)
    tar.unlink()
    for gone in ("var/cache", "var/log", "var/lib/apt/lists"):
        shutil.rmtree(root / gone, ignore_errors=True)


class Noise:
    """Bytes that do not compress and are the same each time."""

    def __init__(self, seed):
        self.seed = seed

    def bytes(self, count):
        return hashlib.shake_128(self.seed.encode()).digest(count)


def listed(root):
    """Size and digest of each file."""
    files = (file for file in sorted(root.rglob("*")) if file.is_file() and not file.is_symlink())
    return {str(file.relative_to(root)): [file.stat().st_size, hashlib.sha256(file.read_bytes()).hexdigest()] for file in files}


def finish(home, name, root):
    """Pack a root; its kernel and its initramfs are not in the squashfs, as with an image that is installed."""
    making = home / f"{name}.making"
    shutil.rmtree(making, ignore_errors=True)
    making.mkdir()
    for to, pattern in (("vmlinuz", "vmlinuz-*"), ("initramfs", "initrd.img-*")):
        for found in (root / "boot").glob(pattern):
            found.rename(making / to)
    (making / "files.json").write_text(json.dumps(listed(root)))
    squashfs(root, making / "rootfs.squashfs", "-comp", "zstd", "-Xcompression-level", "9")
    if name == "updated":
        squashfs(root, making / "other.squashfs", "-comp", "xz")
    making.rename(home / name)


def roots(home):
    """The directory of each root, made once. The archive of security updates moves on, so the figures are of that day."""
    home.mkdir(parents=True, exist_ok=True)
    for name, sources, hold in (("old", (MAIN,), False), ("updated", (MAIN, SECURITY), True), ("kernel", (MAIN, SECURITY), False)):
        if (home / name).exists() and (name != "old" or (home / "file").exists()):
            continue
        say(f"making the {name} root from Debian's packages (minutes)")
        root = home / "root"
        debootstrap(home, root, sources, hold)
        large = root / LARGE_FILE
        large.write_bytes(Noise("old").bytes(12 * MIB))
        boot = home / "boot"
        shutil.rmtree(boot, ignore_errors=True)
        shutil.copytree(root / "boot", boot)
        finish(home, name, root)
        if name == "old":
            shutil.rmtree(root / "boot")
            shutil.copytree(boot, root / "boot")
            large.write_bytes(Noise("new").bytes(12 * MIB))
            finish(home, "file", root)
        shutil.rmtree(root)
        shutil.rmtree(boot)
    return {name: home / name for name in ("old", "updated", "kernel", "file")}


def changed(home, name):
    """Which share of the bytes is in files that are others than in the old root."""
    old, new = (json.loads((home / of / "files.json").read_text()) for of in ("old", name))
    return sum(size for path, (size, digest) in new.items() if old.get(path) != [size, digest]) / sum(size for size, _ in new.values())


def payload(home, name, to: Path, checksum):
    """The payload of a root. Only the root named `kernel` has another kernel and initramfs than the old one."""
    shutil.rmtree(to, ignore_errors=True)
    to.mkdir()
    boot = home / ("kernel" if name == "kernel" else "old")
    os.link(boot / "vmlinuz", to / "vmlinuz")
    os.link(boot / "initramfs", to / "initramfs.zst")
    squashfs_of = home / "updated/other.squashfs" if name == "other" else home / name / "rootfs.squashfs"
    os.link(squashfs_of, to / "rootfs.squashfs")
    checksum(to)
