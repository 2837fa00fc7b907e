"""The harness of the benchmarks: turns, the check of every target, what is measured, and the report."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner

from perf.__main__ import main
from perf.harness.lake import Settings
from perf.harness.race import Differ, Laps, Rounds, race
from perf.harness.report import COLUMNS, lines, page, plot, rate, table, write
from perf.harness.study import studied
from perf.harness.usage import Usage, memory_of
from perf.harness.worker import WorkerError
from perf.studies import STUDIES
from perf.workloads import WORKLOADS
from tests.unit.perf.toy import WRITTEN, Counted, Ended, Kept, Parent, Toy, Wrong

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="what is measured is Linux's /proc"),
    pytest.mark.promise("benchmarks"),
]


def raced(folder: Path, workload: type[Toy], told: list[str] | None = None, rounds: Rounds = Rounds(2)) -> Any:  # noqa: B008
    tell = [].append if told is None else told.append
    return race(workload, Settings(folder, rows=100), rounds, ["helios", "naive"], tell)


def test_contenders_take_turns_and_are_measured(tmp_path: Path) -> None:
    told: list[str] = []
    result = raced(tmp_path, Toy, told)
    assert told[0].startswith("toy: numbers into a file, 100 rows")
    assert [line.split(":")[0] for line in told[1:]] == ["warm-up 1", "round 1", "round 2"]
    assert told[1].split(": ")[1].startswith("naive")
    assert told[2].split(": ")[1].startswith("helios")
    ours, theirs = result["contenders"]["helios"], result["contenders"]["naive"]
    assert ours["rounds"] == theirs["rounds"] == 2
    assert theirs["ratio"] == {"median": 1.0, "least": 1.0, "most": 1.0}
    assert ours["ratio"]["least"] > 1
    assert theirs["cpu_seconds_per_million_rows"] >= 0.4 * 1e4
    assert theirs["peak_memory"] > ours["peak_memory"] + (150 << 20)
    assert [lap["written"] >= WRITTEN for lap in result["laps"]["naive"]] == [True, True]
    assert ours["files"] == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["helios-judge.log", "helios.log", "naive.log", "source"]


def test_a_target_that_is_kept_grows(tmp_path: Path) -> None:
    result = raced(tmp_path, Kept)
    assert (tmp_path / "helios_target").read_text().split() == [str(n) for n in range(10, 40)]
    assert result["contenders"]["helios"]["bytes"] == (tmp_path / "source").stat().st_size


def test_a_contender_that_writes_other_rows_is_told(tmp_path: Path) -> None:
    with pytest.raises(Differ, match=r"helios has written 101 rows \(sum 4950\), and not 100 \(sum 4950\)"):
        raced(tmp_path, Wrong)


def test_a_contender_whose_process_ends_is_told(tmp_path: Path) -> None:
    with pytest.raises(WorkerError, match=r"helios ended in helios; its log is .*helios\.log"):
        raced(tmp_path, Ended)


def figures(seconds: float, base: Laps | None = None) -> tuple[Laps, dict[str, Any]]:
    laps = Laps([Usage(seconds * n, 1.0, 1 << 30, 300) for n in (1, 2, 4)], [2_000_000] * 3, 2, 100)
    return laps, laps.figures(base)


def result(name: str = "append") -> dict[str, Any]:
    base, naive = figures(2.0)
    contenders = {"helios": figures(1.0, base)[1], "naive": base.figures(base) | naive | {"ratio": None}}
    machine = {"processor": "one, 2 cores", "memory": "24 GiB"}
    told = {"workload": name, "says": "rows & more", "goal": "5 times", "rows": 2_000_000, "cores": 2, "heap": "4g"}
    return {**told, "contenders": contenders, "machine": machine}


def test_what_is_told_of_a_contender() -> None:
    base, _ = figures(3.0)
    _, told = figures(1.0, base)
    assert told["seconds"] == {"median": 2.0, "least": 1.0, "most": 4.0}
    assert told["ratio"] == {"median": 3.0, "least": 3.0, "most": 3.0}
    assert told["rows_per_second"] == 1_000_000
    assert told["cpu_seconds_per_million_rows"] == 0.5
    assert told["write_amplification"] == 3.0


@pytest.mark.parametrize(("rows", "text"), [(2_340_000, "2.34 M"), (45_600, "45.6 k"), (7.2, "7")])
def test_rates_are_short(rows: float, text: str) -> None:
    assert rate(rows) == text


def test_the_report_has_a_table_and_a_plot_of_each_result(tmp_path: Path) -> None:
    lines = table(result()).splitlines()
    assert lines[0].split("  ")[0] == COLUMNS[0]
    assert "2.00 (2.00 to 2.00)" in lines[1]
    root = ElementTree.fromstring(plot(result()))
    widths = [float(bar.attrib["width"]) for bar in root.iter("{http://www.w3.org/2000/svg}rect")]
    assert widths[0] == pytest.approx(2 * widths[1], rel=0.01)
    other = result("upsert") | {"machine": {"processor": "another"}}
    assert write([result(), other], tmp_path) == f"{tmp_path / 'benchmarks.md'}: 2 workloads"
    text = (tmp_path / "benchmarks.md").read_text()
    assert text == page([result(), other])
    for part in ("## append", "![upsert](benchmarks/upsert.svg)", "| helios | 2.00 s |", "processor another."):
        assert part in text
    assert sorted(path.name for path in (tmp_path / "benchmarks").iterdir()) == ["append.svg", "upsert.svg"]
    write([result(), result() | {"name": "append-9000000"}], tmp_path)
    assert "![append-9000000](benchmarks/append-9000000.svg)" in (tmp_path / "benchmarks.md").read_text()


def test_memory_of_a_process_that_has_ended_counts(tmp_path: Path) -> None:
    told = raced(tmp_path, Parent, rounds=Rounds(1, 0))["contenders"]
    assert told["helios"]["peak_memory"] > told["naive"]["peak_memory"] + (150 << 20)


def test_a_study_is_a_table_of_the_report(tmp_path: Path) -> None:
    told: list[str] = []
    found = studied(Counted, Settings(tmp_path, rows=12), told.append)
    assert told == ["counted: numbers, counted", "counting"]
    assert lines([found["columns"], *found["lines"]]).splitlines()[2].split() == ["all", "12"]
    text = page([result(), found | {"machine": result()["machine"]}])
    for part in (
        "## append",
        "## counted",
        "Numbers, counted: 12 numbers, 2 cores",
        "| below | count |",
        "| all | 12 |",
    ):
        assert part in text
    assert "counted.svg" not in text


def test_every_study_says_what_it_is() -> None:
    told = CliRunner().invoke(main, ["list"]).output
    for name, study in STUDIES.items():
        assert name in told
        assert study.says in told
        assert study.__doc__


def test_every_workload_says_what_it_is_and_has_helios_and_the_docs_job() -> None:
    told = CliRunner().invoke(main, ["list"]).output
    for name, workload in WORKLOADS.items():
        assert name in told
        assert workload.says in told
        assert {"helios", "naive"} <= set(workload.contenders())
        assert workload.__doc__


def test_wrong_arguments_are_told_before_anything_runs(tmp_path: Path) -> None:
    said = CliRunner().invoke(main, ["run", "partitions", "--contenders", "helios,duckdb"])
    assert said.exit_code == 2
    assert "duckdb is no contender of this workload; it has helios, native, naive, tuned, pyiceberg." in said.output
    said = CliRunner().invoke(main, ["run", "growth", "--contenders", "helios"])
    assert said.exit_code == 2
    assert "growth is a study" in said.output
    (tmp_path / ".helios").mkdir()
    said = CliRunner().invoke(main, ["run", "append", "--folder", str(tmp_path)])
    assert said.exit_code == 2
    assert "has tables of an earlier run" in said.output
    said = CliRunner().invoke(main, ["report", "--results", str(tmp_path)])
    assert said.exit_code == 1
    assert "has no results" in said.output


def status(parent: int, size: int, peak: int) -> str:
    return f"Name:\tjava\nPPid:\t{parent}\nVmPeak:\t{size} kB\nVmSize:\t{size} kB\nVmHWM:\t  {peak} kB\n"


def test_a_process_in_its_parents_memory_counts_once() -> None:
    """Until it is another program; one that was forked has its own, and one that has ended none."""
    java, starting, forked = status(1, 500, 300), status(7, 500, 300), status(7, 500, 20)
    assert memory_of({7: java, 8: starting, 9: starting, 10: forked, 11: "PPid:\t7\n", 12: ""}) == 320 << 10
