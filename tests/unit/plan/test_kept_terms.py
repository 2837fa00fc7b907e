"""What checkpoints and tables keep of a pipeline stays as it was first written: another text would be another one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

import pytest

from helios import Cdc, Console, Iceberg, Kafka, Memory, Pipeline, drop, where
from helios.model.modes import MODES, Append, Delete, Groups, MergeSql, Mode, Overwrite, OverwritePartitions, Upsert
from helios.plan import Plan
from helios.plan.other_upserts import upsert_terms

pytestmark = pytest.mark.promise("formats")

ROWS = Memory.source([], "id bigint, name string, ts timestamp, gone boolean")
NEW, OLD = Iceberg.sink("a.new"), Iceberg.sink("a.orders")
MERGE = "MERGE INTO target USING batch ON target.id = batch.id WHEN MATCHED THEN DELETE"
CHANGES = Cdc.debezium(Kafka.source("orders").servers("b:9092"))
BY_LOG: Mapping[str, Any] = {"keys": [], "newest": None, "remembers": "the newest order of each key"}

KEPT: tuple[tuple[Pipeline, str, Mapping[str, Any] | None], ...] = (
    (ROWS >> where("id > 0") >> NEW, "1606026cf5da6bcb", None),
    (ROWS >> where("id > 0") >> Memory.sink("m"), "1606026cf5da6bcb", None),
    (ROWS >> Console.sink(), "e3b0c44298fc1c14", None),
    (ROWS >> drop("gone") >> OLD.overwrite("id = 1"), "9ba51e7feed314ee", None),
    (ROWS >> drop("gone") >> OLD.delete("id"), "9ba51e7feed314ee", None),
    (ROWS >> drop("gone") >> OLD.merge_sql(MERGE), "9ba51e7feed314ee", None),
    (ROWS >> NEW.route(by="name"), "a56a239ca9dec046", None),
    (
        ROWS >> NEW.upsert("id", order_by="ts", delete_when="gone", tombstones="1h"),
        "e3b0c44298fc1c14",
        {"keys": ["id"], "newest": "ts", "remembers": "deleted keys", "tombstones": 3600.0},
    ),
    (
        ROWS >> NEW.upsert("ID", order_by="ts", store_order=False),
        "e3b0c44298fc1c14",
        {"keys": ["id"], "newest": "ts", "remembers": "the newest order of each key"},
    ),
    (
        ROWS >> NEW.upsert("id", order_by="ts", history=True),
        "e3b0c44298fc1c14",
        {"keys": ["id"], "newest": "ts", "remembers": None, "versions": True},
    ),
    (CHANGES >> NEW.upsert(), "e463b4c2e620fb49", BY_LOG),
    (CHANGES >> Iceberg.mirror("local.shop"), "e463b4c2e620fb49", BY_LOG),
)
"""Pipelines, with the fingerprint of their steps and the terms of their upserts as commit b827570 writes them."""


@pytest.mark.parametrize(("pipeline", "fingerprint", "terms"), KEPT)
def test_a_checkpoint_of_an_earlier_version_is_of_the_same_steps(
    pipeline: Pipeline, fingerprint: str, terms: Mapping[str, Any] | None, planned: Callable[[Any], Plan]
) -> None:
    plan = planned(pipeline)
    assert (plan.fingerprint, upsert_terms(plan)) == (fingerprint, terms)


def test_a_mode_has_its_own_fields() -> None:
    upsert = {"keys", "order_by", "delete_when", "tombstones", "history", "stores_order"}
    own: dict[type[Mode], set[str]] = {
        Append: set(),
        Overwrite: {"filter"},
        OverwritePartitions: set(),
        Upsert: upsert,
        Delete: {"keys"},
        MergeSql: {"query"},
        Groups: {"keys"},
    }
    assert {mode: {field.name for field in fields(mode)} for mode in MODES} == own
