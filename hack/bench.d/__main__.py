"""Arguments of hack/bench, and the order of its sections. See hack/bench for what is measured."""

import argparse
import atexit
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import record
from delta import delta_section
from disk import Disk
from run import quiet, say
from slot import growth_section, slot_section, throttle_section
from sources import Registry, Sources
from system import image_section, latency_section, upgrade_section

SECTIONS = ("slot", "throttle", "upgrade", "growth", "image", "latency", "delta")


class Bench:
    """What all sections share."""

    def __init__(self, args):
        self.quick, self.rounds = args.quick, 2 if args.quick else args.rounds
        self.where = Path(args.dir).resolve() / "work"
        shutil.rmtree(self.where, ignore_errors=True)
        self.where.mkdir(parents=True)
        atexit.register(lambda: shutil.rmtree(self.where, ignore_errors=True))
        self.installer, self.peers = Path("out/installer").resolve(), Path("out/bench/peers").resolve()
        self.registry = Registry(self.where)
        self.sources = Sources(self.where, 64 if args.quick else args.mib, self.installer, self.registry)
        self.disk = Disk(self.where, self.sources.mib)


def machine():
    """The machine that the figures are from."""
    cpu = next(line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name"))
    return {"cpu": f"{os.cpu_count()} x {cpu}", "kernel": os.uname().release, "load": os.getloadavg()[0],
            "commit": quiet("git", "describe", "--always", "--abbrev=10", "--dirty").strip()}


def main():
    parser = argparse.ArgumentParser(prog="hack/bench")
    parser.add_argument("slot", help=argparse.SUPPRESS)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--mib", type=int, default=300)
    parser.add_argument("--dir", default="out/bench")
    parser.add_argument("--json")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--against", metavar="COMMIT")
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=" ".join(SECTIONS))
    args = parser.parse_intermixed_args()
    if unknown := set(args.sections) - set(SECTIONS):
        parser.error(f"no section {', '.join(unknown)}: {' '.join(SECTIONS)}")
    result = {"machine": machine(), "sections": {}}
    bench = Bench(args)
    run = {
        "slot": lambda: slot_section(bench.disk, bench.sources, args.slot, bench),
        "throttle": lambda: throttle_section(bench.disk, bench.sources, args.slot, bench),
        "upgrade": lambda: upgrade_section(bench.disk, bench.sources, bench),
        "growth": lambda: growth_section(args.slot, bench),
        "image": lambda: image_section(bench.disk, bench.sources, bench),
        "latency": lambda: latency_section(bench.disk, bench.sources, bench),
        "delta": lambda: delta_section(bench),
    }
    result |= {"rounds": bench.rounds, "payload_mib": bench.sources.mib}
    print(f"{bench.sources.mib} MiB payload, medians of {bench.rounds} interleaved rounds; {', '.join(f'{k} {v}' for k, v in result['machine'].items())}")
    if args.record or args.against:
        return record.record_section(args, bench, result["machine"])
    # It fetches some hundred MB of Debian's packages.
    default = [name for name in SECTIONS if name != "delta" or not args.quick]
    for name in args.sections or default:
        load = os.getloadavg()[0]
        say(f"section {name}, load {load:.1f}")
        result["sections"][name] = {"load": load, "rows": run[name]()}
        if args.json:
            Path(args.json).write_text(json.dumps(result, indent=1) + "\n")
    goals = [g for s in result["sections"].values() for row in s["rows"] for g in row.get("goals", [])]
    print(f"\n{sum(g['met'] for g in goals)} of {len(goals)} goals met; load at the end {os.getloadavg()[0]:.1f}")
    return True


# Exit through atexit even on SIGTERM, so that loop devices and files are given back.
signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by a signal"))
try:
    if sys.argv[1:] == ["--self-test"]:
        record.self_test()
        sys.exit(print("    hack/bench: a source that costs a tenth more is told", file=sys.stderr))
    sys.exit(0 if main() else 1)
except (RuntimeError, subprocess.SubprocessError) as e:
    sys.exit(f"error: {e}")
