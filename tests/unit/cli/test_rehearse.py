"""`rehearse`: what is refused before Spark starts, and what is printed."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import Result

from helios.cli.rehearse import _print
from helios.spark.rehearse.report import Counts, Rehearsed, RehearsedCommit

pytestmark = [pytest.mark.promise("rehearsals"), pytest.mark.short]

Run = Callable[..., Result]

HEAD = """
from helios import Catalog, Cdc, Iceberg, Kafka, Memory, dedupe, watermark, where
lake = Catalog.local(path="lake")
rows = Memory.source([{"id": 1, "kind": "a"}])
"""


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ('one = rows >> Iceberg.sink("a.t")', "local.a.t has committed nothing into local.a.t: there is nothing to"),
        (
            'one = rows >> Iceberg.sink("a.t")\ntwo = [rows >> Iceberg.sink("a.u")]',
            "script.py has several pipelines: one, two[0]. Fix: rehearse one of them: helios rehearse script.py:one.",
        ),
        (
            'one = rows >> Iceberg.sink("a.t").route(by="kind")',
            "routes its rows into many tables: it cannot be rehearsed",
        ),
        ('one = rows >> Memory.sink("out")', "which keeps no record of what each batch has read: it cannot be"),
    ],
)
def test_what_cannot_be_rehearsed_is_refused_by_name(cli: Run, folder: Path, script: str, said: str) -> None:
    (folder / "script.py").write_text(HEAD + script)
    refused = cli("rehearse", "script.py")
    assert refused.exit_code == 2, refused.output
    assert said in refused.stderr


def test_last_and_since_are_two_ways(cli: Run, folder: Path) -> None:
    (folder / "script.py").write_text(HEAD + 'one = rows >> Iceberg.sink("a.t")')
    refused = cli("rehearse", "script.py", "--last", "2", "--since", "2026-01-01")
    assert refused.exit_code == 2
    assert "pass one" in refused.stderr


def test_an_error_of_several_commits_is_printed_once_below_them(capsys: pytest.CaptureFixture[str]) -> None:
    at = datetime(2026, 1, 5, tzinfo=UTC)
    commits = [
        RehearsedCommit(snapshot=number, committed=at, batch=number, before=1, failed=failed)
        for number, failed in enumerate(["no column b.\n  - a", "", "no column b.\n  - a"], start=1)
    ]
    _print(Rehearsed(pipeline="p", target="local.a.t", mode="append", commits=tuple(commits)))
    assert capsys.readouterr().out.splitlines()[2:] == [
        "SNAPSHOT  COMMITTED                BATCH  ROWS  ROWS NOW  DIFFERS",
        "1         2026-01-05 00:00:00 UTC  1         1         0  fails, see below",
        "2         2026-01-05 00:00:00 UTC  2         1         0  the same",
        "3         2026-01-05 00:00:00 UTC  3         1         0  fails, see below",
        "",
        "fails on 1 and 1 more: no column b.",
        "  - a",
        "in all: the same",
    ]


def test_rows_that_are_not_shown_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"id": number} for number in range(10)]
    differs = Counts(added=1_012, missing=10)
    _print(Rehearsed(pipeline="p", target="local.a.t", mode="append", differs=differs, added=rows, missing=rows))
    lines = capsys.readouterr().out.splitlines()
    assert "in all: 1,012 added, 10 missing" in lines
    assert lines[-1] == "  and more rows: 1,002 added"
