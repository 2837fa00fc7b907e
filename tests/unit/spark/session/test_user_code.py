"""Which files beside a script reach executors as files."""

from __future__ import annotations

from pathlib import Path

import pytest

from helios.spark.session.user_code import reachable

FILES = {
    "pipeline.py": "import os, helios, rules\n",
    "rules.py": "def f():\n    from units.metric import add\n",
    "units/__init__.py": "",
    "units/metric.py": "from .base import OFFSET\nimport bare.inner\n",
    "units/base.py": "OFFSET = 3\n",
    "bare/inner.py": "import pipeline_helper\n",  # a folder without __init__.py
    "pipeline_helper.py": "import rules\n",  # a circle
    "helios/__init__.py": "",  # a checkout of Helios
    "unrelated.py": "",
    "broken/__init__.py": "def (\n",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def reached(folder: Path) -> set[str]:
    return {file.relative_to(folder).as_posix() for file in reachable(folder / "pipeline.py", folder)}


def test_what_a_script_may_import_is_found_through_its_modules(folder: Path) -> None:
    expected = {"rules.py", "units/__init__.py", "units/metric.py", "units/base.py", "bare/inner.py"}
    assert reached(folder) == expected | {"pipeline_helper.py"}


def test_a_script_alone_reaches_nothing(folder: Path) -> None:
    (folder / "pipeline.py").write_text("import os\nfrom helios import Iceberg\n")
    assert reached(folder) == set()


def test_a_module_that_does_not_parse_is_for_its_importer_to_tell(folder: Path) -> None:
    (folder / "pipeline.py").write_text("def f():\n    import broken\n")
    assert reached(folder) == {"broken/__init__.py"}


def test_a_module_comes_before_a_folder_without_init(folder: Path) -> None:
    (folder / "rules").mkdir()
    (folder / "rules" / "other.py").write_text("")
    assert "rules.py" in reached(folder)
    assert "rules/other.py" not in reached(folder)
