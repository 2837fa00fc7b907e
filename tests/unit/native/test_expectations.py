"""Expectations of the columnar engine without Spark: which rows are left out, and how they are counted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from helios import expect, select, where, with_columns
from helios.native import reader, task
from helios.native.program import Expectation, NotNative, Program, Term
from helios.plan.native.steps import program_of
from helios.plan.typing.schema import from_arrow
from helios.spark.native.batch import NativeBatch
from helios.spark.steps.build import Built
from tests.unit.native.test_engine import ROWS, SOURCE, done, numbered, work

pytestmark = pytest.mark.promise("engine")


def ids(told: dict[str, Any]) -> list[int | None]:
    found = [pq.read_table(file["file-path"])["id"].to_pylist() for file in told["files"]]
    return [one for some in found for one in some]


@pytest.mark.parametrize("uri", [False, True])
@pytest.mark.parametrize(
    ("conditions", "kept"),
    [
        ({"some": "n > 0"}, [1, 4]),
        ({"some": "n <> 0", "more": "x > 1"}, [1, 5]),
        ({"some": "n > 0 OR x > 1"}, [1, 2, 4, 5]),
        ({"some": "NOT (n > 0 AND x > 1)"}, [None, 5]),  # neither true nor false of a null is a failed row
        ({"some": "CASE WHEN id = 4 THEN true END"}, [4]),
        ({"some": "n IS NULL OR n >= 0", "more": "coalesce(name, 'z') < 'e'"}, [1, 2, 4]),
        ({"all": "true"}, [1, 2, None, 4, 5]),
        ({"none": "id > 100"}, []),
    ],
)
def test_rows_that_do_not_meet_it_are_left_out_and_counted(
    tmp_path: Path, uri: bool, conditions: dict[str, str], kept: list[int | None]
) -> None:
    told = done(tmp_path, SOURCE >> expect(conditions, on_fail="drop"), uri=uri)
    assert ids(told) == kept
    assert told["dropped"] == 5 - len(kept)


def test_each_expectation_sees_the_rows_that_are_left(tmp_path: Path) -> None:
    """Rows of a `where` are not counted, in front of it or behind; values behind it are computed of kept rows alone."""
    stream = (
        SOURCE
        >> where("id <> 5")
        >> expect({"small": "n < 2147483647"}, on_fail="drop")  # not 2 and 4
        >> with_columns(next="n + 1")  # overflows for 4
        >> where("next > 0")
        >> expect({"many": "next > 7"}, on_fail="drop")
    )
    told = done(tmp_path, stream)
    assert (ids(told), told["dropped"]) == ([1], 2)


def test_rows_without_a_column_of_the_file_are_counted(tmp_path: Path) -> None:
    told = done(tmp_path, SOURCE >> expect({"never": "1 > 2"}, on_fail="drop") >> select("1 AS one"))
    assert told == {"files": [], "dropped": 5}
    told = done(tmp_path, SOURCE >> select("1 AS one") >> expect({"always": "one = 1"}, on_fail="drop"))
    assert (told["files"][0]["record-count"], told["dropped"]) == (5, 0)


def test_a_large_file_is_counted_over_its_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "MAX_VALUES", 1)
    path = tmp_path / "in.parquet"
    pq.write_table(numbered(ROWS.slice(0, 2)), path)
    many = pq.read_table(path).take([0, 1] * 50_000)
    pq.write_table(many, path)
    made = work(tmp_path, program_of(SOURCE >> expect({"x": "id < 2"}, on_fail="drop"), from_arrow(ROWS.schema)))
    shares = [(str(path), 1, 100_000), (str(path), 1, 100_000)]
    told = json.loads(task.run("write", made.to_json(), shares, "0"))
    assert (sum(file["record-count"] for file in told["files"]), told["dropped"]) == (100_000, 100_000)


def test_a_row_that_stops_the_run_leaves_the_batch_to_spark(tmp_path: Path) -> None:
    stops = expect({"known": "name IS NOT NULL", "small": "n < 8"})
    assert ids(done(tmp_path, SOURCE >> where("id < 2") >> stops)) == [1]
    told = done(tmp_path, SOURCE >> stops >> where("id < 2"))
    assert told == {
        "refused": "a row does not meet expect(known=name IS NOT NULL, small=n < 8, on_fail=fail), and Spark says which"
    }
    assert len(list((tmp_path / "data").rglob("*.parquet"))) == 1  # that of the first


@pytest.mark.parametrize("on_fail", ["drop", "fail"])
def test_a_condition_on_which_spark_may_fail_leaves_the_batch_to_spark(tmp_path: Path, on_fail: Any) -> None:
    told = done(tmp_path, SOURCE >> expect({"next": "n + 1 > 0"}, on_fail=on_fail))
    assert told == {"refused": "Spark may fail on a value of the batch, with an error that names the value"}


@pytest.mark.parametrize(
    ("conditions", "on_fail", "reason"),
    [
        ({"x": "n > 0"}, "quarantine", r"expect\(x=n > 0, on_fail=quarantine\) quarantines rows as JSON"),
        ({"x": "n > 0", "y": "upper(name) = 'A'"}, "drop", "is an expression that the native engine"),
        ({"x": "n"}, "fail", "n is not a boolean"),
    ],
)
def test_what_stays_with_spark(conditions: dict[str, str], on_fail: Any, reason: str) -> None:
    with pytest.raises(NotNative, match=reason):
        program_of(SOURCE >> expect(conditions, on_fail=on_fail), from_arrow(ROWS.schema))


def test_an_expectation_travels_as_json() -> None:
    condition = Term("col", "boolean", text="a")
    made = Program((("a", "boolean"),), (Expectation(condition), Expectation(condition, "why")), (("a", "boolean"),))
    assert Program.parse(made.to_json()) == made


def test_counts_are_those_of_the_engine_that_has_written_the_batch() -> None:
    """What tasks of the last try have told; none where the batch is Spark's after all."""
    reasons: list[str] = []
    native = NativeBatch(None, Program((), (), ()), None, False, reasons.append)  # type: ignore[arg-type]
    built = Built(None, native)  # type: ignore[arg-type]
    assert built.dropped() == 0
    for _ in range(2):
        native.count_dropped([{"dropped": 2}, {"dropped": 3}])
    assert built.dropped() == 5
    native.leave_to_spark(NotNative("a reason"))
    assert (built.dropped(), reasons) == (0, ["a reason"])
