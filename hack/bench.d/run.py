"""Running a contender: seconds, CPU seconds, peak memory; once more under strace for what it reads and writes where."""

import os
import re
import signal
import subprocess
import sys
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

MIB = 1 << 20


@dataclass
class Contender:
    """Somebody who does a piece of work, and what is known about how."""

    name: str
    argv: list
    verifies: str = ""
    ours: bool = False
    env: dict = field(default_factory=dict)
    # A process that does the work for the one that is started.
    service: int | None = None
    # It prints its seconds itself.
    prints_seconds: bool = False
    # Untimed, before and after each run.
    before: object = None
    after: object = None
    # (text, seconds of the limit from the medians of all rows)
    goal: tuple | None = None
    # Why it does not run here.
    missing: str | None = None


def quiet(*argv, **options):
    """A command that must succeed; its output is shown when it does not."""
    options.setdefault("stdin", subprocess.DEVNULL)
    done = subprocess.run([str(a) for a in argv], check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options)
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, argv))}: exit code {done.returncode}: {done.stdout.decode(errors='replace')[-800:].strip()}")
    return done.stdout.decode(errors="replace")


def service_cost(pid):
    """CPU seconds and peak MiB of a running process."""
    # After the name in brackets: field 14 and 15 of proc(5) are user and system time, in ticks.
    ticks = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[11:15]
    peak = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK"), int(peak[1]) / 1024


def timed(c, scratch):
    """One run: wall seconds, CPU seconds, peak resident MiB of the largest process."""
    report = scratch / "time"
    argv = ["/usr/bin/time", "-f", "%U %S %M", "-o", report, *c.argv]
    if c.before:
        c.before()
    cpu_before = service_cost(c.service)[0] if c.service else 0
    begun = time.monotonic()
    said = quiet(*argv, env={**os.environ, **c.env})
    seconds = time.monotonic() - begun
    user, system, kib = report.read_text().split()[-3:]
    cpu, peak = float(user) + float(system), int(kib) / 1024
    if c.service:
        done, most = service_cost(c.service)
        cpu, peak = cpu + done - cpu_before, max(peak, most)
    if c.after:
        c.after()
    return {"seconds": float(said.split()[-1]) if c.prints_seconds else seconds, "cpu": cpu, "peak": peak}


CALLS = "read,pread64,readv,preadv,recvfrom,recvmsg,write,pwrite64,writev,pwritev,sendto,copy_file_range,sendfile,splice"
CALL = re.compile(r"\d+ +(\w+)\((.*)\) += (\d+)$")


def calls(trace):
    """Name, arguments, result of every call; those that strace shows in two halves put together."""
    halves = {}
    with trace.open(errors="replace") as lines:
        for line in lines:
            pid, line = line.split(" ", 1)[0], line.rstrip()
            if line.endswith("<unfinished ...>"):
                halves[pid] = line[: line.rindex("<unfinished")]
                continue
            if "resumed>" in line and pid in halves:
                line = halves.pop(pid) + line[line.index("resumed>") + 8:]
            if found := CALL.match(line):
                yield found[1], found[2], int(found[3])


def traced(c, scratch, targets, sources):
    """Bytes read of the sources, written to the target, and written anywhere else."""
    trace = scratch / "trace"
    trace.unlink(missing_ok=True)
    strace = ["strace", "-f", "-yy", "-s", "0", "-e", f"trace={CALLS}", "-o", trace]
    if c.before:
        c.before()
    if c.service:
        watch = subprocess.Popen([*map(str, strace), "-p", str(c.service)], stderr=subprocess.DEVNULL)
        time.sleep(1)
        quiet(*c.argv, env={**os.environ, **c.env})
        watch.send_signal(signal.SIGINT)
        watch.wait()
    else:
        quiet(*strace, *c.argv, env={**os.environ, **c.env})
    if c.after:
        c.after()
    sums = defaultdict(int)
    for name, arguments, n in calls(trace):
        files = re.findall(r"\d+<((?:[^<>]|<[^<>]*>)*)>", arguments)
        if not files:
            continue
        reading = name.startswith(("read", "pread", "recv"))
        file = files[-1] if name in ("copy_file_range", "splice") else files[0]
        at = lambda places: any(file.startswith(str(place)) for place in places)
        if reading and (at(sources) or file.startswith("TCP")):
            sums["read"] += n
        elif not reading and at(targets):
            sums["target"] += n
        elif not reading and file.startswith("/") and not file.startswith(("/dev/", "/proc/", "/sys/")):
            sums["temporary"] += n
    trace.unlink()
    return dict(sums)


def say(text):
    print(f"==> {text}", file=sys.stderr, flush=True)
