"""Runs and table of hack/bench, which says what is measured."""

import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

from payload import MIB, make_payload

rounds, mib, where = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
installer = Path("out/installer")

def timed(argv, **kwargs):
    """Run under time(1): wall seconds, CPU seconds, peak resident KiB, stderr lines with the time of arrival."""
    argv = ["/usr/bin/time", "-f", "TIME %e %U %S %M", *map(str, argv)]
    lines = []
    with subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, **kwargs) as child:
        for line in child.stderr:
            lines.append((time.monotonic(), line.strip()))
    if child.returncode:
        sys.exit("failed: " + "\n".join(text for _, text in lines))
    wall, user, system, peak = lines[-1][1].split()[1:]
    return float(wall), float(user) + float(system), int(peak), lines[:-1]


def install(image, payload, slot):
    """Seconds of writing and of verifying the slot, of all of it, CPU seconds, peak KiB."""
    wall, cpu, peak, lines = timed([
        installer, "install", "--disk", image, "--source", f"dir:{payload}", "--force", "--progress", "json",
        "--slot-size", f"{slot}MiB",
    ])
    steps = [(at, json.loads(text)) for at, text in lines if text.startswith("{")]
    steps = [(at, event["text"]) for at, event in steps if event["event"] in ("phase", "step")]
    seconds = {}
    for (start, text), (end, _) in zip(steps, steps[1:]):
        seconds[" ".join(text.split()[:2]).rstrip(":")] = end - start
    return {
        "slot write": seconds["write BOOT-A"],
        "slot write + read-back": seconds["write BOOT-A"] + seconds["verify BOOT-A"],
        "check payload": seconds["check payload"],
        "whole install": wall,
        "cpu": cpu,
        "peak": peak / 1024,
    }


def dd(payload, target, flags):
    """One stream of the payload's files through dd, flushed."""
    files = " ".join(f"'{payload}/{name}'" for name in ("vmlinuz", "initramfs.xz", "rootfs.squashfs"))
    start = time.monotonic()
    subprocess.run(f"cat {files} | dd of='{target}' bs=1M iflag=fullblock status=none {flags}", shell=True, check=True)
    return time.monotonic() - start


where.mkdir(parents=True, exist_ok=True)
payload, image, raw = where / "payload", where / "disk.raw", where / "dd.raw"
make_payload(payload, mib, installer)
slot = max(mib + mib // 32 + 8, 64)
image.unlink(missing_ok=True)
with image.open("wb") as file:
    file.truncate((2 * slot + 403 + 100) * MIB)
warm = install(image, payload, slot)
dd(payload, raw, "conv=notrunc,fsync")

rows = {}
for _ in range(rounds):
    for name, value in install(image, payload, slot).items():
        rows.setdefault(name, []).append(value)
    rows.setdefault("dd conv=fsync", []).append(dd(payload, raw, "conv=notrunc,fsync"))
    rows.setdefault("dd oflag=direct conv=fsync", []).append(dd(payload, raw, "oflag=direct conv=notrunc,fsync"))

base = statistics.median(rows["dd conv=fsync"])
print(f"{mib} MiB payload, medians of {rounds} interleaved rounds (min to max)")
for name in ("dd conv=fsync", "dd oflag=direct conv=fsync", "slot write", "slot write + read-back", "check payload",
             "whole install"):
    values = rows[name]
    median = statistics.median(values)
    print(f"  {name:<28} {median:7.3f} s  ({min(values):.3f} to {max(values):.3f})  {median / base:5.2f} x dd conv=fsync")
print(f"  CPU of a whole install       {statistics.median(rows['cpu']):7.3f} s")
print(f"  peak memory                  {max(rows['peak']):7.1f} MiB")
