"""What a notebook shows of pipelines, plans, runs, tables and rows."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from helios import Catalog, Iceberg, Memory, aggregate, join, where
from helios.model import html
from helios.model.preview import Preview

pytestmark = pytest.mark.promise("preview")

EVIL = "<script>alert(1)</script>"
ORDERS = Memory.source([{"id": 1, EVIL: "a", "amount": 3.0}])
NAMES = Memory.source([{"id": 1, "name": "ann"}])


class Page(HTMLParser):
    """The texts of a page, and its tags, which are all closed in their order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.tags: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self._open += [tag] if tag != "br" else []
        for name, value in attrs:
            assert name == "style", name
            assert "url(" not in (value or "")
            assert "#" not in (value or ""), "a fixed colour is not readable on every page"

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts += [text] if (text := data.strip(" \u2192")) else []


def page(value: Any) -> Page:
    shown = Page(value._repr_html_())
    assert "script" not in shown.tags
    return shown


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_pipeline_is_its_graph_and_its_columns() -> None:
    other = NAMES >> where("name <> ''")
    stream = ORDERS >> where("amount > 0") >> join(other, on="id") >> aggregate("name", total="sum(amount)")
    shown = page((stream >> Iceberg.sink("shop.totals")).named("totals"))
    assert shown.texts == [
        "totals", "Memory.source(1 rows)", "where(amount > 0)", "inner join on id", "with (", "Memory.source(1 rows)",
        "where(name <> '')", ")", "aggregate([name], total=sum(amount))", "Iceberg.sink(shop.totals)",
        "column", "type", "name", "string", "total", "double",
    ]  # fmt: skip
    assert page(stream).texts == [text for text in shown.texts if text not in ("totals", "Iceberg.sink(shop.totals)")]


def test_several_pipelines_are_shown_below_each_other() -> None:
    texts = page(ORDERS >> [Iceberg.sink("a.b"), Iceberg.sink("a.c")]).texts
    assert [text for text in texts if "sink" in text] == ["Iceberg.sink(a.b)", "Iceberg.sink(a.c)"]
    assert texts.count(EVIL) == 2


def test_columns_that_are_not_known_say_why() -> None:
    assert page(Iceberg.source("shop.missing") >> Iceberg.sink("a.b")).texts[-2] == "columns:"
    texts = page(ORDERS >> (lambda df: df) >> Iceberg.sink("a.b")).texts
    assert texts[-2:] == ["columns:", "known at run"]


def test_a_plan_is_its_lines() -> None:
    plan = (ORDERS >> Iceberg.sink("a.b")).plan()
    texts = page(plan).texts
    lines = str(plan).splitlines()
    assert texts[0] == lines[0]
    assert texts[1:] == [part for line in lines[1:] for part in (line[2:12].strip(), line[12:].strip()) if part]


def test_a_table_is_its_state_and_its_columns() -> None:
    catalog = Catalog.memory("notebook")
    catalog.create_namespace("shop")
    table = catalog.create_table("shop.orders", pa.schema([pa.field("id", pa.int64(), nullable=False)]))
    assert page(table).texts == [
        "notebook.shop.orders", "snapshot", "none yet", "column", "type", "id", "long", "required"
    ]  # fmt: skip
    table.iceberg.append(pa.table({"id": [1, 2]}, schema=table.iceberg.schema().as_arrow()))
    texts = page(table).texts
    assert (texts[1], texts[3:7]) == ("snapshot", ["rows", "2", "files", "1"])


def test_a_preview_is_a_table_and_its_values_are_text() -> None:
    preview = Preview(pa.table({"id": [1, None], EVIL: [EVIL, "x" * 500]}))
    assert page(preview).texts == ["id", EVIL, "1", EVIL, "null", "x" * 197 + "..."]
    assert (preview.column_names, preview.num_rows, len(preview)) == (["id", EVIL], 2, 2)
    assert preview["id"].to_pylist() == [1, None]
    assert preview.to_pandas().shape == (2, 2)
    assert pa.table(preview) == preview.arrow
    assert repr(Preview(pa.table({}))) == ""


def test_the_facts_of_a_run_leave_out_what_is_empty() -> None:
    shown = Page(html.name_value_table(EVIL, {"state": "running", "rows": 0, "left": [], "error": None}))
    assert shown.texts == [EVIL, "state", "running", "rows", "0"]
