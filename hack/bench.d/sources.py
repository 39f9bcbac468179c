"""The same payload in every form: a directory, one raw file, OCI layouts with plain, gzip and zstd layers, and a
registry with TLS on loopback."""

import atexit
import hashlib
import json
import lzma
import os
import shutil
import socket
import struct
import subprocess
import tarfile
import time

from run import MIB, quiet

ARCH_DIR = "usr/install/amd64"
PAYLOAD = ("vmlinuz", "initramfs.xz", "rootfs.squashfs")
OCI = "application/vnd.oci.image"


def make_payload(directory, mib, installer, version="1.0.0"):
    """Incompressible files with the right headers, and checksums: kernel 8 MiB, initramfs 12 MiB, the rest squashfs."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    kernel = bytearray(os.urandom(8 * MIB))
    # A program for UEFI without sections, of a kernel since 5.8.
    kernel[:2] = b"MZ"
    struct.pack_into("<I4s2xH12xH46xH", kernel, 0x3C, 0x40, b"PE\0\0", 0, 0xA0, 1)
    # No signature: the entry of its table is zero.
    kernel[0xD8:0xE0] = bytes(8)
    kernel[0x1F1] = 1
    kernel[0x1F4:0x1F8] = struct.pack("<I", (len(kernel) - 1024) // 16)
    kernel[0x1FE:0x200] = b"\x55\xaa"
    kernel[0x202:0x206] = b"HdrS"
    # Of 64 bits.
    kernel[0x206:0x208] = b"\x0f\x02"
    kernel[0x236] |= 1
    (directory / "vmlinuz").write_bytes(kernel)
    archive = cpio_entry("init", os.urandom(12 * MIB)) + cpio_entry("TRAILER!!!", b"")
    initramfs = lzma.compress(archive, check=lzma.CHECK_CRC32, preset=0)
    (directory / "initramfs.xz").write_bytes(initramfs)
    with (directory / "rootfs.squashfs").open("wb") as rootfs:
        head = bytearray(os.urandom(MIB))
        used, no_table = (mib - 20) * MIB, (1 << 64) - 1
        places = (0, used, used - 8, no_table, 96, used - 8, no_table, no_table)
        struct.pack_into("<4s8xI4xHH2xHHH8Q", head, 0, b"hsqs", 1 << 17, 6, 17, 1, 4, 0, *places)
        rootfs.write(head)
        for _ in range(mib - 21):
            rootfs.write(os.urandom(MIB))
    write_checksums(directory, installer, version)


def cpio_entry(name, data):
    """A file of an archive of the format newc. Linux unpacks no other."""
    numbers = (1, 0o100644, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name) + 1, 0)
    heading = b"070701" + b"".join(b"%08x" % number for number in numbers) + name.encode() + b"\0"
    return b"".join(part + bytes(-len(part) % 4) for part in (heading, data))


def write_checksums(directory, installer, version):
    (directory / "os-release").write_text(f"ID=bench\nVERSION_ID={version}\n")
    quiet(installer, "checksum", directory, "--progress=none")


def raw_of(payload, file):
    """Join the payload's files into one, for dd and the peers."""
    with file.open("wb") as raw:
        for name in PAYLOAD:
            with (payload / name).open("rb") as part:
                shutil.copyfileobj(part, raw, MIB)


def put(layout, data_or_file, media_type):
    """Add a blob, and return its descriptor."""
    if isinstance(data_or_file, bytes):
        digest, size = hashlib.sha256(data_or_file).hexdigest(), len(data_or_file)
        (layout / "blobs/sha256" / digest).write_bytes(data_or_file)
    else:
        with data_or_file.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        size = data_or_file.stat().st_size
        data_or_file.rename(layout / "blobs/sha256" / digest)
    return {"mediaType": f"{OCI}.{media_type}", "digest": f"sha256:{digest}", "size": size}


def plain_layout(payload, layout):
    """Uncompressed layers for files and checksums, as `COPY` and `RUN installer checksum` make them."""
    shutil.rmtree(layout, ignore_errors=True)
    (layout / "blobs/sha256").mkdir(parents=True)
    layers = []
    checksums = ("SHA256SUMS", "manifest.json")
    files = sorted((file for file in payload.iterdir() if file.name not in checksums), key=lambda file: file.stat().st_size)
    for names in ([file.name for file in files], checksums):
        file = layout / "layer"
        with tarfile.open(file, "w", format=tarfile.PAX_FORMAT) as archive:
            for name in names:
                archive.add(payload / name, f"{ARCH_DIR}/{name}")
        layers.append(put(layout, file, "layer.v1.tar"))
    config = {"architecture": "amd64", "os": "linux", "config": {},
              "rootfs": {"type": "layers", "diff_ids": [layer["digest"] for layer in layers]}}
    manifest = {"schemaVersion": 2, "mediaType": f"{OCI}.manifest.v1+json",
                "config": put(layout, json.dumps(config).encode(), "config.v1+json"), "layers": layers}
    named = put(layout, json.dumps(manifest).encode(), "manifest.v1+json")
    named["annotations"] = {"org.opencontainers.image.ref.name": "1"}
    (layout / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [named]}))
    (layout / "oci-layout").write_text('{"imageLayoutVersion":"1.0.0"}')


def packed(layout, to, compression):
    """Have skopeo compress the layers."""
    shutil.rmtree(to, ignore_errors=True)
    quiet("skopeo", "copy", "--insecure-policy", "--dest-compress", f"--dest-compress-format={compression}",
          f"oci:{layout}:1", f"oci:{to}:1")


class Registry:
    """Debian's docker-registry, with a certificate from a private authority."""

    def __init__(self, where):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.host = f"127.0.0.1:{free.getsockname()[1]}"
        # In its own directory: skopeo takes every key beside a certificate for a client's.
        self.certs, keys = where / "certs", where / "keys"
        self.certs.mkdir(exist_ok=True)
        keys.mkdir(exist_ok=True)
        self.authority = self.certs / "ca.crt"
        quiet("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=bench authority", "-days", "30",
              "-keyout", keys / "ca.key", "-out", self.authority)
        quiet("openssl", "req", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=registry", "-keyout", keys / "server.key",
              "-out", keys / "server.csr")
        (keys / "names").write_text("subjectAltName=IP:127.0.0.1\nbasicConstraints=CA:FALSE\n")
        quiet("openssl", "x509", "-req", "-in", keys / "server.csr", "-CA", self.authority, "-CAkey", keys / "ca.key",
              "-CAcreateserial", "-days", "30", "-extfile", keys / "names", "-out", keys / "server.crt")
        config = where / "registry.yml"
        config.write_text(
            f"version: 0.1\nlog: {{level: error, accesslog: {{disabled: true}}}}\n"
            f"storage: {{filesystem: {{rootdirectory: {where}/registry}}}}\n"
            f"http: {{addr: '{self.host}', tls: {{certificate: {keys}/server.crt, key: {keys}/server.key}}}}\n"
        )
        shutil.rmtree(where / "registry", ignore_errors=True)
        server = subprocess.Popen(["docker-registry", "serve", config], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        atexit.register(lambda: (server.terminate(), server.wait()))
        for _ in range(300):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", int(self.host.split(":")[1]))) == 0:
                    return
            time.sleep(0.1)
        raise RuntimeError("docker-registry does not listen after 30 s")

    def push(self, layout, tag):
        """Push an image, and return its reference."""
        name = f"docker://{self.host}/p:{tag}"
        quiet("skopeo", "copy", "--insecure-policy", "--preserve-digests", f"--dest-cert-dir={self.certs}", f"oci:{layout}:1", name)
        return name

    def blob(self, file):
        """Where this blob of a layout that was pushed is found."""
        return f"https://{self.host}/v2/p/blobs/sha256:{file.name}"

    def trust(self):
        return {"SSL_CERT_FILE": str(self.authority)}


class Sources:
    """A payload of `mib` MiB in every form."""

    def __init__(self, where, mib, installer, registry):
        where.mkdir(parents=True, exist_ok=True)
        self.mib, self.where, self.registry = mib, where, registry
        self.payload, self.raw = where / "payload", where / "payload.raw"
        make_payload(self.payload, mib, installer)
        raw_of(self.payload, self.raw)
        plain_layout(self.payload, where / "plain")
        for compression in ("gzip", "zstd"):
            packed(where / "plain", where / compression, compression)
        self.remote = registry.push(where / "gzip", f"gzip-{mib}")

    def by_name(self):
        """Name in the table, reference and environment of each source."""
        local = [(f"oci {pack}", f"oci:{self.where}/{pack}:1", {}) for pack in ("plain", "zstd", "gzip")]
        return [("dir", f"dir:{self.payload}", {}), *local, ("registry gzip TLS", self.remote, self.registry.trust())]

    def layer(self, pack):
        """The file of the layer that has the payload."""
        return max((self.where / pack / "blobs/sha256").iterdir(), key=lambda blob: blob.stat().st_size)
