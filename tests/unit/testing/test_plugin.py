"""The plugin, which each run of pytest loads, costs next to nothing; the kit's names are those that it says."""

from __future__ import annotations

import subprocess
import sys

import pytest

import helios.testing

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
