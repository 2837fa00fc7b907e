"""Composition: what `>>` gives, that nothing mutates, and how a wrong one reads."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helios import Iceberg, Memory, Pipeline, Pipelines, Stream, Transform, join, select, step, union, where
from helios.errors import DeclarationError
from helios.model.flow import flows

pytestmark = pytest.mark.promise("compose")

SOURCE = Memory.source([{"id": 1}])
SINK = Iceberg.sink("a.t")


def identity_step(df: Any) -> Any:
    return df


def test_source_step_sink() -> None:
    stream = SOURCE >> where("id > 0")
    assert isinstance(stream, Stream)
    pipeline = stream >> SINK
    assert isinstance(pipeline, Pipeline)
    assert pipeline.text() == "Memory.source(1 rows) >> where(id > 0) >> Iceberg.sink(a.t)"


def test_steps_compose_without_a_source() -> None:
    shape = where("id > 0") >> select("id") >> identity_step
    assert isinstance(shape, Transform)
    assert shape.text() == "where(id > 0) >> select(id) >> call(identity_step)"
    assert (identity_step >> where("id > 0")).text() == "call(identity_step) >> where(id > 0)"
    assert (step(identity_step) >> identity_step).text() == "call(identity_step) >> call(identity_step)"


def test_nothing_mutates() -> None:
    stream = SOURCE >> where("id > 0")
    one = stream >> select("id")
    two = stream >> select("id AS other") >> SINK
    assert len(stream.steps) == 1
    assert len(one.steps) == 2
    assert two.stream.steps[-1].text() == "select(id AS other)"
    assert SOURCE.steps == ()


@given(st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=6), st.integers(0, 6))
def test_composition_is_associative(conditions: list[str], cut: int) -> None:
    steps = [where(c) for c in conditions]
    flat: Any = SOURCE
    for one in steps:
        flat = flat >> one
    left, right = steps[:cut], steps[cut:]
    grouped: Any = SOURCE
    for half in (left, right):
        joined = half[0] if half else None
        for one in half[1:]:
            joined = joined >> one
        grouped = grouped >> joined if joined is not None else grouped
    assert flat.text() == grouped.text()


def test_fan_out_gives_one_pipeline_per_sink() -> None:
    made = SOURCE >> where("id > 0") >> [SINK, Iceberg.sink("a.u")]
    assert isinstance(made, Pipelines)
    assert [p.sink.label() for p in made] == ["Iceberg.sink(a.t)", "Iceberg.sink(a.u)"]


def test_fan_in_brings_other_flows() -> None:
    other = Memory.source([{"id": 2}]) >> where("id > 1")
    stream = SOURCE >> join(other, on="id") >> union(SOURCE)
    assert [f.source.label() for f in flows(stream)] == ["Memory.source(1 rows)"] * 3


@pytest.mark.parametrize(
    ("compose", "message"),
    [
        (lambda: SOURCE >> 5, r"Memory\.source\(1 rows\) >> int 5 does not compose: after a source comes a step"),
        (lambda: SOURCE >> SOURCE, "after a source comes a step"),
        (lambda: SOURCE >> int, "the class int does not compose"),
        (lambda: SOURCE >> [], "a fan-out is a list of sinks"),
        (lambda: SOURCE >> [SINK, 3], "int 3 does not compose: a fan-out is a list of sinks"),
        (lambda: where("a") >> SINK, "a sink needs a source first"),
        (lambda: SINK >> SINK, "a sink ends a pipeline"),
        (lambda: 5 >> SINK, "only a source or a stream flows into a sink"),
        (lambda: 5 >> where("a"), "only a source, a stream or a step can come before a step"),
        (lambda: SOURCE >> SINK >> SINK, r"a pipeline is complete.*fan out with"),
        (lambda: (SOURCE >> [SINK]) >> SINK, "pipelines are complete"),
    ],
)
def test_a_wrong_composition_fails_where_it_is_written(compose: Any, message: str) -> None:
    with pytest.raises(DeclarationError, match=message) as caught:
        compose()
    assert "test_flow.py" in str(caught.value)


def test_names() -> None:
    pipeline = SOURCE >> SINK
    assert pipeline.named("orders_daily").name == "orders_daily"
    assert pipeline.name is None
    assert pipeline.named("new", was="old").was == "old"
    with pytest.raises(DeclarationError, match="is not a pipeline name"):
        pipeline.named("a/b")


def test_every_node_knows_its_line() -> None:
    made = where("id > 0")
    assert made.origin.file.endswith("test_flow.py")
    assert made.steps[0].origin == made.origin
