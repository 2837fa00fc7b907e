"""Marks of all tests: what each costs, and which runs it is in.

Tests say it themselves, and a run takes them by `pytest -m`:

    @pytest.mark.short                                   `make test` runs it, as it does each test without a JVM
    @pytest.mark.landing                                 the landing check, `make landing`, runs it too
    @pytest.mark.slow                                    only `make test-slow` runs it
    @pytest.mark.cases(short="int-off", landing=("a", "b"))    the same for some cases of a test, by their ids
    @pytest.mark.sampled(5, first=2)                     `make test-all` takes one case in five, from the third one on
    @pytest.mark.promise("upsert")                       which promise of promises.py it shows

What is short is in the landing check, and `make test-all` runs all that is neither short nor slow. The marks of costs
(`unit`, `spark`, `process`) and of folders are set here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
FOLDERS = ("unit", "streaming", "integration", "matrix", "cluster", "outage", "served", "services", "kafka", "compat")
SERVERS = ("matrix", "cluster", "outage", "served", "services", "kafka")
RUNS = ("short", "landing", "slow")
SAMPLED = 3
"""Of a test of many cases `make test-all` takes one in so many, unless the test or its file says another number."""


def mark_all(items: Sequence[pytest.Item]) -> None:
    """Marks tests, and as slow the cases that `make test-all` does not take."""
    cases: dict[str, list[pytest.Function]] = {}
    for item in items:
        mark(item)
        chosen = any(item.get_closest_marker(run) for run in RUNS)
        if not chosen and isinstance(item, pytest.Function) and hasattr(item, "callspec"):
            cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for several in cases.values():
        for item in left_to_the_slow_run(several):
            item.add_marker("slow")


def mark(item: pytest.Item) -> None:
    """Marks a test by its folder, by what it costs, and by the runs that it is in."""
    folder = item.path.relative_to(TESTS).parts[0] if item.path.is_relative_to(TESTS) else "unit"  # helios's doctests
    if folder in FOLDERS:
        item.add_marker(folder)
    if isinstance(item, pytest.DoctestItem):
        item.add_marker("unit")
    if "shared_spark" in getattr(item, "fixturenames", ()):
        item.add_marker("spark")
    elif not item.get_closest_marker("unit"):
        item.add_marker("process")
    for run in RUNS:
        if case(item) in named_cases(item, run):
            item.add_marker(run)
    if item.get_closest_marker("unit") and not item.get_closest_marker("slow"):
        item.add_marker("short")


def case(item: pytest.Item) -> str | None:
    """The id of a test's case: what stands in its brackets."""
    return item.callspec.id if isinstance(item, pytest.Function) and hasattr(item, "callspec") else None


def named_cases(item: pytest.Item, run: str) -> list[str]:
    """The cases of a test that are in a run, as its marks name them."""
    return [name for marked in item.iter_markers("cases") for name in _texts(marked.kwargs.get(run, ()))]


def _texts(given: str | Sequence[str]) -> Iterator[str]:
    yield from (given,) if isinstance(given, str) else given


def left_to_the_slow_run(cases: Sequence[pytest.Function]) -> list[pytest.Function]:
    """The cases of a test that `make test-all` does not take, by their places among those of the test."""
    sampled = cases[0].get_closest_marker("sampled")
    every, first = (sampled.args[0], sampled.kwargs.get("first", 0)) if sampled else (SAMPLED, 0)
    every = min(len(cases), every)
    left = [case for case in cases if (sum(case.callspec.indices.values()) - first) % every]
    return left if len(left) < len(cases) else left[1:]
