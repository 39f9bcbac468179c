"""What others would move for the same squashfs: casync and zchunk as Debian has them, and blocks of 4 KiB, RAUC's scheme."""

import hashlib
import re
import shutil

from run import quiet
from table import why_missing

RAUC_BLOCK = 4096


def casync(old, new, home):
    """The index, and the packed chunks that the old store lacks."""
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir()
    stores = []
    for name, file in (("old", old), ("new", new)):
        quiet("casync", "make", f"--store={home / name}.castr", home / f"{name}.caibx", file)
        stores.append({chunk.name: chunk.stat().st_size for chunk in (home / f"{name}.castr").rglob("*.cacnk")})
    missing = {name: size for name, size in stores[1].items() if name not in stores[0]}
    moved = sum(missing.values()) + (home / "new.caibx").stat().st_size
    shutil.rmtree(home)
    # It asks for each chunk.
    return moved, len(missing) + 1


def zchunk(old, new, home):
    """As its own tool tells."""
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir()
    packed = []
    for name, file in (("old", old), ("new", new)):
        packed.append(home / f"{name}.zck")
        quiet("zck", "-o", packed[-1], file)
    told = quiet("zck_delta_size", *packed)
    shutil.rmtree(home)
    return int(re.search(r"Would download (\d+) of", told)[1]), None


def blocks(file):
    """The distinct blocks of a file."""
    found = {}
    with file.open("rb") as data:
        while block := data.read(RAUC_BLOCK):
            found.setdefault(hashlib.sha256(block).digest(), block)
    return found


def rauc(old, new, home):
    """Simulated: `casync` of RAUC 1.8 and later (block-hash-index) fetches each block of 4 KiB that is not there, and has the
    digests of all blocks in the bundle."""
    there, wanted = blocks(old), blocks(new)
    missing = [block for digest, block in wanted.items() if digest not in there]
    index = 32 * -(-new.stat().st_size // RAUC_BLOCK)
    return sum(map(len, missing)) + index, None


PEERS = (("casync", casync, ("casync",)), ("zchunk", zchunk, ("zck", "zck_delta_size")), ("blocks of 4 KiB, as RAUC's", rauc, ()))


def rows(text, old, new, home):
    """A row for each peer, about the squashfs alone."""
    found = []
    for name, of, programs in PEERS:
        missing = why_missing(*programs) if programs else None
        row = {"name": f"{text}, {name}", "ours": False, "verifies": "", "missing": missing}
        if not missing:
            moved, requests = of(old, new, home)
            row["text"] = f"{moved * 100 / new.stat().st_size:.2f} % of the squashfs" + (f", {requests} requests" if requests else "")
            row["moved"] = moved
        found.append(row)
    return found
