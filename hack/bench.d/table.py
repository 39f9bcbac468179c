"""Rounds, medians, goals, and the table."""

import shutil
import statistics

from run import say, timed, traced


def rounds(contenders, n, scratch):
    """Run all contenders once to warm up, then n times in turns: A B C A B C. Returns lists of what `timed` returns, by
    name. A peer that fails in the warm-up is left out, and its row says why."""
    costs = {}
    for number in range(n + 1):
        for c in contenders:
            if c.missing:
                continue
            try:
                cost = timed(c, scratch)
            except (RuntimeError, OSError) as e:
                if c.ours or number:
                    raise
                c.missing = "DOES NOT RUN HERE: " + " ".join(str(e).split("exit code")[-1].split())[:200]
                say(f"{c.name}: {c.missing}")
                continue
            if number:
                costs.setdefault(c.name, []).append(cost)
        say(f"round {number} of {n}" if number else "warmed up")
    return costs


def rows_of(contenders, n, scratch, targets=None, sources=()):
    """A row for each contender. With `targets` each runs once more under strace."""
    costs, rows = rounds(contenders, n, scratch), []
    for c in contenders:
        row = {"name": c.name, "ours": c.ours, "verifies": c.verifies, "missing": c.missing}
        if runs := costs.get(c.name):
            seconds = [run["seconds"] for run in runs]
            row |= {"seconds": statistics.median(seconds), "least": min(seconds), "most": max(seconds),
                    "cpu": statistics.median(run["cpu"] for run in runs), "peak_mib": max(run["peak"] for run in runs)}
            if targets is not None:
                row["bytes"] = traced(c, scratch, targets, sources)
        rows.append(row)
    medians = {row["name"]: row["seconds"] for row in rows if "seconds" in row}
    for c, row in zip(contenders, rows):
        if c.goal and "seconds" in row:
            goal(row, c.goal[0], row["seconds"], c.goal[1](medians), c.floor and c.floor(medians))
    return rows


def goal(row, text, value, limit, floor=None):
    """Add a goal to a row: met if `value` is at most `limit`. `floor` is what this machine cannot do better than."""
    row.setdefault("goals", []).append({"goal": text, "value": value, "limit": limit, "met": value <= limit, "floor": floor})


def verdict(row):
    """Whether the goals of a row are met, and how much of the limit was used."""
    texts = []
    for g in row.get("goals", []):
        used = f"{g['value'] / g['limit']:.2f} of it" if g["limit"] else f"{g['value']:g}"
        if g["floor"]:
            used += f"; this machine's own limit is {g['floor'] / g['limit']:.2f} of it"
        texts.append(f"{'met' if g['met'] else 'MISSED'} {g['goal']} ({used})")
    return "; ".join(texts)


def show(title, rows, against=(), extra=()):
    """Print a section. `against`: (heading, seconds) to divide by. `extra`: (heading, function of a row)."""
    print(f"\n{title}")
    width = max(len(row["name"]) for row in rows)
    heads = [f"{head:>9}" for head, _ in against] + [f"{head:>12}" for head, _ in extra]
    print(f"  {'':<{width}}  median s (from to)    {''.join(heads)}   CPU s  peak MiB")
    for row in rows:
        name = f"  {row['name']:<{width}}"
        if "seconds" not in row:
            print(f"{name}  {row.get('missing') or ''}{row.get('text', '')}  {verdict(row)}".rstrip())
            continue
        cells = [f"{row['seconds'] / by:>9.2f}" for _, by in against] + [f"{show_cell(of(row)):>12}" for _, of in extra]
        spread = f"({row['least']:.2f} {row['most']:.2f})"
        print(f"{name}  {row['seconds']:8.3f} {spread:<13}{''.join(cells)} {row['cpu']:7.2f} {row['peak_mib']:9.1f}  "
              f"{'  '.join(filter(None, (row['verifies'], verdict(row))))}".rstrip(), flush=True)


def show_cell(value):
    return "-" if value is None else value


def why_missing(program, *also):
    """The reason why a program cannot be run, or None."""
    gone = [p for p in (program, *also) if not shutil.which(str(p))]
    return f"MISSING: {', '.join(map(str, gone))}" if gone else None
