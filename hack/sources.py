"""Runs and table of hack/sources, which says what is measured."""

import re
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

from payload import MIB, make_payload

mib, where = int(sys.argv[1]), Path(sys.argv[2]).resolve()
installer = Path("out/installer").resolve()
ARCH_DIR = "usr/install/amd64"


def run(*argv, **kwargs):
    subprocess.run([str(a) for a in argv], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, **kwargs)


def make_images(payload):
    """A layer for the files and one for the seal, as `COPY` and `RUN installer seal` make them; then every packing."""
    (where / "Containerfile").write_text(
        f"FROM scratch\nCOPY vmlinuz initramfs.xz rootfs.squashfs /{ARCH_DIR}/\n"
        f"COPY SHA256SUMS manifest.json /{ARCH_DIR}/\n"
    )
    storage = ["--storage-driver=vfs", "--root", where / "storage", "--runroot", where / "run"]
    run("buildah", *storage, "bud", "--isolation=chroot", "--layers", "-t", "localhost/p:1", "-f",
        where / "Containerfile", payload)
    built = f"containers-storage:[vfs@{where}/storage+{where}/run]localhost/p:1"
    for pack, options in (("gzip", ["--dest-compress"]), ("zstd", ["--dest-compress", "--dest-compress-format=zstd"]),
                          ("plain", ["--dest-decompress"])):
        # Without compression only a `dir:` keeps layers as they are in the storage; from there into the layout.
        run("skopeo", "copy", "--insecure-policy", *options, built, f"dir:{where}/dir-{pack}")
        run("skopeo", "copy", "--insecure-policy", f"dir:{where}/dir-{pack}", f"oci:{where}/{pack}:1")
        run("skopeo", "copy", "--insecure-policy", f"oci:{where}/{pack}:1", f"oci-archive:{where}/{pack}.tar:1")
        shutil.rmtree(where / f"dir-{pack}")
    run("buildah", *storage, "rmi", "-a")


def start_registry():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    config = where / "registry.yml"
    config.write_text(
        f"version: 0.1\nlog: {{level: error, accesslog: {{disabled: true}}}}\n"
        f"storage: {{filesystem: {{rootdirectory: {where}/registry}}}}\nhttp: {{addr: '127.0.0.1:{port}'}}\n"
    )
    server = subprocess.Popen(["docker-registry", "serve", config], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for _ in range(100):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                break
        time.sleep(0.1)
    for pack in ("gzip", "zstd"):
        run("skopeo", "copy", "--insecure-policy", "--preserve-digests", "--dest-tls-verify=false", f"oci:{where}/{pack}:1",
            f"docker://127.0.0.1:{port}/p:{pack}")
    return server, port


def install(source, options, slot):
    """Seconds and peak MiB of an install onto a new image file; then the same under strace for the bytes."""
    image = where / "disk.raw"
    argv = [installer, "install", "--disk", image, "--source", source, "--progress=none", "--format-data=false",
            f"--slot-size={slot}MiB", *options]

    def fresh():
        image.unlink(missing_ok=True)
        with image.open("wb") as file:
            file.truncate((2 * slot + 1024) * MIB)

    fresh()
    timed = subprocess.run(["/usr/bin/time", "-f", "TIME %e %M", *map(str, argv)], check=False,
                           stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if timed.returncode:
        sys.exit(f"{source}: {timed.stderr}")
    seconds, peak = timed.stderr.split()[-2:]
    fresh()
    trace = where / "trace"
    calls = "read,pread64,recvfrom,write,pwrite64,sendto,copy_file_range,sendfile"
    run("strace", "-f", "-yy", "-s", "0", "-e", f"trace={calls}", "-o", trace, *argv)
    read = temporary = 0
    call = re.compile(r"\d+ +(\w+)\(\d+<([^>]*)>?.*\) += (\d+)$")
    unfinished = {}
    with trace.open() as lines:
        for line in lines:
            pid = line.split(" ", 1)[0]
            if line.rstrip().endswith("<unfinished ...>"):
                unfinished[pid] = line[: line.rindex("<unfinished")]
                continue
            if "resumed>" in line and pid in unfinished:
                line = unfinished.pop(pid) + line[line.index("resumed>") + 8:]
            found = call.match(line.rstrip())
            if not found:
                continue
            name, target, n = found[1], found[2], int(found[3])
            of_source = target.startswith("TCP") or str(where) in target and "disk.raw" not in target
            if name in ("read", "pread64", "recvfrom") and of_source:
                read += n
            if name in ("write", "pwrite64", "copy_file_range", "sendfile"):
                elsewhere = target.startswith("/") and "disk.raw" not in target and not target.startswith("/dev/")
                temporary += n if elsewhere else 0
    trace.unlink()
    return float(seconds), int(peak) / 1024, read, temporary


shutil.rmtree(where, ignore_errors=True)
where.mkdir(parents=True)
payload = where / "payload"
make_payload(payload, mib, installer)
make_images(payload)
server, port = start_registry()
try:
    slot = max(mib + mib // 16 + 16, 64)
    cases = [(f"dir:{payload}", [])]
    cases += [(f"oci:{where}/{pack}:1", []) for pack in ("plain", "gzip", "zstd")]
    cases += [(f"oci-archive:{where}/{pack}.tar:1", []) for pack in ("plain", "gzip", "zstd")]
    cases += [(f"docker://127.0.0.1:{port}/p:{pack}", ["--plain-http"]) for pack in ("gzip", "zstd")]
    print(f"{mib} MiB payload, one install each onto an empty image file")
    print(f"  {'source':<28}{'read MiB':>10}{'temporary':>12}{'peak MiB':>10}{'seconds':>9}")
    for source, options in cases:
        seconds, peak, read, temporary = install(source, options, slot)
        name = source.replace(f"{where}/", "").replace(f"127.0.0.1:{port}", "loopback")
        print(f"  {name:<28}{read / MIB:>10.1f}{temporary:>12}{peak:>10.1f}{seconds:>9.2f}", flush=True)
finally:
    server.terminate()
    server.wait()
