"""The page of the docs is that of a full run, in which nothing failed but the gaps."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.matrix import test_promises
from tests.matrix.combinations import COMBINATIONS
from tests.matrix.gaps import GAPS
from tests.matrix.table import PROMISES, Outcome, page

pytestmark = pytest.mark.promise("suite")

DOCS = Path(__file__).parents[2] / "docs"


def test_every_promise_has_a_column() -> None:
    assert [name.removeprefix("test_") for name in vars(test_promises) if name.startswith("test_")] == [*PROMISES]


def test_every_gap_is_one_of_a_combination() -> None:
    known = {(row.catalog, row.storage, promise) for row in COMBINATIONS for promise in PROMISES}
    assert set(GAPS) <= known


def test_the_page_is_the_result_of_a_full_run(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--matrix-table", default=None):
        pytest.skip("the page is written at the end of this run")

    def outcome(catalog: str, storage: str, promise: str) -> Outcome:
        cause = GAPS.get((catalog, storage, promise))
        return ("gap", cause) if cause else ("passed", "")

    expected = {
        (row.name, promise): outcome(row.catalog, row.storage, promise) for row in COMBINATIONS for promise in PROMISES
    }
    assert (DOCS / "matrix.md").read_text(encoding="utf-8") == page(expected)
