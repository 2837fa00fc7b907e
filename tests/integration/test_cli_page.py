"""docs/cli.md, its console blocks as one story over one small lake: each command prints what the page shows.

The lake is the project of `helios init`, which runs twice. Spark starts three times.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.suite.pages import ROOT
from tests.suite.tutorial import commands, is_shown, output

pytestmark = [pytest.mark.promise("documents"), pytest.mark.timeout(900)]

PAGE = (ROOT / "docs" / "cli.md").read_text()
BLOCKS = re.findall(r"^```console\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
SHOWN = {command.line: command.shown for block in reversed(BLOCKS) for command in commands(block)}
"""The commands of the page, each with its output.

`plan` of big_orders is there twice: this is the first, without `changed`, which the tutorial of a change compares.
"""

BIG_ORDERS = """
big_orders = (
    Iceberg.source("shop.orders").incremental(poll="10s")
    >> where("amount >= 10")
    >> Iceberg.sink("shop.big_orders").maintain(expire="5d").exactly_once()
)
"""
WRONG = """from helios import Iceberg

first = (
    Iceberg.source("shop.oders") >> Iceberg.sink("shop.first")
)

second = (
    Iceberg.source("pord.shop.orders") >> Iceberg.sink("shop.second")
)
"""


def big_orders(demo: Path) -> None:
    """A second pipeline, on the line that the page shows."""
    script = demo / "pipeline.py"
    script.write_text(script.read_text() + BIG_ORDERS)


def a_wrong_script(demo: Path) -> None:
    (demo / "wrong.py").write_text(WRONG)


def nine_pipelines(demo: Path) -> None:
    """In place of the two, nine that are alike."""
    others = "".join(BIG_ORDERS.replace("big_orders", f"copy_{number}") for number in range(8))
    above = "\n" * 21
    (demo / "pipeline.py").write_text(f"from helios import Iceberg, where{above}{BIG_ORDERS}{others}")


def more_rows_and_a_stricter_filter(demo: Path) -> None:
    """What the section of `rehearse` says before its block."""
    (demo / "data" / "more.csv").write_text(SHOWN["cat demo/data/more.csv"])
    assert output("helios init ../again", demo)
    script = (demo.parent / "again" / "pipeline.py").read_text()
    (demo / "pipeline.py").write_text(script)
    assert "batch 1: 2 rows" in output("helios run pipeline.py --once", demo)
    removed, added = re.findall(r"^```diff\n-(.*)\n\+(.*)\n```$", PAGE, re.MULTILINE)[0]
    assert removed in script
    (demo / "pipeline.py").write_text(script.replace(removed, added))


STORY: tuple[tuple[str, str] | Callable[[Path], None], ...] = (
    (".", "helios init demo"),
    (".", "helios check demo/pipeline.py"),
    ("demo", "helios run pipeline.py --once"),
    ("demo", "helios tables"),
    ("demo", "helios schema shop.orders"),
    ("demo", "helios snapshots shop.orders"),
    ("demo", "helios tag shop.orders end-of-2026"),
    ("demo", "helios rollback shop.orders end-of-2026"),
    ("demo", "helios doctor pipeline.py"),
    ("demo", "helios jars pipeline.py"),
    (".", 'helios explain "another driver is running on checkpoint /srv/shop/.helios"'),
    a_wrong_script,
    ("demo", "helios check wrong.py"),
    big_orders,
    ("demo", "helios plan pipeline.py:big_orders"),
    ("demo", "helios graph pipeline.py:big_orders"),
    nine_pipelines,
    ("demo", "helios plan pipeline.py"),
    more_rows_and_a_stricter_filter,
    (".", "cat demo/data/more.csv"),
    (".", "helios rehearse demo/pipeline.py"),
)

ELSEWHERE = {
    "helios ui demo/pipeline.py": "serves until it is stopped; tests/page",
    "helios doctor orders.py": "brokers and a registry",
    "helios doctor --catalog prod": "a server in another region",
    "helios history shop.orders": "the tutorial of upserts compares a history",
    'helios why shop.orders "id = 4"': "the tutorial of files compares an answer",
    "helios diff shop.orders --from end-of-2026 --key id": "a change of columns, and one more start of Spark",
    """helios backfill pipeline.py --where "day >= '2026-01-05' AND day < '2026-01-08'" --by day""": (
        "the tutorial of operations compares a backfill; here rows arrive while it runs"
    ),
    "helios expire shop.orders --retain-last 3": "one more start of Spark",
    "helios compact shop.orders": "one more start of Spark",
    "helios rename shop.orders shop.orders_v2": "one more start of Spark",
}
"""Commands of the page that this story leaves out, with the reason."""

PLACES = re.compile(r"(?:\.\.\.)?/\S*/(?=bin/java|site-packages/|jars/)")
"""Folders of a machine: of Java, of Python's packages, of the jars."""


@pytest.mark.unit
def test_each_command_of_the_page_is_in_the_story_or_left_out_with_a_reason() -> None:
    told = [step[1] for step in STORY if isinstance(step, tuple)]
    assert sorted([*told, *ELSEWHERE]) == sorted(SHOWN)


def test_the_page_shows_what_is_printed(tmp_path: Path) -> None:
    differ = []
    for step in STORY:
        if not isinstance(step, tuple):
            step(tmp_path / "demo")
            continue
        folder, line = step
        printed = output(line, tmp_path / folder).replace(str(tmp_path), "...")
        if not is_shown(PLACES.sub(".../", SHOWN[line]), PLACES.sub(".../", printed)):
            differ.append(f"$ {line}\nthe page shows:\n{SHOWN[line]}\nit prints:\n{printed}")
    assert differ == []
