"""The plugin, which each run of pytest loads, costs next to nothing; the kit's names are those that it says."""

from __future__ import annotations

import subprocess
import sys

import pytest

import helios.testing
from helios import Iceberg
from helios.errors import InputError
from helios.testing.lake import Lake
from helios.testing.plans import assert_plan

pytestmark = pytest.mark.promise("testing")

LATE = ("pyspark", "py4j", "pyiceberg", "pyarrow", "sqlglot", "helios.plan", "helios.testing.lake")


def test_the_plugin_loads_nothing_before_a_test_asks() -> None:
    code = f"import sys, helios.testing.plugin; print([name for name in {LATE!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"


def test_a_lake_and_what_it_gives_load_no_engine() -> None:
    code = "import sys; from helios.testing import Lake, assert_plan; print('pyspark' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "False"


def test_every_name_is_there() -> None:
    assert all(getattr(helios.testing, name).__doc__ for name in helios.testing.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'Lak'"):
        helios.testing.Lak  # type: ignore[attr-defined]


def shown(info: pytest.ExceptionInfo[BaseException]) -> list[str]:
    """The files of the frames that pytest shows."""
    return [str(entry.path) for entry in info.traceback if not entry.ishidden(info)]


def test_a_failure_shows_the_line_of_the_test_and_a_bug_of_the_kit_its_own() -> None:
    pipeline = Iceberg.source("a.s").incremental() >> Iceberg.sink("a.t")
    with pytest.raises(helios.testing.Different) as info:
        assert_plan(pipeline, "no such line")
    assert shown(info) == [__file__]
    with Lake() as lake, pytest.raises(InputError, match="takes pipelines, not 3") as wrong:
        lake.test(3)  # type: ignore[arg-type]
    assert shown(wrong) == [__file__]
    with pytest.raises(AttributeError) as bug:
        assert_plan(pipeline, None)  # type: ignore[arg-type]
    assert len(shown(bug)) > 1
