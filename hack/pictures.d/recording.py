"""A recording of a terminal as SVG: real commands on a terminal of their own, by util-linux's script, and what they wrote when.

Without animations, or for who wants none, it is the last screen. Waits are shortened: a disk takes as long as it takes, and a
reader has seconds."""

import re
import subprocess
import sys
from xml.sax.saxutils import escape, unescape

COLUMNS, ROWS = 92, 28
# Of a character.
WIDTH, HEIGHT = 8, 17
# Seconds: between two changes of the screen at most, before what a command says, after it. What is there for less is not shown.
WAIT, READ, REST, BLINK = 0.15, 0.8, 1.5, 0.05
STYLE = """
text { font: 13px ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; fill: #d1d7e0; white-space: pre } .typed { fill: #fff; font-weight: 700 }
.there { animation: before linear } .gone { visibility: hidden; animation: during linear }
@keyframes before { from, to { visibility: hidden } } @keyframes during { from, to { visibility: visible } }
@media (prefers-reduced-motion: reduce) { .there, .gone, .roll { animation: none } }"""


class Screen:
    """What is on a terminal that only goes forward: lines, of which the last one may be written over. Of each line all that it
    ever was, as (text, kind, since, until)."""

    def __init__(self):
        self.lines, self.row, self.column, self.now = [[]], 0, 0, 0.0

    def write(self, text, kind=""):
        line, row = list(self.line()), self.row
        for character in text:
            if character == "\r":
                self.column = 0
            elif character == "\n" or self.column == COLUMNS:
                self.put("".join(line).rstrip(), kind)
                self.row, self.column, line = self.row + 1, 0 if character != "\n" else self.column, []
                self.lines.append([])
            if character in "\r\n":
                continue
            if not character.isprintable():
                sys.exit(f"error: a command writes what is not known here: {character!r}")
            line += " " * (self.column + 1 - len(line))
            line[self.column] = character
            self.column += 1
        if row != self.row or line:
            self.put("".join(line).rstrip(), kind)

    def line(self):
        return self.lines[self.row][-1][0] if self.lines[self.row] else ""

    def put(self, text, kind):
        was = self.lines[self.row]
        if self.line() == text:
            return
        if was:
            was[-1][3] = self.now
        was.append([text, kind, self.now, None])


def run(command, directory, environment):
    """What a command writes onto a terminal of this size, as (seconds since the last, text)."""
    names = {name: f"{directory}/.{name}" for name in ("output", "timing")}
    inside = f"stty cols {COLUMNS} rows {ROWS} -echo; {command}"
    options = ["--quiet", "--return", "--flush", f"--log-out={names['output']}", f"--log-timing={names['timing']}", "--logging-format=advanced"]
    # Whatever the directory is called, it is shown as this one.
    shown = ["unshare", "--mount", "sh", "-c", 'mount --bind "$0" /srv && cd /srv && exec "$@"', directory]
    said = subprocess.run([*shown, "script", *options, "--command", inside], env=environment, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    if said.returncode:
        sys.exit(f"error: {command}: {said.stdout.decode(errors='replace')}")
    with open(names["output"], "rb") as file:
        output = file.read().split(b"\n", 1)[1]
    with open(names["timing"], encoding="utf-8") as file:
        parts = [line.split() for line in file if line.startswith("O ")]
    rest = b""
    for _, seconds, count in parts:
        rest, output = rest + output[:int(count)], output[int(count):]
        # A part may end within a character.
        text = rest.decode("utf-8", "ignore")
        rest = rest[len(text.encode()):]
        # Colours and weights.
        yield float(seconds), re.sub(r"\x1b\[[0-9;]*m", "", text)


def record(commands, directory, environment):
    screen = Screen()
    for command in commands:
        screen.write(f"$ {command}\r\n", "typed")
        screen.now += READ
        for seconds, text in run(command, directory, environment):
            screen.now += min(seconds, WAIT)
            screen.write(text)
        screen.now += REST
    screen.write("$ ", "typed")
    return screen


def rolls(screen):
    """How many lines have gone out at the top, and since when."""
    for row in range(ROWS, len(screen.lines)):
        if screen.lines[row]:
            yield row + 1 - ROWS, screen.lines[row][0][2]


def texts(screen):
    for row, was in enumerate(screen.lines):
        for text, kind, since, until in was:
            if not text or (until is not None and until - since < BLINK):
                continue
            style = f"animation-duration: {since:.2f}s"
            if until is not None:
                style = f"animation-delay: {since:.2f}s; animation-duration: {until - since:.2f}s"
            classes = f"{'there' if until is None else 'gone'} {kind}".strip()
            # So wide with any font, so that what stands below each other does.
            yield (f'<text x="0" y="{HEIGHT * row + 13}" textLength="{WIDTH * len(text)}" lengthAdjust="spacingAndGlyphs" class="{classes}" '
                   f'style="{style}">{escape(text)}</text>')


def draw(screen, title):
    width, height, out = WIDTH * COLUMNS, HEIGHT * ROWS, list(rolls(screen))
    # Of one moment the last.
    frames = {f"{100 * since / screen.now:.2f}%": -HEIGHT * lines for lines, since in out}
    frames = "".join(f" {moment} {{ transform: translateY({y}px) }}" for moment, y in frames.items())
    last = -HEIGHT * out[-1][0] if out else 0
    roll = (f".roll {{ transform: translateY({last}px); animation: roll {screen.now:.2f}s step-end }}\n"
            f"@keyframes roll {{ 0% {{ transform: none }}{frames} }}")
    size = f'width="{width + 24}" height="{height + 24}" viewBox="0 0 {width + 24} {height + 24}"'
    return "\n".join([f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">', f"<title>{escape(title)}</title>", f"<style>{STYLE}\n{roll}\n</style>",
                      f'<rect width="{width + 24}" height="{height + 24}" rx="8" fill="#161923"/>',
                      f'<svg x="12" y="12" width="{width}" height="{height}"><g class="roll">', *texts(screen), "</g></svg>", "</svg>", ""])


def words(svg):
    """What a recording says at last, without numbers and bars: time, sizes and digests are others each time."""
    lines = [unescape(line) for line in re.findall(r'class="there[^>]*>(.*)</text>', svg)]
    # What did not fit goes on in the next line.
    said = "".join(line if len(line) == COLUMNS else line + "\n" for line in lines)
    return re.sub(r"[0-9a-f]{8,}(-[0-9a-f]{4,})*|\d+(\.\d+)?|\[[=> ]*\]", "#", said)


def self_test():
    screen = Screen()
    for text in ("one\r\n 1 of 2\r", "      \r 2 of 2\r\ntwo", " three\r\n", "x" * (COLUMNS + 1), "\r\n"):
        screen.now += 1
        screen.write(text)
    assert [[was[0] for was in line] for line in screen.lines] == [["one"], [" 1 of 2", " 2 of 2"], ["two", "two three"], ["x" * COLUMNS], ["x"], []], screen.lines
    assert [was[2:] for was in screen.lines[1]] == [[1.0, 2.0], [2.0, None]], screen.lines[1]
    drawn = draw(screen, "a test")
    assert words(drawn) == words(drawn.replace("2 of 2", "3 of 4")) == "\n".join(["one", " # of #", "two three", "x" * (COLUMNS + 1), ""])
