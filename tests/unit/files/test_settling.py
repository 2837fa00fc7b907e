"""Files that are still being written wait."""

from __future__ import annotations

import pytest

from helios.sources.files.settling import EMPTY_FINISHED_AGE, FINISHED_AGE, Settling

pytestmark = pytest.mark.promise("files")

NOW = 1_700_000_000.0


def at(age: float) -> int:
    return int((NOW - age) * 1000)


@pytest.mark.parametrize(
    ("path", "size", "age", "format", "finished"),
    [
        ("file:/a.csv", 5, FINISHED_AGE, "csv", True),
        ("file:/a.csv", 5, FINISHED_AGE - 0.1, "csv", False),
        ("file:/a.csv", 5, -3600, "csv", False),
        ("s3a://b/a.csv", 5, 0, "csv", False),
        ("gs://b/a.csv", 5, 0, "csv", True),
        ("file:/a.csv", 0, 10 * EMPTY_FINISHED_AGE, "csv", False),
        ("file:/a.json", 0, 10 * EMPTY_FINISHED_AGE, "json", False),
        ("file:/a.parquet", 0, EMPTY_FINISHED_AGE - 1, "parquet", False),
        ("file:/a.parquet", 0, EMPTY_FINISHED_AGE, "parquet", True),
    ],
)
def test_at_the_first_look(path: str, size: int, age: float, format: str, finished: bool) -> None:
    files = {path: (size, at(age))}
    assert Settling(format).finished(files, NOW) == (files if finished else {})


@pytest.mark.parametrize("age", [0.5, -3600])
def test_a_young_file_that_stays_as_it_is_is_finished_at_the_second_look(age: float) -> None:
    settling, files = Settling("csv"), {"file:/a.csv": (5, at(age))}
    assert settling.finished(files, NOW) == {}
    assert settling.undecided(files)
    assert settling.finished(files, NOW + 0.9) == {}
    assert settling.finished(files, NOW + 1) == files


def test_a_growing_file_waits() -> None:
    settling = Settling("csv")
    for look in range(5):
        assert settling.finished({"file:/a.csv": (5 + look, at(-look))}, NOW + look) == {}
    assert settling.finished({"file:/a.csv": (9, at(-4))}, NOW + 6) == {"file:/a.csv": (9, at(-4))}


def test_an_empty_file_is_not_looked_at_twice() -> None:
    settling, files = Settling("csv"), {"file:/a.csv": (0, at(0))}
    assert settling.finished(files, NOW) == {}
    assert not settling.undecided(files)
