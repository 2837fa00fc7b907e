"""`init`, `check`, `plan`, `graph`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from helios.cli.options import ScriptName

pytestmark = pytest.mark.promise("commands", "words")

Run = Callable[..., Result]

TWO = """
from helios import Iceberg, Memory, param, where
rows = Memory.source([{"id": 1, "amount": 2.0}])
big = rows >> where(f"amount > {param('least', 1)}") >> Iceberg.sink("shop.big")
all_of_them = [rows >> Iceberg.sink("shop.all")]
"""
WRONG = """
from helios import Iceberg, Memory, where
rows = Memory.source([{"id": 1, "amount": 2.0}])
big = rows >> where("amout > 0") >> Iceberg.sink("shop.big")
gone = Iceberg.source("prod.shop.orders") >> Iceberg.sink("shop.gone")
"""


def test_init_writes_a_project_that_checks_and_plans(cli: Run, folder: Path) -> None:
    made = cli("init", "demo")
    assert made.exit_code == 0
    found = sorted(str(p.relative_to(folder / "demo")) for p in (folder / "demo").rglob("*") if p.is_file())
    assert found == [".gitignore", "data/orders.csv", "helios.toml", "pipeline.py", "test_pipeline.py"]
    checked = cli("check", "demo/pipeline.py")
    assert (checked.exit_code, checked.output) == (0, "demo/pipeline.py: no problems: local.shop.orders\n")
    assert "partitioned by day(ts)" in cli("plan", "demo/pipeline.py", "--set", "least=10").output
    assert not (folder / "demo" / ".helios").exists()


def test_the_commented_configuration_of_init_is_right_when_uncommented(cli: Run, folder: Path) -> None:
    cli("init")
    toml = folder / "helios.toml"
    lines = toml.read_text().splitlines()
    toml.write_text("\n".join(line.removeprefix("# ") if "=" in line or "[" in line else line for line in lines))
    assert cli("check", "pipeline.py", "--profile", "ci").exit_code == 0


def test_init_overwrites_nothing(cli: Run, folder: Path) -> None:
    (folder / "helios.toml").write_text("mine")
    refused = cli("init")
    assert refused.exit_code == 2
    assert "helios.toml exists already" in refused.stderr
    assert [p.name for p in folder.iterdir()] == ["helios.toml"]
    assert (folder / "helios.toml").read_text() == "mine"


def test_init_adds_to_a_gitignore_once(cli: Run, folder: Path) -> None:
    ignore = folder / ".gitignore"
    ignore.write_text("*.pyc")
    cli("init")
    assert ignore.read_text().splitlines()[0] == "*.pyc"
    assert ignore.read_text().splitlines().count(".helios/") == 1
    before = ignore.read_text()
    for name in ("pipeline.py", "test_pipeline.py", "helios.toml", "data/orders.csv"):
        (folder / name).unlink()
    assert cli("init").exit_code == 0
    assert ignore.read_text() == before


def test_init_into_a_place_that_cannot_be(cli: Run, folder: Path) -> None:
    (folder / "file").write_text("")
    refused = cli("init", "file/demo")
    assert refused.exit_code == 2
    assert refused.stderr.startswith("error[H100]: file")


def test_check_tells_every_problem_at_once_with_its_line(cli: Run, folder: Path) -> None:
    (folder / "a.py").write_text(WRONG)
    refused = cli("check", "a.py")
    assert refused.exit_code == 2
    first, second = refused.stderr.splitlines()
    assert first == "error[H104]: a.py:4: where(amout > 0): no column 'amout'. Did you mean 'amount'?"
    assert second.startswith("error[H104]: a.py:5: prod.shop.orders: catalog 'prod' is not declared.")
    problems = json.loads(cli("check", "a.py", "--json").stdout)["problems"]
    assert [p["where"] for p in problems] == ["a.py:4", "a.py:5"]


def test_check_chooses_a_pipeline(cli: Run, folder: Path) -> None:
    (folder / "a.py").write_text(TWO)
    assert json.loads(cli("check", "a.py:big", "--json").stdout) == {
        "pipelines": ["local.shop.big"],
        "problems": [],
        "notes": {"local.shop.big": []},
    }
    assert cli("check", "a.py:all_of_them").output == "a.py: no problems: local.shop.all\n"
    refused = cli("check", "a.py:bgi")
    assert refused.exit_code == 2
    assert "Did you mean 'big'?" in refused.stderr


def test_offline_does_not_look_into_catalogs(cli: Run, folder: Path) -> None:
    (folder / "a.py").write_text(
        "from helios import Iceberg\np = Iceberg.source('shop.gone') >> Iceberg.sink('shop.copy')\n"
    )
    assert cli("check", "a.py").exit_code == 2
    assert "(catalogs were not read)" in cli("check", "a.py", "--offline").output


@pytest.mark.parametrize(
    ("given", "told"),
    [("least", "'least' is not NAME=VALUE"), ("=1", "is not NAME=VALUE"), ("lest=2", "Did you mean 'least'?")],
)
def test_values_that_cannot_be(given: str, told: str, cli: Run, folder: Path) -> None:
    (folder / "a.py").write_text(TWO)
    refused = cli("check", "a.py", "--set", given)
    assert refused.exit_code == 2
    assert told in refused.stderr


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("x = = 1", "error[H102]: a.py:1: syntax error"),
        ("\n1 / 0", "error[H102]: a.py:2: the script raised ZeroDivisionError"),
        ("x = 1", "declares no pipeline"),
        (
            "from helios import *\np = Iceberg.sink('a.b') >> Iceberg.sink('a.c')",
            "error[H101]: a.py:2: Iceberg.sink(a.b) >>",
        ),
        ("from helios import *\np = Iceberg.source('a.b').incremental('5 parsecs')", "a.py:2: poll='5 parsecs'"),
        ("from helios import *\np = Iceberg.sink('../../a.b')", "a.py:2: '../../a.b' is not a table name"),
    ],
)
@pytest.mark.parametrize("command", ["check", "plan", "graph", "run"])
def test_a_bad_script_is_one_paragraph_and_nothing_is_written(
    text: str, told: str, command: str, cli: Run, folder: Path
) -> None:
    (folder / "a.py").write_text(text)
    refused = cli(command, "a.py")
    assert refused.exit_code == 2
    assert told in refused.stderr
    assert len(refused.stderr.splitlines()) == 1
    assert [p.name for p in folder.iterdir()] == ["a.py"]


def test_plan_as_text_and_as_json(cli: Run, folder: Path) -> None:
    (folder / "a.py").write_text(TWO)
    text = cli("plan", "a.py").output
    assert text.startswith("pipeline local.shop.big  (a.py:4)")
    assert "\n\npipeline local.shop.all  (a.py:5)" in text
    plans = json.loads(cli("plan", "a.py", "--json", "--set", "least=7").stdout)
    assert [p["pipeline"] for p in plans] == ["local.shop.big", "local.shop.all"]
    assert plans[0]["steps"] == ["where(amount > 7)"]


def test_plan_refuses_what_check_refuses(cli: Run, folder: Path) -> None:
    (folder / "a.py").write_text(WRONG)
    assert cli("plan", "a.py").stderr == cli("check", "a.py").stderr


def test_a_missing_script_is_told_by_its_own_name(cli: Run, folder: Path) -> None:
    (folder / "orders.py").write_text(TWO)
    refused = cli("check", "order.py:big")
    assert refused.exit_code == 2
    assert "there is no script order.py. Did you mean 'orders.py'?" in refused.stderr


def test_targets_are_split_only_after_a_file(folder: Path) -> None:
    (folder / "C:").mkdir()
    for name in ("a.py", "b:c", "C:/a.py"):
        (folder / name).write_text("")
    assert ScriptName.parse("a.py") == ScriptName("a.py")
    assert ScriptName.parse("a.py:x") == ScriptName("a.py", "x")
    assert ScriptName.parse("a.py:routes[eu:de]") == ScriptName("a.py", "routes[eu:de]")
    assert ScriptName.parse("b:c") == ScriptName("b:c")
    assert ScriptName.parse("b:c:x") == ScriptName("b:c", "x")
    assert ScriptName.parse("C:/a.py") == ScriptName("C:/a.py")
    assert ScriptName.parse("C:/a.py:x") == ScriptName("C:/a.py", "x")
    assert ScriptName.parse("C:/none.py:x") == ScriptName("C:/none.py", "x")
