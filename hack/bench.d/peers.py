"""Other installers. Each writes the same bytes to the same device in its fastest way, and flushes them."""

import atexit
import hashlib
import shutil
import subprocess
import time
from pathlib import Path

from run import Contender, quiet
from table import why_missing


def peers(disk, sources, where, built):
    """All peers. The row of one that cannot run says why."""
    return [rauc(disk, sources, where), swupdate(disk, sources, where), coreos(disk, sources, where, built),
            bmaptool(disk, sources, where), unpacked(disk, sources, where),
            Contender("mender", [], missing="NOT MEASURED: needs U-Boot's environment tools, or stand-ins for them")]


def prepared(contender, prepare, *programs):
    """Set up a contender, or record why that fails."""
    contender.missing = why_missing(*programs)
    if not contender.missing:
        try:
            prepare(contender)
        except (RuntimeError, OSError) as e:
            contender.missing = f"CANNOT BE SET UP HERE: {e}"
    return contender


def rauc(disk, sources, where):
    """A plain bundle, installed by its service on a private D-Bus."""
    home = where / "rauc"

    def prepare(c):
        shutil.rmtree(home, ignore_errors=True)
        (home / "bundle").mkdir(parents=True)
        (home / "mnt").mkdir()
        quiet("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=bench", "-days", "30",
              "-keyout", home / "key.pem", "-out", home / "cert.pem")
        shutil.copy(sources.raw, home / "bundle/rootfs.img")
        (home / "bundle/manifest.raucm").write_text(
            "[update]\ncompatible=bench\nversion=1\n[bundle]\nformat=plain\n[image.rootfs]\nfilename=rootfs.img\n")
        (home / "system.conf").write_text(
            f"[system]\ncompatible=bench\nbootloader=noop\nmountprefix={home}/mnt\nstatusfile={home}/status\n"
            f"[keyring]\npath={home}/cert.pem\n[slot.rootfs.0]\ndevice=/dev/null\ntype=raw\nbootname=A\n"
            f"[slot.rootfs.1]\ndevice={disk.slot}\ntype=raw\nbootname=B\n")
        quiet("rauc", "bundle", f"--cert={home}/cert.pem", f"--key={home}/key.pem", home / "bundle", home / "b.raucb")
        shutil.rmtree(home / "bundle")
        bus = subprocess.Popen(["dbus-daemon", "--session", "--nofork", "--print-address=1"], stdout=subprocess.PIPE, text=True)
        atexit.register(bus.terminate)
        c.env = {"DBUS_SESSION_BUS_ADDRESS": bus.stdout.readline().strip(), "DBUS_STARTER_BUS_TYPE": "session"}
        service = subprocess.Popen(["rauc", "service", f"--conf={home}/system.conf", "--override-boot-slot=A"],
                                   env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", **c.env},
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        atexit.register(service.terminate)
        time.sleep(2)
        if service.poll() is not None:
            raise RuntimeError("its service ends at once")
        c.service = service.pid
    c = Contender("rauc, plain bundle", ["rauc", "install", home / "b.raucb"], "bundle's signature, no read-back")
    return prepared(c, prepare, "rauc", "dbus-daemon", "mksquashfs")


def swupdate(disk, sources, where):
    """One image, streamed to the device."""
    home = where / "swupdate"

    def prepare(_):
        home.mkdir(exist_ok=True)
        with sources.raw.open("rb") as raw:
            digest = hashlib.file_digest(raw, "sha256").hexdigest()
        (home / "rootfs.img").unlink(missing_ok=True)
        (home / "rootfs.img").hardlink_to(sources.raw)
        (home / "sw-description").write_text(
            'software = { version = "1.0"; hardware-compatibility: ["1.0"]; images: ( { filename = "rootfs.img"; '
            f'device = "{disk.slot}"; type = "raw"; installed-directly = true; sha256 = "{digest}"; }} ); }}\n')
        # Debian's build accepts only signed images.
        quiet("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=bench", "-days", "30",
              "-keyout", home / "key.pem", "-out", home / "cert.pem")
        quiet("openssl", "cms", "-sign", "-in", home / "sw-description", "-out", home / "sw-description.sig", "-binary",
              "-signer", home / "cert.pem", "-inkey", home / "key.pem", "-outform", "DER", "-nosmimecap")
        quiet("sh", "-c", "printf 'sw-description\\nsw-description.sig\\nrootfs.img\\n' | cpio -o -H crc > b.swu", cwd=home)
    c = Contender("swupdate, streamed", ["swupdate", "-k", home / "cert.pem", "-H", "bench:1.0", "-i", home / "b.swu"],
                  "signature, SHA-256, no read-back")
    return prepared(c, prepare, "swupdate", "cpio")


def coreos(disk, sources, where, built):
    """It wants a whole disk, so it gets the slot's device. It waits for udev, which a container does not have, so
    udevadm is replaced by true."""
    program = Path(built) / "bin/coreos-installer"
    home = where / "coreos"

    def prepare(_):
        home.mkdir()
        (home / "control").touch()
        (home / "udevadm").symlink_to("/bin/true")
    no_udev = f'mkdir -p /run/udev && mount --bind {home} /run/udev && PATH={home}:$PATH exec "$@"'
    argv = [program, "install", "--offline", "--insecure", "--image-file", sources.raw, disk.slot]
    c = Contender("coreos-installer, raw", ["unshare", "-m", "sh", "-c", no_udev, "sh", *argv], "nothing in this mode, no read-back")
    return prepared(c, prepare, program)


def bmaptool(disk, sources, where):
    bmap = where / "payload.bmap"
    c = Contender("bmaptool, raw", ["bmaptool", "copy", "--bmap", bmap, sources.raw, disk.slot], "SHA-256 of ranges, no read-back")
    return prepared(c, lambda _: quiet("bmaptool", "create", "-o", bmap, sources.raw), "bmaptool")


def unpacked(disk, sources, where):
    """What a shell script would do with a container image: fetch, unpack, copy."""
    home = where / "unpacked"
    script = (
        f"set -e; rm -rf {home}; mkdir {home}; skopeo copy -q --insecure-policy oci:{sources.where}/gzip:1 dir:{home}/image; mkdir {home}/tree;"
        f" for layer in $(ls -S {home}/image); do tar -xzf {home}/image/$layer -C {home}/tree 2>/dev/null || true; done;"
        f" cd {home}/tree/usr/install/amd64; cat vmlinuz initramfs.xz rootfs.squashfs |"
        f" dd of={disk.slot} bs=1M iflag=fullblock conv=fsync status=none")
    c = Contender("skopeo + tar + dd, gzip", ["sh", "-c", script], "blob digests, no read-back")
    c.missing = why_missing("skopeo")
    return c
