"""Section `delta`: what an upgrade moves over the network, counted by a proxy; how long it takes, there and over a slow line; how
much memory a payload of 3 GiB takes."""

import os
import shutil
import socket
import subprocess
import time

from delta_payloads import changed, payload, roots
from delta_peers import rows as rows_of_peers
from disk import Disk, Node
from line import Line
from run import MIB, Contender, quiet, timed
from sources import make_payload, plain_layout, write_checksums
from table import goal, show

# A line of 50 Mbit/s whose answers take 40 ms.
SLOW = {"bits": 50_000_000, "delay": 0.02}
LARGE_MIB = 3072
# How much of the large payload changes: so many places of 1 MiB.
LARGE_CHANGES = 120


def registry(home):
    """Debian's registry without TLS: a proxy counts what passes."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (home / "registry.yml").write_text(
        f"version: 0.1\nlog: {{level: error, accesslog: {{disabled: true}}}}\n"
        f"storage: {{filesystem: {{rootdirectory: {home}/registry}}}}\nhttp: {{addr: '127.0.0.1:{port}'}}\n")
    server = subprocess.Popen(["docker-registry", "serve", home / "registry.yml"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for _ in range(300):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return server, port
        time.sleep(0.1)
    raise RuntimeError("docker-registry does not listen after 30 s")


def publish(bench, home, source, name, port):
    """Push a payload as it is and prepared; the size of its layer, and the file that it is in (None, as it is gone)."""
    layout = home / "image"
    plain_layout(source, layout)
    for tag in ("full", "delta"):
        if tag == "delta":
            quiet(bench.installer, "chunk", f"oci:{layout}:1", "--progress=none")
        quiet(bench.installer, "push", f"oci:{layout}:1", f"docker://127.0.0.1:{port}/{name}:{tag}", "--plain-http", "--progress=none")
    size = max(blob.stat().st_size for blob in (layout / "blobs/sha256").iterdir())
    shutil.rmtree(layout)
    return size


class Case:
    """A payload in the registry, and what is asked of the upgrade to it."""

    def __init__(self, name, text, layer, limits):
        self.name, self.text, self.layer, self.limits = name, text, layer, limits

    def run(self, bench, node, line, home, tag, rounds):
        verb = node.argv("upgrade", f"--source=docker://127.0.0.1:{line.port}/{self.name}:{tag}", "--plain-http", "--retry-bad")
        runs = []
        for _ in range(rounds):
            node.go_back()
            line.take()
            run = timed(Contender(f"{self.text}, {tag}", verb, ours=True), home)
            runs.append((run, *line.take()))
        seconds = sorted(run["seconds"] for run, *_ in runs)
        return {"name": f"{self.text}, {tag}", "ours": True, "verifies": "", "seconds": seconds[len(seconds) // 2],
                "least": seconds[0], "most": seconds[-1], "cpu": runs[0][0]["cpu"], "peak_mib": max(run["peak"] for run, *_ in runs),
                "moved": max(moved for _, moved, _ in runs), "requests": max(asked for *_, asked in runs), "layer": self.layer}

    def both(self, bench, node, line, home, rounds):
        full, delta = (self.run(bench, node, line, home, tag, rounds) for tag in ("full", "delta"))
        for text, value, limit in self.limits(full, delta):
            goal(delta, text, value, limit)
        return [full, delta]


def share(row):
    return f"{row['moved'] * 100 / row['layer']:.2f} %" if "layer" in row else None


def usual(most_share, base):
    """At most this share of `base` bytes, in few requests, in little memory, and hardly slower than all of it."""
    def limits(full, delta):
        return (f"{most_share:.1%} of {base / MIB:.0f} MiB", delta["moved"] / base, most_share), ("60 requests", delta["requests"], 60), \
            ("24 MiB", delta["peak_mib"], 24), ("1.15 x the full pull", delta["seconds"], 1.15 * full["seconds"])
    return limits


def delta_section(bench):
    home, made = bench.where / "delta", bench.where.parent / "delta"
    home.mkdir(exist_ok=True)
    found = roots(made)
    server, port = registry(home)
    try:
        return small(bench, home, made, found, port) + large(bench, home, port)
    finally:
        server.terminate()
        server.wait()


def small(bench, home, made, found, port):
    def checksum(version):
        return lambda directory: write_checksums(directory, bench.installer, version)

    payload(made, "old", home / "old", checksum("1.0.0"))
    line, cases = Line(port), []
    for number, (name, text) in enumerate((("updated", "security updates"), ("file", "one file of 12 MiB"),
                                           ("kernel", "updates, kernel, initramfs"), ("other", "another compressor"))):
        payload(made, name, home / "new", checksum(f"1.0.{number + 1}"))
        squashfs, kernel, initramfs = ((home / "new" / file).stat().st_size for file in ("rootfs.squashfs", "vmlinuz", "initramfs.zst"))
        layer = publish(bench, home, home / "new", name, port)
        if name != "other":
            text = f"{text}, {changed(made, name):.1%}"
        limits = {
            # 5.5 % where 4 % of the bytes are in changed files.
            "updated": lambda: usual(changed(made, name) * 5.5 / 4, layer),
            "file": lambda: usual(0.10, layer),
            # Of the squashfs 16 % where 16.7 % changed; kernel and initramfs come whole.
            "kernel": lambda: usual((squashfs * changed(made, name) * 16 / 16.7 + kernel + initramfs) / layer, layer),
            "other": lambda: usual(1.01, layer),
        }[name]()
        cases.append(Case(name, text, layer, limits))
    disk = Disk(home, max(case.layer for case in cases) // MIB + 1)
    node, rows = Node(disk, bench.installer, home / "old", home), []
    for case in cases:
        rows += case.both(bench, node, line, home, bench.rounds)
        if case.name != "other":
            rows += rows_of_peers(case.text, found["old"] / "rootfs.squashfs", found[case.name] / "rootfs.squashfs", home / "peer")
    slow = Line(port, **SLOW)
    first = cases[0]
    over = Case(first.name, f"{first.text}, 50 Mbit/s and 40 ms", first.layer,
                lambda full, delta: [("1/8 of the full pull", delta["seconds"], full["seconds"] / 8)])
    rows += over.both(bench, node, slow, home, 1)
    show("Upgrades from a registry", rows, extra=(("of the layer", share), ("requests", lambda row: row.get("requests"))))
    disk.close()
    shutil.rmtree(home / "old")
    return rows


def change(file):
    """Change a file of a payload at places that are spread evenly."""
    size = file.stat().st_size
    with file.open("r+b") as data:
        for n in range(LARGE_CHANGES):
            data.seek(MIB + n * ((size - 2 * MIB) // LARGE_CHANGES))
            data.write(os.urandom(MIB))


def large(bench, home, port):
    """3 GiB, of which 4 % change. One round: it is about memory."""
    if bench.quick:
        return []
    source = home / "large"
    make_payload(source, LARGE_MIB, bench.installer)
    disk = Disk(home, LARGE_MIB, slots=0)
    node = Node(disk, bench.installer, source, home)
    change(source / "rootfs.squashfs")
    write_checksums(source, bench.installer, "1.1.0")
    layer = publish(bench, home, source, "large", port)
    shutil.rmtree(source)
    case = Case("large", "3 GiB, 4 % in 120 places", layer, lambda full, delta: [
        ("24 MiB", delta["peak_mib"], 24), ("1.15 x the full pull", delta["seconds"], 1.15 * full["seconds"])])
    rows = case.both(bench, node, Line(port), home, 1)
    show("A large payload", rows, extra=(("of the layer", share), ("requests", lambda row: row.get("requests"))))
    disk.close()
    return rows
