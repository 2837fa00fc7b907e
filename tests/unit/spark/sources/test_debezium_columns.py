"""The columns of a table's changes, from the schema parts of Debezium's records."""

from __future__ import annotations

from typing import Any

import pytest

from helios import Cdc, Kafka
from helios.errors import InputError
from helios.sources.changes.spark.rows import columns
from helios.sources.changes.spark.types import of_connect
from helios.sources.changes.spark.versions import Version

pytestmark = pytest.mark.promise("cdc")

SOURCE: Any = Cdc.debezium(Kafka.source("db.public.t"))


def version(*names: str) -> Version:
    return Version(tuple((name, of_connect({"type": "int64"})) for name in names), ("{}",))


def test_columns_that_differ_by_case_are_refused() -> None:
    with pytest.raises(InputError, match=r"the columns Id and id differ only by case.*Fix: rename one of them"):
        columns([version("Id", "n", "id")], SOURCE)


def test_a_column_whose_name_changed_its_case_is_one_column() -> None:
    assert columns([version("Id", "n"), version("id", "n")], SOURCE).names == ["Id", "n"]
