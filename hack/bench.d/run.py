"""Run a contender: seconds, CPU seconds, peak memory. With strace: how much it reads and writes where."""

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
    """A program that does the work, and how to run it."""

    name: str
    argv: list
    verifies: str = ""
    ours: bool = False
    env: dict = field(default_factory=dict)
    # PID of a service that does the work for the program that is started.
    service: int | None = None
    # Its last word of output is its time in seconds.
    prints_seconds: bool = False
    # Called before and after each run, untimed.
    before: object = None
    after: object = None
    # (text, function from the medians of all rows to the limit in seconds)
    goal: tuple | None = None
    # Function from the medians of all rows to what this machine cannot do faster, if that is known.
    floor: object = None
    # The reason, if it cannot run here.
    missing: str | None = None


def quiet(*argv, **options):
    """Run a command that must succeed, and return its output. The error shows the output too."""
    options.setdefault("stdin", subprocess.DEVNULL)
    done = subprocess.run([str(a) for a in argv], check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options)
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, argv))}: exit code {done.returncode}: {done.stdout.decode(errors='replace')[-800:].strip()}")
    return done.stdout.decode(errors="replace")


def service_cost(pid):
    """CPU seconds and peak MiB of a running process."""
    # Fields 14 to 17 of proc(5): user and system time in ticks, its own and its children's. Counted after the name in
    # brackets, which may contain spaces.
    ticks = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[11:15]
    peak = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK"), int(peak[1]) / 1024


def timed(c, scratch):
    """Run once: wall seconds, CPU seconds, peak resident MiB of the largest process."""
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
    """Name, arguments and result of every call. Joins the calls that strace prints in two halves."""
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
    """Bytes read from the sources, written to the target, and written to other files."""
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
