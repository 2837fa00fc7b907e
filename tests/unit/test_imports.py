"""The import law, from the AST and in a fresh process."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import helios

PACKAGE = Path(helios.__file__).parent
LAYERS = ("model", "catalog", "plan", "spark", "cli")
"""Each layer imports itself and those before it; modules above the layers are named in `ABOVE`."""
ABOVE = {
    "errors": 0,
    "metrics": 0,
    "prometheus": 0,
    "endpoint": 4,
    "config": 2,
    "table": 2,
    "script": 3,
    "engine": 4,
    "": 4,
}
"""The first layer that may import a module which is in no layer."""
ENGINES = {"pyspark", "py4j"}
HEAVY = ("pyspark", "py4j", "pyiceberg", "pyarrow", "sqlglot", "rich", "click", "pandas", "prometheus_client")


def level(module: str) -> int:
    name = module.split(".")[1] if "." in module else ""
    return LAYERS.index(name) if name in LAYERS else ABOVE.get(name, len(LAYERS))


def imports(file: Path) -> list[str]:
    """Every module that a file imports, but for the type checker."""
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
            found.append(node.module)
    return found


def test_imports_go_one_way() -> None:
    broken = []
    for layer in LAYERS:
        for file in (PACKAGE / layer).rglob("*.py"):
            for module in imports(file):
                if module.split(".")[0] == "helios" and level(module) > LAYERS.index(layer):
                    broken.append(f"{file.relative_to(PACKAGE)} imports {module}")
    # The catalog's values reach their operations, and those the table they return, only when they are called.
    allowed = {"catalog/spec.py imports helios.table.snapshots", "catalog/operations.py imports helios.table.snapshots"}
    assert set(broken) <= allowed


def test_only_the_spark_package_imports_an_engine() -> None:
    guilty = [
        str(file.relative_to(PACKAGE))
        for file in PACKAGE.rglob("*.py")
        if "spark" not in file.relative_to(PACKAGE).parts[:1]
        and any(module.split(".")[0] in ENGINES for module in imports(file))
    ]
    assert guilty == []


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


def test_all_names_are_exported_and_documented() -> None:
    for name in helios.__all__:
        value = getattr(helios, name)
        assert value.__doc__, f"{name} has no docstring"
    assert sorted(helios.__all__) == list(helios.__all__)
