"""Section `slot`: write a slot from every source, compared with the limits of the machine and other installers.
Sections `throttle` and `growth`: the same on slower disks, and with larger payloads and disks."""

import shutil

from disk import SLOT_A, Disk
from peers import peers
from run import MIB, Contender, say
from sources import Sources
from table import goal, rows_of, show, why_missing

HASHED = "file digests"
IMAGE = "blob, diff_id and file digests"
# main.rs sets this too: the C library then returns freed buffers to the system.
MALLOC = {"MALLOC_MMAP_THRESHOLD_": str(128 << 10)}


def seconds_w(m):
    return max(m["dd oflag=direct conv=fsync"], m["SHA-256 in memory"])


def seconds_r(m):
    return max(m["dd iflag=direct"], m["SHA-256 in memory"])


def limits(disk, sources, slot):
    """dd with the same bytes, and what the CPU work alone costs."""
    raw, over = sources.raw, disk.overwrite
    out = [f"of={disk.slot}", "bs=1M"]
    layer = sources.layer("gzip")
    # What the transfer alone costs: the registry's own work has no core of its own here.
    fetch = ["curl", "--silent", "--show-error", "--fail", "--cacert", sources.registry.authority, "--output", "/dev/null",
             sources.registry.blob(layer)]
    igzip = Contender("gunzip alone, ISA-L", ["sh", "-c", f"igzip -d -c {layer} > /dev/null"])
    igzip.missing = why_missing("igzip")
    return [
        Contender("dd conv=fsync", ["dd", f"if={raw}", *out, "conv=fsync"], before=over),
        Contender("dd oflag=direct conv=fsync", ["dd", f"if={raw}", *out, "oflag=direct", "conv=fsync"], before=over),
        Contender("dd iflag=direct", ["dd", f"if={disk.slot}", "of=/dev/null", "bs=1M", f"count={sources.mib}", "iflag=direct"]),
        both_at_once(raw, disk, sources),
        Contender("SHA-256 in memory", [slot, "sha256", raw], prints_seconds=True),
        Contender("SHA-256, two digests at once", [slot, "sha256-twice", raw], prints_seconds=True),
        Contender("gunzip alone, ours", [slot, "gunzip", layer]),
        igzip,
        Contender("unzstd alone, ours", [slot, "unzstd", sources.layer("zstd")]),
        Contender("curl of the layer, TLS", fetch),
        qemu_img(raw, disk),
    ]


def both_at_once(raw, disk, sources):
    """Write the bytes and read as many from the other slot at the same time: the limit of the disk for both."""
    write = f"dd if={raw} of={disk.slot} bs=1M oflag=direct conv=fsync"
    read = f"dd if={disk.device} of=/dev/null bs=1M skip={(SLOT_A + disk.slot_bytes) // MIB} count={sources.mib} iflag=direct"
    return Contender("both direct, at once", ["sh", "-c", f"{write} & {read} && wait $!"], before=disk.overwrite)


def qemu_img(raw, disk):
    """A copy as dd makes it, by a program optimised for that."""
    direct = ["-t", "none", "-T", "none"]
    argv = ["qemu-img", "convert", "-n", "-f", "raw", "-O", "raw", *direct, raw, disk.slot]
    return Contender("qemu-img convert", argv, before=disk.overwrite, missing=why_missing("qemu-img"))


def ours(disk, sources, slot, wanted=None):
    """A slot from each source, without and with read-back."""
    goals = {("dir", False): ("1.15 W and dd conv=fsync", lambda m: min(1.15 * seconds_w(m), m["dd conv=fsync"]))}
    for name, share in (("dir", 0.85), ("oci plain", 0.90), ("oci gzip", 0.95), ("oci zstd", 0.95), ("registry gzip TLS", 1.10)):
        goals[name, True] = (f"{share:.2f} (W + R)", lambda m, share=share: share * (seconds_w(m) + seconds_r(m)))
    found = []
    for name, source, env in sources.by_name():
        for back in (False, True):
            if wanted is not None and name not in wanted:
                continue
            argv = [slot, "write", disk.device, source, str(disk.slot_bytes), *(["--read-back"] if back else [])]
            verifies = (HASHED if name == "dir" else IMAGE) + (", read-back" if back else ", no read-back")
            found.append(Contender(f"{name}{', read-back' if back else ''}", argv, verifies, ours=True, env=env | MALLOC,
                                   before=disk.overwrite, goal=goals.get((name, back)),
                                   floor=(lambda m: m.get("both direct, at once")) if back else None))
    return found


def bounded(rows):
    """Add the goals that all rows of ours have."""
    for row in rows:
        if row["ours"] and "seconds" in row:
            limit = 24 if "TLS" in row["name"] else 16
            goal(row, f"{limit} MiB", row["peak_mib"], limit)
            if "bytes" in row:
                goal(row, "no temporary bytes", row["bytes"].get("temporary", 0), 0)


def processor_goals(rows):
    """The processor time of an image beside that of a directory. The machine's own limit stands beside the goal: a directory's
    time, and the digests and the decompression that an image has more."""
    cpu = {row["name"]: row["cpu"] for row in rows if "cpu" in row}
    seconds = {row["name"]: row["seconds"] for row in rows if "seconds" in row}
    one, two = seconds["SHA-256 in memory"], seconds["SHA-256, two digests at once"]
    directory, gunzip, unzstd = (cpu[name] for name in ("dir, read-back", "gunzip alone, ours", "unzstd alone, ours"))
    packed = lambda bare: ("CPU 1.1 (dir + decompressor)", 1.1 * (directory + bare), directory + bare + two)
    goals = {
        "oci plain, read-back": ("CPU 1.15 dir", 1.15 * directory, directory + two - one),
        "oci gzip, read-back": packed(gunzip),
        "oci zstd, read-back": packed(unzstd),
    }
    for row in rows:
        if row["name"] in goals:
            text, limit, floor = goals[row["name"]]
            goal(row, text, row["cpu"], limit, floor)


def mib(row, what):
    return f"{row['bytes'].get(what, 0) / MIB:.1f}" if "bytes" in row else None


def slot_section(disk, sources, slot, bench):
    others = peers(disk, sources, bench.where, bench.peers)
    for peer in others:
        peer.before = disk.overwrite
    contenders = [*limits(disk, sources, slot), *ours(disk, sources, slot), *others]
    rows = rows_of(contenders, bench.rounds, bench.where, (disk.file, disk.device, disk.slot),
                   (sources.where, bench.where / "rauc", bench.where / "swupdate"))
    bounded(rows)
    medians = {row["name"]: row["seconds"] for row in rows if "seconds" in row}
    w, r = seconds_w(medians), seconds_r(medians)
    names = {peer.name for peer in others}
    fastest = min((row["seconds"] for row in rows if row["name"] in names and "seconds" in row), default=None)
    for row in rows:
        if row["ours"] and "TLS" not in row["name"] and fastest:
            goal(row, "the fastest peer", row["seconds"], fastest)
    processor_goals(rows)
    show(f"{sources.mib} MiB into a slot, flushed; W = {w:.3f} s, R = {r:.3f} s", rows,
         [("/dd", medians["dd conv=fsync"]), ("/W", w), ("/(W+R)", w + r), ("/both", medians["both direct, at once"])],
         [("read MiB", lambda row: mib(row, "read")), ("temp MiB", lambda row: mib(row, "temporary"))])
    return rows


def throttle_section(disk, sources, slot, bench):
    every = []
    for speed in (500,) if bench.quick else (500, 100):
        found = ours(disk, sources, slot, {"dir", "oci gzip"})
        write = [c for c in limits(disk, sources, slot) if c.name.startswith(("dd oflag", "dd iflag"))]
        dd = lambda m: m["dd oflag=direct conv=fsync"]
        for c in found:
            back = "read-back" in c.name
            c.goal = ("1.05 (dd + dd)", lambda m: 1.05 * (dd(m) + m["dd iflag=direct"])) if back else ("1.05 dd", lambda m: 1.05 * dd(m))
        for c in (*write, *found):
            c.before = lambda: (disk.throttle(0), disk.overwrite(), disk.throttle(speed * 1_000_000))
        try:
            rows = rows_of([*write, *found], min(bench.rounds, 3), bench.where)
        finally:
            disk.throttle(0)
        direct = next(row["seconds"] for row in rows if row["name"].startswith("dd oflag"))
        show(f"The same on a disk of {speed} MB/s (reads and writes each)", rows, [("/dd", direct)])
        every += [row | {"name": f"{speed} MB/s: {row['name']}"} for row in rows]
    return every


def growth_section(slot, bench):
    """Seconds by size of the payload, peak memory of all sources at the largest size, seconds by size of the disk."""
    rows = []
    where = bench.where / "growth"
    largest = 3072
    if shutil.disk_usage(bench.where).free < 10 * largest * MIB:
        largest = 1024
        say(f"LESS THAN 30 GiB FREE: growth up to {largest} MiB only")
    for size in (32, 256) if bench.quick else (30, 300, largest):
        sources = Sources(where, size, bench.installer, bench.registry)
        sources.raw.unlink()
        disk = Disk(where, size, slots=1)
        cases = [c for c in ours(disk, sources, slot, None if size > 300 else {"dir"}) if "read-back" in c.name]
        for c in cases:
            c.goal = None
        rounds = 1 if size > 300 else bench.rounds
        part = [row | {"name": f"{size} MiB: {row['name']}"} for row in rows_of(cases, rounds, bench.where)]
        bounded(part)
        for row in part:
            row["verifies"] = f"{row['seconds'] / size * 1000:.2f} ms a MiB"
        rows += part
        disk.close()
        shutil.rmtree(where)
    first, last = rows[0], next(row for row in reversed(rows) if ": dir" in row["name"])
    per = lambda row: row["seconds"] / int(row["name"].split()[0])
    goal(last, "1.2 of the cost a MiB of the smallest", per(last), 1.2 * per(first))
    sizes = {"4 GiB": 4 << 30, "256 GiB": 256 << 30, "16 TiB": (16 << 40) - (1 << 30)}
    installs = []
    for name, size in sizes.items():
        image = bench.where / "sparse.raw"

        def fresh(size=size):
            image.unlink(missing_ok=True)
            with image.open("wb") as file:
                file.truncate(size)
        argv = [bench.installer, "install", "--disk", image, "--source", f"dir:{bench.sources.payload}", "--progress=none",
                f"--slot-size={bench.disk.slot_bytes}", "--format-data=false"]
        installs.append(Contender(f"install, sparse disk of {name}", argv, "everything, read-back", ours=True, before=fresh))
    installs[-1].goal = ("1.2 of the smallest disk", lambda m: 1.2 * m[installs[0].name])
    rows += rows_of(installs, bench.rounds, bench.where)
    bounded(rows[-len(installs):])
    show("Growth", rows)
    (bench.where / "sparse.raw").unlink()
    return rows
