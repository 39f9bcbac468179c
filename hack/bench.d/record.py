"""Section `record`: what a whole `install` costs from each source, as a record that is committed, and against another commit.

Seconds depend on the machine and on what else it does. The processor time of `install`, divided by that of one pass of SHA-256
over the same bytes in the same run, hardly does: that is what two records are compared by."""

import statistics
import time
from dataclasses import dataclass, fields
from pathlib import Path

from run import MIB, Contender, quiet, say, timed, traced

RECORD = Path("docs/benchmarks.tsv")
# What is lost in the noise of two cores that do something else as well.
TOLERANCE = 1.10
DISK_BYTES = 4096 * MIB


@dataclass
class Row:
    """The cost of one source."""

    commit: str
    date: str
    processor: str
    source: str
    # Processor seconds for a GiB of payload, and the same as a multiple of SHA-256's.
    cpu_per_gib: float
    cpu_by_sha256: float
    # Seconds, as a multiple of `dd conv=fsync` of the same bytes.
    time_by_dd: float
    peak_mib: float
    # Bytes written, for each byte of payload.
    written: float


HEAD = [field.name for field in fields(Row)]


def read_record(text):
    rows = []
    for line in text.splitlines()[1:]:
        cells = line.split("\t")
        rows.append(Row(*cells[:4], *map(float, cells[4:])))
    return rows


def record_text(rows):
    line = lambda row: "\t".join(f"{value:.3g}" if isinstance(value, float) else value for value in vars(row).values())
    return "\n".join(["\t".join(HEAD), *map(line, rows)]) + "\n"


def worse(before, after):
    """Why a source costs more than it did, as sentences. Both are rows by source."""
    for source, row in after.items():
        if source not in before:
            continue
        for name, old, new in (
            ("processor time, by SHA-256's", before[source].cpu_by_sha256, row.cpu_by_sha256),
            ("peak memory, MiB", before[source].peak_mib, row.peak_mib),
        ):
            if new > TOLERANCE * old:
                yield f"{source}: {name}: {old:.3g} -> {new:.3g}, {new / old - 1:+.0%}"


def installs(program, image, sources, name):
    """A whole install from each source, onto a fresh image."""

    def fresh():
        image.unlink(missing_ok=True)
        with image.open("wb") as file:
            file.truncate(DISK_BYTES)

    return [
        Contender(f"{name} {source}", [program, "install", "--disk", image, "--source", reference, "--progress=none",
                                       "--format-data=false"], ours=True, env=env, before=fresh)
        for source, reference, env in sources.by_name()
    ]


def limits(sources, image, slot):
    copy = ["dd", f"if={sources.raw}", f"of={image}", "bs=1M", "conv=fsync"]
    return [
        Contender("dd", copy, before=lambda: image.unlink(missing_ok=True)),
        Contender("SHA-256", [slot, "sha256", sources.raw], prints_seconds=True),
    ]


def measured(programs, sources, slot, bench, machine):
    """Rows of each program, by its commit and then by source: all of them run in turns."""
    image = bench.where / "record.raw"
    bounds = limits(sources, image, slot)
    ours = {commit: installs(program, image, sources, commit) for commit, program in programs.items()}
    everything = [*bounds, *(c for found in ours.values() for c in found)]
    costs = {}
    for number in range(bench.rounds + 1):
        for c in everything:
            cost = timed(c, bench.where)
            if number:
                costs.setdefault(c.name, []).append(cost)
        say(f"round {number} of {bench.rounds}" if number else "warmed up")
    median = lambda c, what: statistics.median(cost[what] for cost in costs[c.name])
    dd, sha256 = (median(c, "seconds") for c in bounds)
    gib = sources.mib / 1024
    date = time.strftime("%Y-%m-%d", time.gmtime())
    found = {}
    for commit, contenders in ours.items():
        for c, (source, _, _) in zip(contenders, sources.by_name()):
            cpu, written = median(c, "cpu"), traced(c, bench.where, (image,), ()).get("target", 0)
            found.setdefault(commit, {})[source] = Row(
                commit, date, machine["cpu"], source, cpu / gib, cpu / sha256, median(c, "seconds") / dd,
                max(cost["peak"] for cost in costs[c.name]), written / (sources.mib * MIB))
    image.unlink(missing_ok=True)
    return found


def show(found):
    print(f"  {'':<40} CPU s/GiB   /SHA-256   time/dd  peak MiB   written")
    for commit, rows in found.items():
        for source, row in rows.items():
            print(f"  {commit + ' ' + source:<40} {row.cpu_per_gib:9.2f} {row.cpu_by_sha256:10.2f} {row.time_by_dd:9.2f} "
                  f"{row.peak_mib:9.1f} {row.written:9.3f}")


def built_at(commit, where):
    """The installer of another commit, built by its own scripts."""
    name = quiet("git", "rev-parse", "--short=10", f"{commit}^{{commit}}").strip()
    tree = where / name
    if not (tree / "out/installer").exists():
        say(f"building the installer of {name}")
        quiet("git", "worktree", "prune")
        if not tree.exists():
            quiet("git", "worktree", "add", "--detach", tree, name)
        quiet("hack/build", cwd=tree)
    return name, tree / "out/installer"


def record_section(args, bench, machine):
    """Measures, compares, and writes the record if that was asked for. Returns whether nothing costs more than before."""
    here = machine["commit"]
    if args.record and here.endswith("-dirty"):
        raise RuntimeError("the tree has changes that are not committed: a record names the commit that it is of")
    past = read_record(RECORD.read_text()) if RECORD.exists() else []
    # The last record of each source that a processor of this kind made.
    programs, before = {here: bench.installer}, {row.source: row for row in past if row.processor == machine["cpu"]}
    if args.against:
        other, program = built_at(args.against, Path(args.dir).resolve() / "commits")
        programs = {other: program, **programs}
    found = measured(programs, bench.sources, args.slot, bench, machine)
    show(found)
    if args.against:
        before = found[other]
    complaints = list(worse(before, found[here]))
    for complaint in complaints:
        print(f"COSTS MORE: {complaint}")
    if args.record:
        RECORD.write_text(record_text([*(row for row in past if row.commit != here), *found[here].values()]))
        say(f"wrote {RECORD}")
    elif not before:
        say("there is nothing to compare with: no record of such a processor, and no --against")
    return not complaints


def self_test():
    row = Row("c1", "2026-01-02", "2 x P", "dir", 0.9, 1.5, 2.0, 8.0, 1.1)
    assert read_record(record_text([row])) == [row]
    slower = Row("c2", "2026-01-03", "2 x P", "dir", 0.9, 1.7, 2.0, 8.0, 1.1)
    larger = Row("c2", "2026-01-03", "2 x P", "dir", 0.9, 1.6, 2.0, 9.0, 1.1)
    found = [list(worse({"dir": row}, {"dir": after})) for after in (row, slower, larger)]
    assert [len(sentences) for sentences in found] == [0, 1, 1], found
    assert not list(worse({}, {"dir": slower}))
