"""Section `upgrade`: the verbs of an installed system. Section `image`: disk images. Section `latency`: how long reads
take while `stage` runs."""

import json
import shutil
import signal
import subprocess
import time

from disk import SLOT_A, Node
from run import MIB, Contender, quiet, traced
from sources import make_payload, write_checksums
from table import goal, rows_of, show, why_missing


def upgrade_section(disk, sources, bench):
    node = Node(disk, bench.installer, sources.payload, bench.where)
    new, changed = bench.where / "new", bench.where / "changed"
    make_payload(new, sources.mib, bench.installer, "1.1.0")
    shutil.rmtree(changed, ignore_errors=True)
    shutil.copytree(new, changed)
    (changed / "initramfs.xz").write_bytes((sources.payload / "initramfs.xz").read_bytes())
    write_checksums(changed, bench.installer, "1.2.0")
    verb = lambda payload, *extra: node.argv("upgrade", f"--source=dir:{payload}", "--retry-bad", *extra)
    dry = Contender("upgrade --dry-run", verb(changed, "--dry-run"), "the plan only", ours=True,
                    goal=("100 ms", lambda _: 0.1))
    whole = Contender("upgrade, whole", verb(new), "everything, read-back", ours=True)
    again = Contender("the same upgrade again", verb(new), "slot compared", ours=True)
    status = Contender("status", node.argv("status"), "boot files", ours=True, goal=("60 ms", lambda _: 0.06))
    # What `status` reads of both slots: kernel and initramfs, 20 MiB each.
    boot_files = Contender("dd of as many bytes as both slots' boot files", ["dd", f"if={disk.device}", "of=/dev/null", "bs=512k",
                                                                             f"skip={SLOT_A // MIB * 2}", "count=80", "iflag=direct"])
    status.floor = lambda m: m[boot_files.name]
    # A pending trial would be verified, too: usually there is none. What is dry leaves the slot as `whole` needs it.
    dry.before = node.go_back
    rows = rows_of([boot_files, dry, whole, again, status], bench.rounds, bench.where)
    targets = (disk.file, disk.device)
    written = lambda c: traced(c, bench.where, targets, (new, changed)).get("target", 0)
    rows[3]["bytes"] = {"target": written(again)}
    goal(rows[3], "0 bytes written", rows[3]["bytes"]["target"], 0)
    # After the rollback slot B still holds the files of 1.1.0, and all but one are those of 1.2.0.
    quiet(*node.argv("rollback"))
    one = Contender("upgrade, one file of 12 MiB changed", verb(changed), "everything, read-back", ours=True)
    n = written(one)
    rows.append({"name": one.name, "ours": True, "verifies": one.verifies, "bytes": {"target": n},
                 "text": f"{n / MIB:.1f} MiB written"})
    goal(rows[-1], "its 12 MiB and 4 MiB of tables", n, 16 * MIB)
    bounded_memory(rows)
    show(f"Verbs on an installed disk, {sources.mib} MiB payload", rows)
    return rows


def bounded_memory(rows):
    for row in rows:
        if "peak_mib" in row and row["ours"]:
            goal(row, "16 MiB", row["peak_mib"], 16)


GENIMAGE = """
image esp.vfat {{ vfat {{ files = {{ "{small}" }} }} size = 300M temporary = true }}
image slot.vfat {{ vfat {{ files = {{ {files} }} }} size = {slot}M temporary = true }}
image disk.raw {{
    hdimage {{ partition-table-type = gpt }}
    partition esp {{ image = esp.vfat partition-type-uuid = U }}
    partition boot-a {{ image = slot.vfat partition-type-uuid = L }}
}}
"""


def image_section(disk, sources, bench):
    home = bench.where / "images"
    shutil.rmtree(home, ignore_errors=True)
    (home / "root").mkdir(parents=True)
    out = home / "out"
    fresh = lambda: [file.unlink() for file in home.glob("out*")]
    slot = disk.slot_bytes
    make = lambda kind: Contender(
        f"image --kind {kind}", [bench.installer, "image", f"--kind={kind}", f"--out={out}.{kind}",
                                 f"--source=dir:{sources.payload}", "--progress=none", f"--slot-size={slot}",
                                 f"--disk-size={max(2048, 2 * slot // MIB + 512)}MiB"],
        "everything, read-back", ours=True, before=fresh)
    raw, qcow2 = make("raw"), make("qcow2")
    raw.goal = ("1.5 dd conv=fsync", lambda m: 1.5 * m["dd conv=fsync"])
    base = home / "base.raw"
    quiet(*[str(a).replace(f"{out}.raw", str(base)) for a in raw.argv])
    convert = Contender("qemu-img convert to qcow2, sync", ["sh", "-c", f"qemu-img convert -O qcow2 {base} {out}.qcow2 && sync {out}.qcow2"],
                        "nothing", before=fresh, missing=why_missing("qemu-img"))
    files = ", ".join(f'"{sources.payload}/{name}"' for name in ("vmlinuz", "initramfs.xz", "rootfs.squashfs"))
    (home / "genimage.cfg").write_text(GENIMAGE.format(files=files, small=sources.payload / "os-release", slot=slot // MIB))
    genimage = Contender(
        "genimage (two FAT partitions), sync",
        ["sh", "-c", f"rm -rf {home}/tmp && genimage --config {home}/genimage.cfg --rootpath {home}/root --tmppath {home}/tmp "
                     f"--inputpath {home} --outputpath {home}/genimage && sync {home}/genimage/disk.raw"],
        "nothing", missing=why_missing("genimage", "mkdosfs", "mcopy"))
    dd = Contender("dd conv=fsync", ["dd", f"if={sources.raw}", f"of={out}.dd", "bs=1M", "conv=fsync"], before=fresh)
    rows = rows_of([dd, raw, qcow2, convert, genimage, *isos(sources, out, fresh, bench)], bench.rounds, bench.where,
                   (home,), (sources.payload,))
    medians = {row["name"]: row["seconds"] for row in rows if "seconds" in row}
    show(f"Disk images with a payload of {sources.mib} MiB, fresh files, flushed", rows, [("/dd", medians["dd conv=fsync"])],
         [("written MiB", lambda row: f"{sum(row['bytes'].get(k, 0) for k in ('target', 'temporary')) / MIB:.0f}" if "bytes" in row else None)])
    return rows


def isos(sources, out, fresh, bench):
    """Our ISO, and grub-mkrescue with the same files."""
    mkrescue = Contender("grub-mkrescue, sync", ["sh", "-c", f"grub-mkrescue -o {out}.iso {sources.payload} 2>/dev/null && sync {out}.iso"],
                         "nothing", before=fresh, missing=why_missing("grub-mkrescue", "xorriso"))
    ours = Contender("image --kind iso", [bench.installer, "image", "--kind=iso", f"--out={out}.iso", "--progress=none",
                                          f"--source=dir:{sources.payload}"], "everything, read-back", ours=True, before=fresh)
    return [ours, mkrescue]


def latency_section(disk, sources, bench):
    """Random direct reads of 4 KiB, one at a time, from the same disk while `stage` runs."""
    old, new = bench.where / "old", bench.where / "new"
    for directory, version in ((old, "1.0.0"), (new, "1.1.0")):
        make_payload(directory, min(sources.mib, 100), bench.installer, version)
    node = Node(disk, bench.installer, old, bench.where)
    stage = lambda *extra, prefix=(): node.argv("stage", f"--source=dir:{new}", "--retry-bad", *extra, prefix=prefix)
    modes = [("reader alone", None), ("stage", stage()),
             ("stage, idle I/O class and nice 19", stage(prefix=("ionice", "-c3", "nice", "-n19"))),
             ("stage --limit-rate=50MiB/s", stage("--limit-rate=50MiB/s")), ("stage --limit-rate=20MiB/s", stage("--limit-rate=20MiB/s"))]
    rows, at = [], node.disk.slot_bytes * 2 + 403 * MIB
    quiet("dd", "if=/dev/urandom", f"of={disk.device}", "bs=1M", f"seek={at // MIB + 1}", "count=1024", "oflag=direct")
    # A fast disk whose scheduler has no I/O classes (NVMe, virtio), one whose scheduler has them, and a slow disk.
    for scheduler, speed in (("none", 0), ("bfq", 0), ("none", 100)):
        disk.scheduler(scheduler)
        samples = {}
        for _ in range(min(bench.rounds, 3)):
            for name, argv in modes:
                if argv:
                    node.go_back()
                disk.throttle(speed * 1_000_000)
                samples.setdefault(name, []).append(beside(disk, argv, at + MIB, bench.where))
                disk.throttle(0)
        for name, runs in samples.items():
            middle = sorted(runs, key=lambda run: run["p99_us"])[len(runs) // 2]
            text = f"p50 {middle['p50_us']:7.0f} us  p99 {middle['p99_us']:7.0f} us  {middle['iops']:6.0f} reads/s  for {middle['seconds']:.1f} s"
            kind = f"{scheduler}{f', {speed} MB/s' if speed else ''}"
            rows.append({"name": f"{kind}: {name}", "ours": False, "verifies": "", "text": text, **middle})
            rows[-1].pop("seconds")
    disk.scheduler("none")
    show(f"A reader beside `stage` of {min(sources.mib, 100)} MiB (4 KiB, random, direct; run of the median p99)", rows)
    return rows


def beside(disk, argv, offset, where):
    """Percentiles of a reader while a command runs, or for three seconds without one."""
    report = where / "fio.json"
    fio = subprocess.Popen(
        ["fio", "--name=reader", f"--filename={disk.device}", "--rw=randread", "--bs=4k", "--direct=1", "--ioengine=psync",
         f"--offset={offset}", "--size=1000M", "--time_based", "--runtime=600", "--output-format=json", f"--output={report}",
         "--percentile_list=50:99"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        time.sleep(0.5)
        begun = time.monotonic()
        quiet(*argv) if argv else time.sleep(3)
        seconds = time.monotonic() - begun
    finally:
        fio.send_signal(signal.SIGINT)
        fio.wait()
    text = report.read_text()
    read = json.loads(text[text.index("{"):])["jobs"][0]["read"]
    half, most = (read["clat_ns"]["percentile"][f"{p}.000000"] / 1000 for p in (50, 99))
    return {"p50_us": half, "p99_us": most, "iops": read["iops"], "seconds": seconds}
