"""The disk: a loop device with direct I/O on a file. This measures the disk under the file, not the page cache."""

import atexit
import json
from pathlib import Path

from run import MIB, quiet

# Byte offset of BOOT-A on every disk that Slipway lays out.
SLOT_A = 302 * MIB
BLKIO = Path("/sys/fs/cgroup/blkio")


# Loop devices that we hold. Others must not be detached: somebody else may have taken a device that we gave back.
attached = set()


def loop(file, *options):
    device = Path(quiet("losetup", "-f", "--show", "--direct-io=on", *options, file).strip())
    attached.add(device)
    return device


def throttle(device, bytes_per_second):
    """Limit a device with cgroup v1, for all groups, because the kernel may write later. 0 removes the limit."""
    number = Path(f"/sys/block/{device.name}/dev").read_text().strip()
    for limit in ("read", "write"):
        (BLKIO / f"blkio.throttle.{limit}_bps_device").write_text(f"{number} {bytes_per_second}")


def detach(device):
    # The next user of this device would inherit limit and scheduler.
    throttle(device, 0)
    Path(f"/sys/block/{device.name}/queue/scheduler").write_text("none")
    attached.discard(device)
    quiet("losetup", "-d", device)


atexit.register(lambda: [detach(device) for device in sorted(attached)])


class Disk:
    """A disk and its slot A, each as a device. Before each run the slot is overwritten with `other`, so that it never
    holds what the run is going to write."""

    def __init__(self, where, mib, slots=2):
        self.file = where / "disk.raw"
        self.slot_bytes = max(mib + mib // 16 + 16, 64) * MIB
        self.file.unlink(missing_ok=True)
        with self.file.open("wb") as file:
            file.truncate(SLOT_A + 2 * self.slot_bytes + 4096 * MIB)
        self.device = loop(self.file)
        # -P makes it a disk that can have partitions: coreos-installer wants a whole disk.
        self.slot = loop(self.file, "-P", "-o", SLOT_A, "--sizelimit", self.slot_bytes)
        self.other = where / "other.raw"
        quiet("sh", "-c", f"head -c {self.slot_bytes} /dev/urandom > {self.other}")
        # The first write to fresh blocks is slower, so do that here.
        for slot in range(slots):
            self.overwrite(slot)

    def close(self):
        """Free the disk space."""
        for device in (self.slot, self.device):
            detach(device)
        self.file.unlink()

    def overwrite(self, slot=0):
        at = (SLOT_A + slot * self.slot_bytes) // MIB
        quiet("dd", f"if={self.other}", f"of={self.device}", "bs=1M", f"seek={at}", "oflag=direct", "conv=notrunc,fsync")

    def throttle(self, bytes_per_second):
        for device in (self.device, self.slot):
            throttle(device, bytes_per_second)

    def scheduler(self, name):
        Path(f"/sys/block/{self.device.name}/queue/scheduler").write_text(name)


class Node:
    """A disk with version 1.0.0 in slot A, as seen by the system booted from it."""

    def __init__(self, disk, installer, payload, where):
        self.disk, self.installer, self.where = disk, installer, where
        quiet(installer, "install", "--disk", disk.device, "--source", f"dir:{payload}", "--force", "--progress=none",
              "--format-data=false", f"--slot-size={disk.slot_bytes}")
        guid = self.status()["disk_guid"]
        (where / "cmdline").write_text(f"quiet slipway.slot=A slipway.disk={guid} slipway.try=0")

    def argv(self, *args, prefix=()):
        """Run a verb as in the running system: its kernel command line is mounted over /proc/cmdline."""
        bind = f'mount --bind {self.where}/cmdline /proc/cmdline && exec "$@"'
        verb = [self.installer, args[0], "--disk", self.disk.device, "--progress=none", *args[1:]]
        return ["unshare", "-m", "sh", "-c", bind, "sh", *prefix, *verb]

    def go_back(self):
        """Roll back and overwrite slot B, so that the next upgrade cannot reuse its content."""
        if self.status()["slots"]["B"]["state"] != "empty":
            quiet(*self.argv("rollback"))
        self.disk.overwrite(1)

    def status(self):
        return json.loads(quiet(self.installer, "status", "--disk", self.disk.device, "--output=json", "--progress=none"))
