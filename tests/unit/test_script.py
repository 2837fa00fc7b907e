"""Loading scripts: pipelines are found, and a bad script is told with its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from helios.errors import CheckFailed, DeclarationError, ScriptError
from helios.script import load_script

pytestmark = pytest.mark.promise("scripts")

GOOD = """
from helios import *
lake = Catalog.local("lake", path="/data/lake")
day_ = param("day", "2026-01-01")
src = Memory.source([{"id": 1}])
one = src >> Iceberg.sink("a.one")
many = src >> [Iceberg.sink("a.two"), Iceberg.sink("a.three")]
by_name = {"x": (src >> Iceberg.sink("a.four")).named("daily")}
again = one
if __name__ == "__main__":
    raise SystemExit("must not run")
"""


def write(folder: Path, text: str) -> Path:
    file = folder / "pipe.py"
    file.write_text(text)
    return file


def test_pipelines_and_catalogs_are_found(tmp_path: Path) -> None:
    script = load_script(write(tmp_path, GOOD), {"day": "2026-02-02"})
    assert list(script.pipelines) == ["one", "many[0]", "many[1]", "by_name[x]", "again"]
    assert list(script.catalogs) == ["lake"]
    assert len(script.choose(None)) == 4
    assert len(script.choose("many")) == 2
    assert script.choose("daily")[0].name == "daily"
    with pytest.raises(ScriptError, match=r"no pipeline called 'oen'\. Did you mean 'one'"):
        script.choose("oen")
    assert vars(script.module)["day_"] == "2026-02-02"


SEVERAL = """
from __future__ import annotations
from helios import *
base = Iceberg.source("a.s").incremental(poll="x")
one = base >> Iceberg.sink("a.one")
def later(df: DataFrame) -> DataFrame:
    return base
two = Iceberg.source("a.s") >> later >> Iceberg.sink("a.two")
three = Iceberg.source("a.s") >> Iceberg.sink("a.three").partition_by("month(d)")
if three_is_wanted:
    pass
four = Iceberg.source("a..s")
"""


def test_every_wrong_declaration_is_told_at_once(tmp_path: Path) -> None:
    """But for those that need what is missing, and those behind an error that may be due to it."""
    with pytest.raises(CheckFailed) as failed:
        load_script(write(tmp_path, SEVERAL))
    assert [str(problem.where).rpartition(":")[2] for problem in failed.value.problems] == ["4", "9"]
    with pytest.raises(DeclarationError, match="poll='x'"):
        load_script(write(tmp_path, SEVERAL.replace("month(d)", "d")))


@pytest.mark.parametrize(
    "act",
    [
        "(here / 'made').touch()",
        "done = acts['touch']()",
        "done = (here / 'made').touch()",
        "def later(x=(here / 'made').touch()): pass",
        "class Later: (here / 'made').touch()",
        "acts['x'] = (here / 'made').touch()",
        "when = datetime.now()",
    ],
)
def test_what_acts_is_not_run_behind_a_wrong_declaration(tmp_path: Path, act: str) -> None:
    text = (
        "from datetime import datetime\nfrom pathlib import Path\nimport helios\nfrom helios import Iceberg\n"
        "here = Path(__file__).parent\nacts = {'touch': (here / 'made').touch}\n"
        "one = Iceberg.source('a.s').incremental(poll='x')\n"
        f"{act}\n"
        "two = helios.Iceberg.source('a.s') >> helios.Iceberg.sink('a.t').partition_by('month(d)')\n"
    )
    with pytest.raises((DeclarationError, CheckFailed), match="poll='x'"):
        load_script(write(tmp_path, text))
    assert not (tmp_path / "made").exists()


def test_an_imported_module_with_the_name_of_the_script_is_another_file(tmp_path: Path) -> None:
    package = tmp_path / "pkg"
    package.mkdir()
    (package / "__init__.py").write_text("")
    script = write(tmp_path, "import os\n\nfrom pkg import pipe\n")
    (package / script.name).write_text("# a line\n" * 40 + "x = 1 / 0\n")
    with pytest.raises(ScriptError, match=r"pipe\.py:3: the script raised ZeroDivisionError"):
        load_script(script)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = (", r"pipe\.py:1: syntax error: '\(' was never closed"),
        ("x = None\ny = x.range\n", r"pipe\.py:2: .* has no attribute 'range'$"),
        ("import os\nx = 1 / 0\n", r"pipe\.py:2: the script raised ZeroDivisionError: division by zero"),
        ("x = 1\n", r"pipe\.py:1: .*declares no pipeline: it contains no `source >> \.\.\. >> sink`"),
        (
            "from helios import *\ns = Memory.source([{'a': 1}]) >> where('a > 0')\n",
            r"pipe\.py:2: .*'s' is a stream without a sink",
        ),
        ("from helios import *\nt = where('a > 0')\n", r"'t' is steps without a source and a sink"),
        ("from helios import Icebrg\n", r"pipe\.py:1: .*Did you mean 'Iceberg'"),
        ("from helios import *\nx = Icebrg\n", r"pipe\.py:2: .*Did you mean 'Iceberg'"),
        ("from helios import *\nx = Iceberg.surce\n", r"pipe\.py:2: .*Did you mean 'source'"),
        ("raise SystemExit(3)\n", r"pipe\.py:1: the script called exit\(3\)"),
        ("\0", "not a Python script|syntax error"),
    ],
)
def test_bad_scripts(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ScriptError, match=message):
        load_script(write(tmp_path, text)).choose(None)


@pytest.mark.parametrize("too_early", ["F.udf(abs, 'long')", "F.col('id')"])
def test_what_needs_spark_while_a_script_is_loaded(
    tmp_path: Path, too_early: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pyspark.SparkContext._active_spark_context", None)  # as in a process of its own
    script = f"from pyspark.sql import functions as F\nx = {too_early}\n"
    with pytest.raises(
        ScriptError, match=r"pipe\.py:2: .* raised \w+Error.*(?<!\.)\. Spark does not run while .* LongType"
    ):
        load_script(write(tmp_path, script))


def test_declarations_keep_their_own_error(tmp_path: Path) -> None:
    with pytest.raises(DeclarationError, match=r"pipe\.py:2: '\.\./x\.t' is not a table name"):
        load_script(write(tmp_path, "from helios import *\nIceberg.source('../x.t')\n"))


def test_missing_scripts_and_parameters(tmp_path: Path) -> None:
    write(tmp_path, GOOD)
    with pytest.raises(ScriptError, match=r"there is no script .*pip\.py\. Did you mean 'pipe\.py'"):
        load_script(tmp_path / "pip.py")
    with pytest.raises(ScriptError, match="is a folder"):
        load_script(tmp_path)
    with pytest.raises(ScriptError, match=r"--set dya: .*Did you mean 'day'"):
        load_script(tmp_path / "pipe.py", {"dya": "1"})


def test_modules_beside_the_script_are_importable(tmp_path: Path) -> None:
    (tmp_path / "beside_helper.py").write_text("TABLE = 'a.t'\n")
    text = (
        "from helios import *\nfrom beside_helper import TABLE\np = Memory.source([{'a': 1}]) >> Iceberg.sink(TABLE)\n"
    )
    assert "p" in load_script(write(tmp_path, text)).pipelines


def test_names_that_a_skipped_import_gives_are_missing(tmp_path: Path) -> None:
    script = tmp_path / "p.py"
    script.write_text(
        "from helios import Iceberg\n"
        "a = Iceberg.source('s')\n"
        "import helios.errors as errors\n"
        "b = errors.near_miss\n"
        "c = Iceberg.source('t')\n"
    )
    with pytest.raises(CheckFailed) as caught:
        load_script(script, {})
    assert "p.py:2" in str(caught.value)
    assert "p.py:5" in str(caught.value)
