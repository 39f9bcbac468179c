"""Section `delta`: what an upgrade moves over the network, counted by a proxy. The payloads are made from Debian's packages: a
root, the same with its security updates, and that packed by another compressor, which has nothing in common with the first."""

import hashlib
import json
import os
import shutil
import socket
import subprocess
import threading
import time

from disk import Disk, Node
from run import MIB, Contender, quiet, say, timed
from sources import make_payload, plain_layout, write_checksums
from table import goal, show

PACKAGES = ("systemd,systemd-sysv,udev,dbus,containerd,runc,crun,iptables,nftables,openssh-server,curl,ca-certificates,python3,perl,"
            "git,vim-tiny,xfsprogs,e2fsprogs,lvm2,cryptsetup,dosfstools,ethtool,socat,tcpdump,openssl,locales")
MAIN = "deb http://deb.debian.org/debian bookworm main"
SECURITY = "deb http://deb.debian.org/debian-security bookworm-security main"
EPOCH = "1735689600"


def squashfs(root, to, *options):
    quiet("mksquashfs", root, to, *options, "-b", "128K", "-all-root", "-no-xattrs", "-noappend", "-mkfs-time", EPOCH,
          "-all-time", EPOCH, "-quiet", "-no-progress")


def changed(home):
    """Which share of the bytes is in files that the updates changed."""
    old, new = (json.loads((home / f"{name}.json").read_text()) for name in ("old", "updated"))
    return sum(size for path, (size, digest) in new.items() if old.get(path) != [size, digest]) / sum(size for size, _ in new.values())


def roots(home):
    """The three squashfs, made once. The archive of security updates moves on, so the figures are of that day."""
    home.mkdir(parents=True, exist_ok=True)
    files = {name: home / f"{name}.squashfs" for name in ("old", "updated", "other")}
    for name, sources in (("old", (MAIN,)), ("updated", (MAIN, SECURITY))):
        if files[name].exists():
            continue
        say(f"making the {name} root from Debian's packages (minutes)")
        tar, root = home / f"{name}.tar", home / name
        exclude = [f"--dpkgopt=path-exclude=/usr/share/{part}/*" for part in ("doc", "man", "locale")]
        quiet("mmdebstrap", "--quiet", "--variant=minbase", f"--include={PACKAGES}", *exclude, "bookworm", tar, *sources,
              env={**os.environ, "SOURCE_DATE_EPOCH": EPOCH})
        shutil.rmtree(root, ignore_errors=True)
        root.mkdir()
        quiet("tar", "-C", root, "-xf", tar)
        for gone in ("var/cache", "var/log", "var/lib/apt/lists"):
            shutil.rmtree(root / gone, ignore_errors=True)
        squashfs(root, home / "making", "-comp", "zstd", "-Xcompression-level", "9")
        if name == "updated":
            squashfs(root, home / "making-other", "-comp", "xz")
            (home / "making-other").rename(files["other"])
        listed = {str(file.relative_to(root)): [file.stat().st_size, hashlib.sha256(file.read_bytes()).hexdigest()]
                  for file in sorted(root.rglob("*")) if file.is_file() and not file.is_symlink()}
        (home / f"{name}.json").write_text(json.dumps(listed))
        (home / "making").rename(files[name])
        shutil.rmtree(root)
        tar.unlink()
    return files


class Counter:
    """Hands on between a client and a server of 127.0.0.1, and counts the bytes and requests."""

    def __init__(self, to):
        self.to, self.down, self.up, self.requests = to, 0, 0, 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            client, _ = self.listener.accept()
            server = socket.create_connection(("127.0.0.1", self.to))
            threading.Thread(target=self.hand_on, args=(client, server, True), daemon=True).start()
            threading.Thread(target=self.hand_on, args=(server, client, False), daemon=True).start()

    def hand_on(self, source, to, is_up):
        try:
            while data := source.recv(64 << 10):
                if is_up:
                    self.up += len(data)
                    self.requests += data.count(b" HTTP/1.1\r\n")
                else:
                    self.down += len(data)
                to.sendall(data)
        except OSError:
            pass
        for end in (source, to):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def take(self):
        counted = (self.down + self.up, self.requests)
        self.down = self.up = self.requests = 0
        return counted


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


def delta_section(bench):
    home, files = bench.where / "delta", roots(bench.where.parent / "delta")
    home.mkdir(exist_ok=True)
    payloads = {}
    for number, (name, rootfs) in enumerate(files.items()):
        payload = payloads[name] = home / name
        if number:
            shutil.copytree(payloads["old"], payload)
        else:
            make_payload(payload, 32, bench.installer)
        shutil.copyfile(rootfs, payload / "rootfs.squashfs")
        write_checksums(payload, bench.installer, f"1.{number}.0")
    server, port = registry(home)
    counter = Counter(port)
    try:
        return measured(bench, home, payloads, port, counter)
    finally:
        server.terminate()
        server.wait()


def measured(bench, home, payloads, port, counter):
    layers = {}
    for name in ("updated", "other"):
        layout = home / f"{name}-image"
        plain_layout(payloads[name], layout)
        for tag in ("full", "delta"):
            if tag == "delta":
                quiet(bench.installer, "chunk", f"oci:{layout}:1", "--progress=none")
            quiet(bench.installer, "push", f"oci:{layout}:1", f"docker://127.0.0.1:{port}/{name}:{tag}", "--plain-http", "--progress=none")
        layers[name] = max(blob.stat().st_size for blob in (layout / "blobs/sha256").iterdir())
    disk = Disk(home, max(layers.values()) // MIB + 1)
    node, rows = Node(disk, bench.installer, payloads["old"], home), []
    share = lambda row: f"{row['moved'] * 100 / layers[row['of']]:.2f} %"
    share_changed = changed(bench.where.parent / "delta")
    # 5.5 % where 4 % of the bytes are in changed files.
    limits = (("updated", f"security updates, {share_changed:.1%}", share_changed * 5.5 / 4), ("other", "another compressor", 1.01))
    for name, text, most in limits:
        for tag in ("full", "delta"):
            reference = f"docker://127.0.0.1:{counter.port}/{name}:{tag}"
            verb = node.argv("upgrade", f"--source={reference}", "--plain-http", "--retry-bad")
            runs = []
            for _ in range(bench.rounds):
                node.go_back()
                counter.take()
                run = timed(Contender(f"{text}, {tag}", verb, ours=True), home)
                runs.append((run, *counter.take()))
            seconds = sorted(run["seconds"] for run, *_ in runs)
            row = {"name": f"{text}, {tag}", "ours": True, "verifies": "", "of": name, "seconds": seconds[len(seconds) // 2],
                   "least": seconds[0], "most": seconds[-1], "cpu": runs[0][0]["cpu"], "peak_mib": max(run["peak"] for run, *_ in runs),
                   "moved": max(moved for _, moved, _ in runs), "requests": max(asked for *_, asked in runs)}
            if tag == "delta":
                goal(row, f"{most:.1%} of the layer", row["moved"] / layers[name], most)
                goal(row, "60 requests", row["requests"], 60)
                goal(row, "24 MiB", row["peak_mib"], 24)
                goal(row, "1.15 x the full pull", row["seconds"], 1.15 * rows[-1]["seconds"])
            rows.append(row)
    show(f"Upgrades from a registry, layers of {', '.join(f'{size / MIB:.0f} MiB' for size in layers.values())}", rows,
         extra=(("of the layer", share), ("requests", lambda row: row["requests"])))
    disk.close()
    return rows
