"""A payload of any size for the scripts that measure."""

import os
import shutil
import subprocess

MIB = 1 << 20


def make_payload(directory, mib, installer):
    """Sealed, incompressible files with the right magics: kernel 14 MiB, initramfs 20 MiB, the rest squashfs."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    kernel = bytearray(os.urandom(14 * MIB))
    kernel[0x1FE:0x200] = b"\x55\xaa"
    kernel[0x202:0x206] = b"HdrS"
    (directory / "vmlinuz").write_bytes(kernel)
    (directory / "initramfs.xz").write_bytes(os.urandom(20 * MIB))
    with (directory / "rootfs.squashfs").open("wb") as rootfs:
        rootfs.write(b"hsqs" + os.urandom(MIB - 4))
        for _ in range(mib - 34 - 1):
            rootfs.write(os.urandom(MIB))
    subprocess.run([installer, "seal", directory, "--progress", "none"], check=True, stdout=subprocess.DEVNULL)
