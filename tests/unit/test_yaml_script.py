"""Pipelines in a YAML file: the plans of Python, and errors with their lines."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from helios.config import load
from helios.errors import CheckFailed, HeliosError
from helios.model import values
from helios.plan import Context, compile_pipelines
from helios.script import load_script

pytestmark = pytest.mark.promise("scripts")

EXAMPLES = Path(__file__).parents[2] / "examples"
GIVEN = {"webhooks": {"segments": "/x"}}
WITHOUT_DATA = ("clicks", "fleet", "mirror", "webhooks")


@pytest.fixture(autouse=True)
def _parameters(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    monkeypatch.setenv("SHOP_SECRET", "whsec_c2VjcmV0")
    monkeypatch.chdir(tmp_path)
    yield
    values.PARAMETERS.clear()
    values.USED_PARAMETERS.clear()


def plans(file: Path, given: dict[str, str], folder: Path) -> list[dict[str, Any]]:
    """The plans of a script, without the lines that declare them."""
    script = load_script(file, given)
    context = Context(config=load(folder), catalogs=dict(script.catalogs), offline=True)
    compiled, problems = compile_pipelines(script.choose(None), context)
    assert [str(problem) for problem in problems] == []
    shown = sorted(compiled, key=lambda plan: plan.pipeline)
    return [{k: v for k, v in plan.as_json().items() if k not in ("declared_at", "spill")} for plan in shown]


@pytest.mark.parametrize("name", sorted(file.stem for file in (EXAMPLES / "yaml").iterdir()))
def test_an_example_has_the_plan_of_its_python_form(name: str, tmp_path: Path) -> None:
    given = GIVEN.get(name, {} if name in WITHOUT_DATA else {"data": "/data"})
    (tmp_path / "data").mkdir()
    python = plans(EXAMPLES / f"{name}.py", given, tmp_path)
    assert plans(EXAMPLES / "yaml" / f"{name}.yaml", given, tmp_path) == python


def test_every_example_without_functions_has_one() -> None:
    scripts = {f.stem for f in EXAMPLES.glob("*.py") if ".sink(" in f.read_text() or ".mirror(" in f.read_text()}
    functions = {"send_clicks"}  # its rows are those of a function
    assert scripts - functions == {file.stem for file in (EXAMPLES / "yaml").iterdir()}


def test_the_example_of_the_page_has_no_problems(tmp_path: Path) -> None:
    page = (EXAMPLES.parent / "docs" / "yaml.md").read_text()
    [block] = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    (tmp_path / "data" / "orders").mkdir(parents=True)
    assert [plan["pipeline"] for plan in plans(written(tmp_path, block), {"least": "10"}, tmp_path)] == [
        "local.shop.hourly", "local.shop.orders"
    ]  # fmt: skip


def written(folder: Path, text: str, name: str = "p.yaml") -> Path:
    (folder / name).write_text(text)
    return Path(name)


def said(folder: Path, text: str) -> Sequence[str]:
    """The problems of a file."""
    with pytest.raises(HeliosError) as raised:
        load_script(written(folder, text))
    problems = raised.value.problems if isinstance(raised.value, CheckFailed) else [raised.value]
    return [f"{problem.where}: {problem.what}" for problem in problems]


ONE = "pipelines:\n  a:\n    source: {Iceberg.source: s.t}\n    steps:\n      - %s\n    sink: {Iceberg.sink: s.u}\n"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "p.yaml:1: p.yaml is empty."),
        ("pipelines:\n  a: [1\n  b: 2\n", "p.yaml:3: not YAML: expected ',' or ']', but got ':'."),
        ("piplines: {}", "p.yaml:1: 'piplines' is not a section. Did you mean 'pipelines'?"),
        ("pipelines:\n  a: {sink: {Iceberg.sink: s.t}}", "p.yaml:2: a source is missing."),
        ("pipelines:\n  a: {source: {Iceberg.source: s.t}}", "p.yaml:2: a pipeline needs a sink."),
        (
            "pipelines:\n  a: {source: ordres, sink: {Iceberg.sink: s.t}}",
            "p.yaml:2: there is no stream 'ordres' above.",
        ),
        (ONE % "wher: id > 1", "p.yaml:5: Helios has no 'wher'. Did you mean 'where'?"),
        (ONE % "where: [a, b]", "p.yaml:5: where() takes 1 positional argument but 2 were given."),
        (ONE % "where: {}", "p.yaml:5: where() missing 1 required positional argument: 'condition'."),
        (ONE % "dedupe: {keys: id, withn: 1h}", "p.yaml:5: there is no argument 'withn'. Did you mean 'within'?"),
        (ONE % "Iceberg.sink: s.v", "p.yaml:5: a step is expected here, not IcebergSink."),
        (ONE % "where: id > ${NOPE}", "p.yaml:5: the environment variable 'NOPE' is not set."),
        (ONE % "{where: id > 1, where: id > 2}", "p.yaml:5: 'where' is there twice."),
        (ONE % "HeliosError: x", "p.yaml:5: 'HeliosError' is not a source, step, sink or setting."),
        (ONE % "where.__globals__: x", "p.yaml:5: function has no '__globals__'."),
        (
            "pipelines: {a: {source: {Iceberg.source: s.t, preview: 3}, sink: {Iceberg.sink: s.u}}}",
            "p.yaml:1: IcebergSource has no 'preview'.",
        ),
        (
            "pipelines:\n  a:\n    source:\n      Iceberg.source: s.t\n      incremental:\n        poll: 5 parsecs\n"
            "    sink: {Iceberg.sink: s.u}",
            "p.yaml:5: poll='5 parsecs': unknown unit 'parsecs'.",
        ),
        ("pipelines: {a: &x {source: {Iceberg.source: *x}}}", "p.yaml:1: p.yaml has an alias that contains itself."),
        ("pipelines: {a: !!python/object:x {}}", "p.yaml:1: "),
    ],
)
def test_an_error_names_its_line(text: str, told: str, tmp_path: Path) -> None:
    [problem] = said(tmp_path, text)
    assert problem.startswith(told)


def test_each_wrong_pipeline_is_told(tmp_path: Path) -> None:
    wrong = "pipelines:\n" + "".join(f"  {n}: {{source: {{Iceberg.{n}: s.t}}}}\n" for n in ("a", "b"))
    assert [problem.split(":")[1] for problem in said(tmp_path, wrong)] == ["2", "3"]


def test_values_are_those_of_yaml_1_2_and_variables_are_texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACCOUNT", "0123")
    text = """
        params: {most: 7, none: "7"}
        pipelines:
          a:
            source: {Iceberg.source: s.t, incremental: {poll: 5s, max_rows: "${most}", max_files: "${none}"}}
            steps: [{join: {right: !stream {Iceberg.source: s.u}, on: id}}]
            sink:
              Iceberg.sink: s.v
              table_properties: {since: 2026-01-01, account: "${ACCOUNT}", switch: on}
    """
    with pytest.raises(HeliosError, match="max_files='7'"):
        load_script(written(tmp_path, text))
    text = text.replace("${none}", "${most}")
    [pipeline] = load_script(written(tmp_path, text), {"most": "8"}).choose(None)
    assert (pipeline.stream.source.max_rows, pipeline.stream.source.max_files) == (8, 8)
    assert pipeline.sink.iceberg is not None
    assert dict(pipeline.sink.iceberg.properties) == {
        "since": "2026-01-01", "account": "0123", "switch": "on"
    }  # fmt: skip


def test_a_fan_out_a_name_and_an_alias(tmp_path: Path) -> None:
    text = """
        pipelines:
          both: {source: {Iceberg.source: s.t}, sink: [{Iceberg.sink: s.a}, {Iceberg.sink: s.b}]}
          third:
            source: {Iceberg.source: s.t}
            sink: {Iceberg.sink: s.c, partition_by: &by !day ts}
            name: new
            was: old
          fourth: {source: {Iceberg.source: s.t}, sink: {Iceberg.sink: s.d, partition_by: [*by, id]}}
    """
    script = load_script(written(tmp_path, text))
    assert list(script.pipelines) == ["both[0]", "both[1]", "third", "fourth"]
    third = script.choose("third")[0]
    assert (third.name, third.was, str(third.origin)) == ("new", "old", "p.yaml:6")
    assert [str(f) for f in script.choose("fourth")[0].sink.iceberg.partitioning] == ["day(ts)", "id"]  # type: ignore
