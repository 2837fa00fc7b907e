"""Pipelines as pictures."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from helios import Files, Iceberg, Memory, join, union, where
from helios.cli.graph import Graph, dot, draw, mermaid
from helios.config import load
from helios.model.flow import Pipeline
from helios.plan import Context

pytestmark = pytest.mark.promise("commands")

Run = Callable[..., Result]


def drawn(tmp_path: Path, *pipelines: Pipeline) -> Graph:
    return draw(pipelines, Context(config=load(tmp_path)))


def labels(graph: Graph, kind: str) -> list[str]:
    return [node.label for node in graph.nodes if node.kind == kind]


def arrows(graph: Graph, *, dashed: bool = False) -> set[tuple[str, str]]:
    names = {node.id: node.label for node in graph.nodes}
    return {(names[e.start], names[e.end]) for e in graph.edges if e.dashed is dashed}


def test_equal_sources_and_shared_streams_are_drawn_once(tmp_path: Path) -> None:
    stream = Iceberg.source("shop.orders") >> where("amount > 0")
    again = Iceberg.source("shop.orders") >> where("amount < 0")
    graph = drawn(
        tmp_path,
        stream >> Iceberg.sink("shop.a"),
        stream >> Iceberg.sink("shop.b"),
        again >> Iceberg.sink("shop.c"),
    )
    assert labels(graph, "source") == ["Iceberg.source(shop.orders)"]
    assert labels(graph, "step") == ["where(amount > 0)", "where(amount < 0)"]
    assert labels(graph, "sink") == ["Iceberg.sink(shop.a)", "Iceberg.sink(shop.b)", "Iceberg.sink(shop.c)"]


def test_each_box_knows_the_pipelines_that_it_belongs_to(tmp_path: Path) -> None:
    stream = Iceberg.source("shop.orders") >> where("amount > 0")
    graph = drawn(tmp_path, stream >> Iceberg.sink("shop.a"), stream >> Iceberg.sink("shop.b"))
    assert [(node.kind, node.pipelines) for node in graph.nodes] == [
        ("source", [0, 1]), ("step", [0, 1]), ("sink", [0]), ("sink", [1]),
    ]  # fmt: skip


def test_sources_of_one_table_that_read_other_rows_are_drawn_apart(tmp_path: Path) -> None:
    orders = Iceberg.source("shop.orders")
    read = [orders.as_of("2026-01-01"), orders.as_of("2026-01-02"), orders.select("id"), orders.batch_size(5)]
    graph = drawn(tmp_path, *(one >> Iceberg.sink(f"shop.t{index}") for index, one in enumerate([*read, read[0]])))
    assert labels(graph, "source") == [
        "Iceberg.source(shop.orders).as_of('2026-01-01')",
        "Iceberg.source(shop.orders).as_of('2026-01-02')",
        "Iceberg.source(shop.orders).select('id')",
        "Iceberg.source(shop.orders)",
    ]
    assert "as_of('2026-01-01')" in mermaid(graph)


def test_rows_in_memory_of_one_size_are_different_sources(tmp_path: Path) -> None:
    first, second = Memory.source([{"id": 1}]), Memory.source([{"id": 2}])
    graph = drawn(tmp_path, first >> Iceberg.sink("s.a"), second >> Iceberg.sink("s.b"), first >> Iceberg.sink("s.c"))
    assert labels(graph, "source") == ["Memory.source(1 rows)"] * 2


def test_joins_and_unions_bring_in_their_other_side(tmp_path: Path) -> None:
    left, right = Iceberg.source("s.left"), Iceberg.source("s.right") >> where("ok")
    graph = drawn(
        tmp_path,
        left >> join(right, on=["a", "b"], how="left") >> union(Iceberg.source("s.more")) >> Iceberg.sink("s.x"),
    )
    assert arrows(graph) == {
        ("Iceberg.source(s.left)", "left join on a, b"),
        ("Iceberg.source(s.right)", "where(ok)"),
        ("where(ok)", "left join on a, b"),
        ("left join on a, b", "union"),
        ("Iceberg.source(s.more)", "union"),
        ("union", "Iceberg.sink(s.x)"),
    }
    assert [e.label for e in graph.edges if e.label] == ["right"]
    assert re.search(r"n\d+ -->\|right\| n\d+", mermaid(graph))


def test_a_table_that_is_written_and_read_is_linked_whatever_it_is_called(tmp_path: Path) -> None:
    first = Memory.source([{"id": 1}]) >> Iceberg.sink("shop.orders")
    second = Iceberg.source("local.shop.orders") >> Iceberg.sink("shop.copy")
    graph = drawn(tmp_path, first, second)
    assert arrows(graph, dashed=True) == {("Iceberg.sink(shop.orders)", "Iceberg.source(local.shop.orders)")}
    assert "-.->" in mermaid(graph)
    assert "style=dashed" in dot(graph)


def test_an_undeclared_catalog_can_still_be_drawn(tmp_path: Path) -> None:
    graph = drawn(tmp_path, Iceberg.source("prod.shop.orders") >> Iceberg.sink("shop.copy"))
    assert labels(graph, "source") == ["Iceberg.source(prod.shop.orders)"]


def test_labels_cannot_break_out(tmp_path: Path) -> None:
    condition = "name = \"a]; #1 <b>\" AND x = '\\'\n  AND `y` > 0"
    graph = drawn(tmp_path, Files.source("in.csv") >> where(condition) >> Iceberg.sink("s.a"))
    line = next(text for text in mermaid(graph).splitlines() if "where" in text)
    inner = line.partition('["')[2].removesuffix('"]')
    assert not set('"<>`\\') & set(inner)
    assert "#quot;a]; #35;1 #lt;b#gt;#quot;" in inner
    quoted = next(text for text in dot(graph).splitlines() if "where" in text)
    assert 'name = \\"a]; #1 <b>\\"' in quoted
    assert "'\\\\'" in quoted


def test_long_labels_are_cut(tmp_path: Path) -> None:
    graph = drawn(tmp_path, Files.source("in.csv") >> where("x" * 500) >> Iceberg.sink("s.a"))
    assert all(len(line) < 130 for line in (*mermaid(graph).splitlines(), *dot(graph).splitlines()))


def test_graph_prints_either_form(cli: Run, folder: Path) -> None:
    cli("init")
    assert cli("graph", "pipeline.py").output.startswith("flowchart LR\n    n0[(")
    assert cli("graph", "pipeline.py", "--format", "dot").output.startswith("digraph helios {")
    assert cli("graph", "pipeline.py", "--format", "svg").exit_code == 2
