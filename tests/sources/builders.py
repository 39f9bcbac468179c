"""Writes a layer with a payload as a builder of images writes it: builders.py BUILDER PAYLOAD-DIRECTORY OUT.tar

The shapes are those of the builders' own code: names, formats of headers, extended records, links, and what else is there.
"""

import io
import os
import sys
import tarfile
import time

BUILDER, PAYLOAD, OUT = sys.argv[1:]
PLACE = "usr/install/amd64"
FILES = sorted(os.listdir(PAYLOAD))
NOW = 1_700_000_000


class Layer:
    """A tar archive whose entries have names with this prefix."""

    def __init__(self, prefix="", form=tarfile.PAX_FORMAT, mtime=0, slash=False, pax=None, owner=""):
        self.tar = tarfile.open(OUT, "w", format=form)
        self.prefix, self.mtime, self.slash, self.pax, self.owner = prefix, mtime, slash, pax or {}, owner

    def add(self, name, kind=tarfile.REGTYPE, content=b"", link="", mode=0o644):
        entry = tarfile.TarInfo(self.prefix + name)
        entry.type, entry.size, entry.linkname, entry.mode = kind, len(content), link, mode
        entry.mtime, entry.uname, entry.gname, entry.pax_headers = self.mtime, self.owner, self.owner, dict(self.pax)
        self.tar.addfile(entry, io.BytesIO(content))

    def dir(self, name):
        self.add(name, tarfile.DIRTYPE, mode=0o755)

    def dirs(self, *names):
        for name in names:
            self.dir(name)

    def payload(self):
        parts = PLACE.split("/")
        self.dirs(*("/".join(parts[: n + 1]) for n in range(len(parts))))
        for name in FILES:
            with open(f"{PAYLOAD}/{name}", "rb") as file:
                self.add(f"{PLACE}/{name}", content=file.read())


def kaniko():
    layer = Layer("/", mtime=NOW)
    layer.dirs("", "usr/", "usr/bin")
    layer.add("usr/bin/a", content=b"x", mode=0o755)
    layer.add("usr/bin/b", tarfile.LNKTYPE, link="/usr/bin/a")
    layer.payload()


def ko():
    layer = Layer("/")
    layer.dirs("var/run/ko", "ko-app")
    layer.add("ko-app/installer", content=b"x", mode=0o555)
    layer.add("var/run/ko/LICENSE", tarfile.SYMTYPE, link="../../../ko-app/installer")
    layer.payload()


def jib():
    layer = Layer("", tarfile.PAX_FORMAT, mtime=1)
    layer.dirs("app/", "app/libs/")
    layer.add("app/libs/" + "x" * 150 + ".jar", content=b"x")
    layer.payload()


def apko():
    layer = Layer("", mtime=NOW, pax={"APK-TOOLS.checksum.SHA1": "0" * 40, "SCHILY.xattr.user.x": "y"}, owner="root")
    layer.dirs("bin", "lib")
    for name in ("bin/sh", "bin/ls"):
        layer.add(name, tarfile.SYMTYPE, link="/bin/busybox", mode=0o777)
    layer.add("bin/busybox", content=b"x", mode=0o755)
    layer.add("dev/null", tarfile.CHRTYPE)
    layer.dirs("lib", "lib")
    layer.payload()


def nix():
    layer = Layer("/", tarfile.PAX_FORMAT, mtime=1)
    store = "nix/store/" + "a" * 32 + "-os-1.0"
    layer.dirs("nix", "nix/store", store)
    layer.add(f"{store}/a", content=b"x", mode=0o444)
    layer.add(f"{store}/b", tarfile.LNKTYPE, link=f"/{store}/a")
    layer.add("result", tarfile.SYMTYPE, link=f"/{store}")
    layer.payload()


def bazel():
    layer = Layer("./", tarfile.GNU_FORMAT)
    layer.dirs("", "usr", "usr", "usr/install", "etc")
    layer.add("etc/" + "deep/" * 30 + "file", content=b"x")
    layer.add("etc/link", tarfile.SYMTYPE, link="deep/" * 30 + "file")
    layer.payload()


def podman():
    layer = Layer("", mtime=NOW + 0.25, pax={"mtime": f"{NOW}.25", "SCHILY.xattr.security.selinux": "x\0"})
    layer.dirs("run/", "etc/")
    layer.add("etc/.wh.hostname")
    layer.add("run/.wh..wh..opq")
    layer.payload()
    layer.add("etc/hostname", content=b"x")


def buildkit():
    layer = Layer("", mtime=NOW, pax={"ctime": f"{NOW}.1", "atime": f"{NOW}.2"}, owner="root")
    layer.add(".no.prefetch.landmark", content=b"\xf0")
    layer.add("dev/console", tarfile.CHRTYPE)
    layer.add("run/fifo", tarfile.FIFOTYPE)
    layer.payload()
    layer.add("stargz.index.json", content=b'{"version": 1}')


def git_archive():
    tar = tarfile.open(OUT, "w", format=tarfile.PAX_FORMAT, pax_headers={"comment": "0" * 40})
    layer = Layer("")
    layer.tar.close()
    layer.tar = tar
    layer.payload()


def gnu_tar():
    layer = Layer("./", tarfile.GNU_FORMAT, mtime=time.time(), owner="root")
    layer.dir("")
    layer.add("usr/share/" + "n" * 200, content=b"x")
    layer.add("usr/share/l", tarfile.LNKTYPE, link="./usr/share/" + "n" * 200)
    layer.payload()


def ustar():
    layer = Layer("", tarfile.USTAR_FORMAT)
    layer.add("usr/share/" + "p" * 80 + "/" + "n" * 90, content=b"x")
    layer.payload()


def deduplicated():
    """Files of the same content are stored once, as `ostree` and `cp --link` leave them; bazel leaves out directories."""
    layer = Layer("", tarfile.GNU_FORMAT)
    for name in FILES:
        with open(f"{PAYLOAD}/{name}", "rb") as file:
            layer.add(f"lib/modules/1.0/{name}", content=file.read())
    for name in FILES:
        layer.add(f"{PLACE}/{name}", tarfile.LNKTYPE, link=f"lib/modules/1.0/{name}")


def appended():
    """`tar --append`: what was there before stays in the archive, and the later entry counts."""
    layer = Layer("./", tarfile.GNU_FORMAT)
    for name in FILES:
        layer.add(f"{PLACE}/{name}", content=b"as it was before")
    layer.payload()


def squashed():
    """docker-squash: some files are there twice, and so are directories."""
    layer = Layer("")
    layer.payload()
    layer.payload()


def cut_names():
    """The name of a plain file is too long for its header, and what is there of it ends in a slash."""
    layer = Layer("", tarfile.GNU_FORMAT)
    for form in (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        layer.tar.format = form
        layer.add("a/" * 60 + "b", content=b"x")
    layer.payload()


def rules_img():
    """bazel-contrib/rules_img: hard links have the size of their file, without content."""
    layer = Layer("")
    layer.add("bin/app", content=b"x" * 700, mode=0o755)
    link = tarfile.TarInfo("bin/app.runfiles/app")
    link.type, link.linkname, link.size = tarfile.LNKTYPE, "bin/app", 700
    layer.tar.addfile(link)
    layer.payload()


def umoci():
    """`umoci insert` before 0.4.8, and stacker: nothing follows the last byte of the last file."""
    layer = Layer("/")
    layer.payload()
    layer.add("etc/hostname", content=b"x")
    layer.tar.fileobj.truncate(layer.tar.fileobj.tell() - 511)


BUILDERS = {
    f.__name__: f
    for f in (
        *(kaniko, ko, jib, apko, nix, bazel, podman, buildkit, git_archive, gnu_tar, ustar),
        *(deduplicated, appended, squashed, cut_names, rules_img, umoci),
    )
}
if BUILDER == "names":
    print(" ".join(BUILDERS))
else:
    BUILDERS[BUILDER]()
