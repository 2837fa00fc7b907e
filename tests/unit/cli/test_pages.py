"""The Python of the pages: each block has its imports, and each page is a script that `helios check` accepts.

Beside this, tests/unit/plan/test_docs.py compiles docs/reading.md, tests/streaming/test_docs.py runs docs/writing.md,
docs/metrics.md, docs/migrating.md and the end of docs/quickstart.md, tests/streaming/test_testing.py docs/testing.md,
tests/integration/test_cli.py the README, and tests/integration/test_tutorials.py the tutorials.
tests/unit/cli/test_shown_output.py and, for docs/cli.md, tests/integration/test_cli_page.py compare printed output.
"""

from __future__ import annotations

import ast
import builtins
import re
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

from helios import Catalog, day
from helios.table.snapshots import Table
from tests.suite.pages import ROOT, blocks
from tests.unit.cli.conftest import Run

pytestmark = pytest.mark.promise("documents")

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("customer", pa.string()),
        ("customer_id", pa.int64()),
        ("amount", pa.decimal128(10, 2)),
        ("ts", pa.timestamp("us", tz="UTC")),
    ]
)
ELSEWHERE = {
    "docs/reading.md", "docs/kafka.md", "docs/cdc.md", "docs/writing.md", "docs/metrics.md", "docs/recipes.md",
    "docs/architecture.md", "docs/own-source.md", "docs/testing.md", "docs/migrating.md",
}  # fmt: skip
"""Pages that other tests run or compile; architecture.md and own-source.md are compared with code below."""

TUTORIALS = [str(path.relative_to(ROOT)) for path in sorted((ROOT / "docs" / "tutorials").glob("*.md"))]
"""Pages that tests/integration/test_tutorials.py follows."""


PAGES = [
    str(path.relative_to(ROOT))
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
    if "```python" in path.read_text()
] + TUTORIALS


def bound(tree: ast.AST) -> set[str]:
    """The names that code assigns, other than by importing them."""
    found = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    named = ast.FunctionDef | ast.ClassDef | ast.ExceptHandler
    found |= {n.name for n in ast.walk(tree) if isinstance(n, named) and n.name}
    return found | {n.arg for n in ast.walk(tree) if isinstance(n, ast.arg)}


def imported(tree: ast.AST) -> set[str]:
    found = [n for n in ast.walk(tree) if isinstance(n, ast.Import | ast.ImportFrom)]
    found = [n for n in found if getattr(n, "module", None) != "__future__"]
    return {alias.asname or alias.name.split(".", maxsplit=1)[0] for n in found for alias in n.names}


@pytest.mark.parametrize("page", PAGES)
def test_each_block_has_its_imports(page: str) -> None:
    """A name is imported in the block, or is a value of an earlier block of the page."""
    earlier: set[str] = {"__file__"}
    for block in blocks(page):
        tree = ast.parse(block)
        used = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
        here = imported(tree) | bound(tree)
        assert not used - here - earlier - set(dir(builtins)), block
        assert not imported(tree) - used, f"imported and not used: {block}"
        earlier |= bound(tree)


ACCEPTED = {
    "README.md": "local.shop.orders, local.shop.totals",
    "docs/index.md": "local.shop.orders, local.shop.totals",
    "docs/quickstart.md": "local.shop.orders, local.shop.big_orders, local.shop.from_python",
    "docs/concepts.md": "orders_copy, local.shop.totals, local.shop.unique_orders, memory:big",
    "docs/configuration.md": "lake.sales.big_orders",
    "docs/maintenance.md": None,
}
"""Pages, and their pipelines as `helios check` names them; None where a page only calls a table."""


def made(catalog: Catalog, name: str) -> Table:
    """A table with two commits."""
    catalog.create_namespace(name.split(".", maxsplit=1)[0])
    table = catalog.create_table(name, SCHEMA, partition_by=(day("ts"),))
    for key in range(2):
        rows = [{"id": key, "customer": "ann", "customer_id": 7, "amount": 12, "ts": datetime.now(UTC)}]
        table.iceberg.append(pa.Table.from_pylist(rows, schema=SCHEMA))
    return catalog.load(name)


def script(page: str, folder: Path) -> str:
    """The blocks of a page, one after the other, and what they read; addresses of the page are those of the test."""
    code = "\n".join(blocks(page))
    if page == "docs/configuration.md":
        made(Catalog.local("lake", path=folder / "lake"), "sales.orders")
        return code.replace("/data/lake", str(folder / "lake"))
    if page in {"README.md", "docs/index.md"}:
        return code  # runs in an empty folder
    made(Catalog.local(path=folder / ".helios"), "sales.orders")
    table = made(Catalog.local(path=folder / ".helios"), "shop.orders")
    if page == "docs/quickstart.md":
        (folder / "data").mkdir()
        (folder / "data" / "orders.csv").write_text("1,ann,12.50,2026-01-01T00:00:00\n")
    # A snapshot and a time that the table has; no reader of this machine.
    code = code.replace("1808074851068478710", str(table.snapshots()[0].id))
    code = code.replace("2026-11-21T14:41:43Z", datetime.now(UTC).isoformat())
    return code.replace('["/data/checkpoints/elsewhere"]', "[]")


def test_every_page_is_checked_somewhere() -> None:
    assert set(PAGES) == ELSEWHERE | set(ACCEPTED) | set(TUTORIALS)


@pytest.mark.parametrize("page", ACCEPTED)
def test_a_page_is_a_script_that_the_check_accepts(cli: Run, folder: Path, page: str) -> None:
    code = script(page, folder)
    if ACCEPTED[page] is None:
        exec(compile(code, page, "exec"), {})
        return
    (folder / "page.py").write_text(code)
    done = cli("check", "page.py")
    assert done.output.endswith(f"page.py: no problems: {ACCEPTED[page]}\n"), done.output


@pytest.mark.parametrize("page", PAGES)
def test_no_code_is_cut_in_a_window_of_1280_pixels(page: str) -> None:
    """There the theme shows 110 columns, measured in Chromium; beside a second sidebar it would be 80."""
    assert "- toc.integrate" in (ROOT / "mkdocs.yml").read_text()
    widest = 80 if page == "docs/index.md" else 110
    assert [line for block in blocks(page) for line in block.splitlines() if len(line) > widest] == []


def test_the_page_shows_the_script_of_init() -> None:
    """docs/quickstart.md prints the code that `helios init` writes."""
    written = ast.parse((ROOT / "helios" / "cli" / "template" / "pipeline.txt").read_text())
    assert ast.unparse(ast.parse(blocks("docs/quickstart.md")[0])) in ast.unparse(written)


def test_the_heart_of_a_run_is_the_code() -> None:
    """docs/architecture.md prints `run_batch` as it is, without its types and its docstring."""

    def body(text: str) -> list[str]:
        [function] = [n for n in ast.parse(text).body if isinstance(n, ast.FunctionDef) and n.name == "run_batch"]
        written = function.body if ast.get_docstring(function) is None else function.body[1:]
        return [ast.unparse(statement) for statement in written]

    (shown,) = blocks("docs/architecture.md")
    assert body(shown) == body((ROOT / "helios" / "spark" / "run" / "batches.py").read_text())


def test_the_page_of_an_own_source_has_the_code_that_the_tests_run() -> None:
    page = (ROOT / "docs" / "own-source.md").read_text()
    toy = ROOT / "tests" / "toy"
    files = ["pyproject.toml", *(f"helios_counter/{name}.py" for name in ("declare", "kind", "reader", "feed"))]
    assert re.findall(r"```(?:python|toml)\n(.*?)```", page, re.DOTALL) == [(toy / name).read_text() for name in files]
