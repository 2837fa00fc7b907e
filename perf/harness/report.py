"""What a race came to: a table for the terminal, and docs/benchmarks.md with a plot of each workload."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from perf.harness.workload import CONTENDERS

COLUMNS = (
    "contender",
    "median",
    "range",
    "rows/s",
    "ratio to naive",
    "CPU s / M rows",
    "peak memory",
    "written / kept",
)
HELIOS = ("helios", "native")
OURS, OTHERS = "#e8590c", "#868e96"
WIDTH, LABEL, BAR, GAP = 760, 130, 22, 10


def cells(name: str, told: dict[str, Any]) -> tuple[str, ...]:
    """A contender's row, by `COLUMNS`."""
    seconds, ratio, amplification = told["seconds"], told["ratio"], told["write_amplification"]
    return (
        name,
        f"{seconds['median']:.2f} s",
        f"{seconds['least']:.2f} to {seconds['most']:.2f} s",
        rate(told["rows_per_second"]),
        f"{ratio['median']:.2f} ({ratio['least']:.2f} to {ratio['most']:.2f})" if ratio else "",
        f"{told['cpu_seconds_per_million_rows']:.2f}",
        f"{told['peak_memory'] / 2**30:.1f} GiB",
        f"{amplification:.2f}" if amplification else "",
    )


def rate(rows: float) -> str:
    """Rows per second, short.

    Examples:
        >>> rate(2_340_000), rate(45_600), rate(7.2)
        ('2.34 M', '45.6 k', '7')
    """
    if rows >= 1e6:
        return f"{rows / 1e6:.2f} M"
    return f"{rows / 1e3:.1f} k" if rows >= 1e3 else f"{rows:.0f}"


def label(result: dict[str, Any]) -> str:
    """A result's name: its workload, with the size where that is not the workload's own."""
    found: str = result.get("name", result["workload"])
    return found


def table(result: dict[str, Any]) -> str:
    """The contenders of a race, for a terminal."""
    return lines([COLUMNS, *(cells(name, told) for name, told in result["contenders"].items())])


def lines(rows: Sequence[Sequence[str]]) -> str:
    """A table with its heading, for a terminal."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)) for row in rows)


def plot(result: dict[str, Any]) -> str:
    """The rows per second of each contender as bars, an SVG."""
    told = {name: figures["rows_per_second"] for name, figures in result["contenders"].items()}
    longest = max(told.values())
    height = GAP + len(told) * (BAR + GAP)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        f'font-family="sans-serif" font-size="13"><title>{escape(label(result))}: rows per second</title>'
    ]
    for number, (name, rows) in enumerate(told.items()):
        top = GAP + number * (BAR + GAP)
        length = max(1.0, rows / longest * (WIDTH - LABEL - 110))
        colour = OURS if name in HELIOS else OTHERS
        middle = top + BAR * 0.7
        lines += [
            f'<text x="{LABEL - 8}" y="{middle:.0f}" text-anchor="end" fill="{colour}">{escape(name)}</text>',
            f'<rect x="{LABEL}" y="{top}" width="{length:.1f}" height="{BAR}" fill="{colour}"/>',
            f'<text x="{LABEL + length + 6:.1f}" y="{middle:.0f}" fill="{colour}">{rate(rows)} rows/s</text>',
        ]
    return "\n".join([*lines, "</svg>", ""])


def write(results: list[dict[str, Any]], docs: Path) -> str:
    """Writes `benchmarks.md` and a plot for each result; returns a line that says so."""
    pictures = docs / "benchmarks"
    pictures.mkdir(exist_ok=True)
    for result in (result for result in results if "contenders" in result):
        (pictures / f"{label(result)}.svg").write_text(plot(result))
    (docs / "benchmarks.md").write_text(page(results))
    return f"{docs / 'benchmarks.md'}: {len(results)} workloads"


def page(results: list[dict[str, Any]]) -> str:
    """The page of all results."""
    measured = results[0]["machine"]
    parts = [
        "# Benchmarks",
        "`python -m perf run NAME` measures each figure, and `python -m perf report` makes this page. Each contender "
        "keeps one process over all rounds. The contenders take turns. After every round, or after the last one if "
        "targets are kept, all targets must hold the same rows.",
        "Times are medians of whole queries, with start, commit and Helios's ledger. The first rounds, in which a JVM "
        "compiles its code, do not count. Memory is the peak of all processes of a contender, with the JVM's heap. "
        '"written / kept" is the bytes written to storage, divided by the bytes of the target\'s data files.',
        "\n".join(f"- **{name}**: {says}" for name, says in CONTENDERS.items()),
        "Measured with " + ", ".join(f"{name} {value}" for name, value in measured.items()) + ".",
    ]
    for result in results:
        parts += _raced(result) if "contenders" in result else _studied(result)
        if result["machine"] != measured:
            told = ", ".join(f"{name} {value}" for name, value in result["machine"].items())
            parts.append(f"Measured with {told}.")
    return "\n\n".join(parts) + "\n"


def _raced(result: dict[str, Any]) -> list[str]:
    count = next(iter(result["contenders"].values()))["rounds"]
    return [
        f"## {label(result)}",
        f"{result['says'][:1].upper()}{result['says'][1:]}: {result['rows']:,} rows, {count} rounds, "
        f"{result['cores']} cores, a heap of {result['heap']}. Goal: {result['goal']}.",
        f"![{label(result)}](benchmarks/{label(result)}.svg)",
        _markdown(COLUMNS, [cells(name, told) for name, told in result["contenders"].items()]),
    ]


def _studied(result: dict[str, Any]) -> list[str]:
    return [
        f"## {label(result)}",
        f"{result['says'][:1].upper()}{result['says'][1:]}: {result['rows']:,} {result['size']}, "
        f"{result['cores']} cores, a heap of {result['heap']}. Goal: {result['goal']}.",
        _markdown(result["columns"], result["lines"]),
    ]


def _markdown(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in (columns, ["---"] * len(columns), *rows))
