"""The import law, from the AST and in a fresh process."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

import helios
from helios import errors
from helios.table import snapshots

pytestmark = pytest.mark.promise("no-jvm")

PACKAGE = Path(helios.__file__).parent
SPARK = ("spark.jvm", "spark.iceberg", "spark.native", "spark.checkpoint", "spark.observer")
LAW: dict[str, tuple[str, ...]] = {
    "errors": (),
    "version": (),
    "metrics": ("errors",),
    "serving": ("errors",),
    "environment": ("errors",),
    "model": ("errors",),
    "steps": ("errors", "model"),
    "sources.common": ("errors", "model"),
    "sources.kinds": ("errors", "model", "sources.common"),
    "catalog": ("errors", "model"),
    "config": ("errors", "model", "catalog"),
    "native": (),
    "table": ("errors", "model", "catalog", "config", "sources.common", "sources.kinds"),
    "catalog.operations": ("errors", "model", "catalog", "table"),
    "plan.typing": ("errors", "model", "steps", "catalog"),
    "plan.native.engine": (),
    "plan.native": ("errors", "model", "steps", "native", "plan.typing"),
    "plan.evolution": ("errors", "model", "plan.typing"),
    "sources.kafka": ("errors", "model", "catalog", "plan.typing", "sources.common"),
    "plan": (
        "errors", "version", "environment", "model", "steps", "catalog", "config", "table", "native", "plan.typing",
        "plan.native", "plan.evolution", "sources.common", "sources.kinds", "sources.kafka",
    ),
    "sources.common.describe": ("errors", "model", "plan", "plan.typing"),
    "sources.common.absent": ("errors", "plan", "sources.kinds"),
    "lineage": ("errors", "model", "table", "native", "sources.common"),
    "sources.iceberg": (
        "errors", "model", "catalog", "table", "plan", "plan.typing", "plan.evolution", "sources.common",
    ),
    "sources.files": (
        "errors", "model", "catalog", "table", "plan", "plan.typing", "sources.common", "sources.common.describe",
    ),
    "sources.kafka.kind": ("errors", "table", "plan", "sources.common", "sources.common.describe", "sources.kafka"),
    "sources.changes": (
        "errors", "model", "plan", "plan.typing", "sources.common", "sources.common.describe", "sources.kafka",
        "sources.kafka.kind",
    ),
    "sources.webhook": (
        "errors", "serving", "model", "plan", "plan.typing", "sources.common", "sources.common.describe",
        "sources.files",
    ),
    "sources.memory": ("errors", "model", "plan", "plan.typing", "sources.common", "sources.common.describe"),
    "ui": ("errors", "serving", "metrics", "table"),
    "iceberg": ("model", "catalog", "sources.iceberg"),
    "yaml_script": ("errors", "model", "config"),
    "script": ("errors", "model", "catalog", "yaml_script"),
    "spark.jvm": ("errors",),
    "spark.observer": (),
    "spark.iceberg": ("spark.jvm",),
    "spark.checkpoint": ("spark.jvm",),
    "spark.session": ("spark.jvm", "environment"),
    "spark.native": ("spark.jvm", "spark.iceberg"),
    "sources.common.spark": SPARK,
    "sources.iceberg.spark": (*SPARK, "sources.iceberg", "sources.common.spark"),
    "sources.files.spark": (*SPARK, "sources.files", "sources.common.spark"),
    "sources.kafka.spark": (*SPARK, "sources.common.spark"),
    "sources.changes.spark": (*SPARK, "sources.changes", "sources.common.spark", "sources.kafka.spark"),
    "sources.webhook.spark": (
        *SPARK, "sources.webhook", "sources.common.spark", "sources.files", "sources.files.spark",
    ),
    "sources.memory.spark": (*SPARK, "sources.memory", "sources.common.spark"),
    "spark.maintenance": ("spark.jvm", "spark.iceberg", "spark.session"),
    "spark.diff": ("spark.jvm", "spark.iceberg"),
    "spark.steps": (*SPARK, "sources.common.spark", "sources.iceberg.spark"),
    "spark.sinks": (
        *SPARK, "sources.common.spark", "sources.kafka.spark", "sources.changes.spark", "spark.steps",
        "spark.maintenance",
    ),
    "spark.run": (
        *SPARK, "metrics", "environment", "iceberg", "sources.iceberg", "sources.memory", "sources.common.spark",
        "sources.iceberg.spark", "spark.session", "spark.steps", "spark.maintenance", "spark.sinks",
    ),
    "spark.replay": (
        "spark.jvm", "spark.iceberg", "spark.checkpoint", "sources.common.spark", "spark.steps", "spark.sinks",
        "spark.run",
    ),
    "spark.rehearse": (
        "iceberg", "sources.common.spark", "sources.iceberg.spark", "spark.jvm", "spark.iceberg", "spark.checkpoint",
        "spark.observer", "spark.session", "spark.sinks", "spark.run",
    ),
    "spark.backfill": (
        "spark.jvm", "spark.iceberg", "spark.checkpoint", "spark.observer", "sources.common.spark", "spark.steps",
        "spark.session", "spark.sinks", "spark.run", "spark.replay", "spark.diff", "spark.rehearse",
    ),
    "engine": (
        "errors", "model", "catalog", "config", "table", "plan", "iceberg", "sources.common.absent",
        "sources.common.spark", "spark",
    ),
    "testing.json_text": ("errors",),
    "testing.records": ("errors", "testing.json_text"),
    "testing.spark": (
        "environment", "spark.jvm", "spark.session", "spark.run", "sources.common.spark", "sources.kafka.spark",
        "testing.records",
    ),
    "testing": (
        "errors", "model", "steps", "catalog", "config", "plan", "plan.typing", "iceberg", "engine", "sources.iceberg",
        "sources.files", "sources.kafka", "sources.changes", "sources.memory", "sources.webhook", "sources.kinds",
        "testing.json_text", "testing.records", "testing.spark",
    ),
    "cli": (
        "__init__", "errors", "metrics", "environment", "model", "steps", "catalog", "config", "table", "plan",
        "script", "sources.common", "sources.kinds", "sources.webhook", "lineage", "ui", "spark", "engine",
    ),
}  # fmt: skip
"""What each package imports beside itself; a name stands for its subpackages too, but for those with a row of their
own. Folders named `spark` import all of `COMPILED`, too. `import helios` and `python -m helios` are the face."""

COMPILED = (
    "errors", "version", "model", "steps", "sources.common", "sources.kinds", "catalog", "config", "table", "native",
    "plan", "sources.kafka",
)  # fmt: skip
FACE = ("__init__", "__main__")
ENGINES = {"pyspark", "py4j"}
LATE = (
    "helios.sources.iceberg.backlog", "helios.table.snapshots", "helios.table.ledger", "hashlib", "sqlite3", "tomllib",
    "concurrent.futures",
)  # fmt: skip
"""What only a table or a file that is there needs: it would add a tenth to the time of a plan."""
HEAVY = ("pyspark", "py4j", "pyiceberg", "pyarrow", "sqlglot", "rich", "click", "pandas", "prometheus_client")


def room(module: str) -> str:
    """The row of `LAW` that a module belongs to: the longest that fits."""
    name = module.removeprefix("helios").lstrip(".") or FACE[0]
    fitting = [row for row in LAW if name == row or name.startswith(f"{row}.")]
    return max(fitting, key=len, default=name)


def permitted(row: str) -> tuple[str, ...]:
    return (row, *LAW[row], *(COMPILED if "spark" in row.split(".") else ()))


def name_of(file: Path) -> str:
    """The dotted name of a module."""
    return ".".join(("helios", *file.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__")


def imports(file: Path) -> list[str]:
    """Every module or name that a file imports, at its top or inside a function, but for the type checker."""
    tree = ast.parse(file.read_text())
    skipped = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for inner in ast.walk(node)
    }
    found = []
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            found += [f"{node.module}.{alias.name}" for alias in node.names]
    return found


def test_imports_follow_the_law() -> None:
    broken = []
    for file in PACKAGE.rglob("*.py"):
        row = room(name_of(file))
        if row in FACE:
            continue
        for module in imports(file):
            if module.split(".")[0] != "helios":
                continue
            target = room(module)
            allowed = permitted(row)
            if not any(target == one or target.startswith(f"{one}.") for one in allowed):
                broken.append(f"{file.relative_to(PACKAGE)} imports {module}")
    assert broken == []


def test_the_law_has_no_circle() -> None:
    order = list(LAW)
    up = [(row, one) for row in order for one in LAW[row] if one in LAW and order.index(one) > order.index(row)]
    assert up == []


def circles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """The modules that import one another, directly or through others; each group sorted."""
    reached: dict[str, set[str]] = {}
    for start in graph:
        found, pending = set[str](), [start]
        while pending:
            new = graph[pending.pop()] - found
            found |= new
            pending += new
        reached[start] = found
    groups = {
        frozenset(other for other in reached[one] if one in reached[other]) for one in graph if one in reached[one]
    }
    return sorted(map(sorted, groups))


def test_circles_are_found() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}, "e": {"e"}}) == [["b", "c"], ["e"]]


def test_no_circle_of_imports() -> None:
    """Of imports inside functions too: they only put a circle off until the first call."""
    modules = {name_of(file): file for file in PACKAGE.rglob("*.py")}
    graph = {}
    for name, file in modules.items():
        # What `from a.b import c` names is a module or something in one.
        found = {one if one in modules else one.rpartition(".")[0] for one in imports(file)}
        graph[name] = {one for one in found if one in modules}
    assert circles(graph) == []


def test_only_folders_named_spark_import_an_engine() -> None:
    guilty = [
        str(file.relative_to(PACKAGE))
        for file in PACKAGE.rglob("*.py")
        if "spark" not in file.relative_to(PACKAGE).parts[:-1]
        and any(module.split(".")[0] in ENGINES for module in imports(file))
    ]
    assert guilty == []


KINDS = {path.parent.name for path in (PACKAGE / "sources").glob("*/__init__.py")} - {"common"}
READS = {"changes": {"kafka"}, "webhook": {"files"}}
"""The kinds that another kind is made of."""
NAMING = {
    "cli.webhook": {"webhook"},
    "iceberg": {"iceberg"},
    "spark.rehearse.compare": {"iceberg"},
    "spark.run.replaced_columns": {"iceberg"},
    "spark.run.training": {"memory"},
    "spark.sinks.mirror": {"changes"},
    "spark.sinks.schema_changes": {"changes"},
    "spark.sinks.schema_policy": {"changes"},
    "spark.steps.materialized_view": {"iceberg"},
    "testing.feeds": {"files", "iceberg", "memory", "webhook"},
    "testing.files": {"files"},
    "testing.lake": {"kafka"},
    "testing.outputs": {"kafka", "memory"},
    "testing.spark.topics": {"kafka"},
    "testing.stage": {"kafka"},
    "testing.topics": {"changes", "kafka"},
}
"""The modules of common rooms that name a kind: a target of that kind, a mirror, a view over a table."""


def kind_in(module: str) -> str | None:
    """The kind of source in whose folder a module is; None in no such folder."""
    parts = module.removeprefix("helios.").split(".")
    return parts[1] if parts[0] == "sources" and len(parts) > 1 and parts[1] in KINDS else None


def test_a_kind_of_source_imports_no_other_one_and_the_common_rooms_name_none() -> None:
    assert {"iceberg", "files", "kafka"} <= KINDS
    broken, naming = [], dict[str, set[str]]()
    for file in PACKAGE.rglob("*.py"):
        name = name_of(file)
        own = kind_in(name)
        named = {kind for module in imports(file) if (kind := kind_in(module)) is not None} - {own}
        if own is None:
            naming |= {name.removeprefix("helios."): named} if named and name != "helios" else {}
        elif not named <= READS.get(own, set()):
            broken.append(f"{name} imports {sorted(named)}")
    assert broken == []
    assert naming == NAMING


def run(code: str) -> str:
    env = {k: v for k, v in os.environ.items() if not k.startswith("COVERAGE_")}
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, env=env).stdout


def test_import_helios_loads_no_engine_and_nothing_heavy() -> None:
    loaded = run(f"import helios, sys; print([m for m in {HEAVY!r} if m in sys.modules])")
    assert loaded.strip() == "[]"


def test_checking_and_planning_load_no_engine(tmp_path: Path) -> None:
    script = tmp_path / "p.py"
    script.write_text(
        "from helios import *\n"
        "p = Memory.source([{'id': 1}]) >> where('id > 0') >> Iceberg.sink('a.t')\n"
        "print(p.plan())\n"
    )
    loaded = run(
        f"import os, runpy, sys; os.chdir({str(tmp_path)!r}); runpy.run_path({str(script)!r}); "
        "print([m for m in ('pyspark', 'py4j') if m in sys.modules])"
    )
    assert loaded.splitlines()[0].startswith("pipeline local.a.t")
    assert loaded.splitlines()[-1] == "[]"


def test_a_plan_of_new_tables_loads_nothing_that_reads_tables(tmp_path: Path) -> None:
    (tmp_path / "p.py").write_text(
        "from helios import Files, Iceberg\np = Files.source('x.csv') >> Iceberg.sink('a.t')\n"
    )
    (tmp_path / "x.csv").touch()
    loaded = run(
        f"import os, sys; os.chdir({str(tmp_path)!r}); from helios.cli import main; "
        f"main(['plan', 'p.py'], standalone_mode=False); print([m for m in {LATE!r} if m in sys.modules])"
    )
    assert loaded.splitlines()[0].startswith("pipeline local.a.t")
    assert loaded.splitlines()[-1] == "[]"


def test_every_error_and_what_tables_are_is_exported() -> None:
    raised = {name for name, value in vars(errors).items() if isinstance(value, type) and issubclass(value, Exception)}
    assert raised <= set(helios.__all__)
    assert (helios.Table, helios.Snapshot) == (snapshots.Table, snapshots.Snapshot)
    with pytest.raises(AttributeError, match="module 'helios' has no attribute 'Tabel'"):
        helios.Tabel  # type: ignore[attr-defined]


def test_all_names_are_exported_and_documented() -> None:
    for name in helios.__all__:
        value = getattr(helios, name)
        assert value.__doc__, f"{name} has no docstring"
    assert sorted(helios.__all__) == list(helios.__all__)
