"""Every row of random files is in the target, the quarantine or a count; `perf/files.py` does 200 rounds of it."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = [pytest.mark.promise("accounts"), pytest.mark.sampled(4)]


@pytest.mark.parametrize("seed", range(1, 9))
@pytest.mark.cases(short="1")
def test_every_row_of_random_files_is_accounted_for(world: Any, command: Any, seed: int) -> None:
    differences, account = command("files").one_round(world.folder, seed, world.spark)
    assert account.rows
    assert differences == []
