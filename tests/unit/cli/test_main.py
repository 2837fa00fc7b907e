"""How every command answers: help, versions, errors, exit statuses."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

import helios
from helios.cli import COMMANDS, Helios, declare, main, output
from helios.errors import CheckFailed, HeliosError, NotFound, Origin, RunError

pytestmark = pytest.mark.promise("commands")

Run = Callable[..., Result]
HEAVY = ("pyspark", "pyiceberg", "pyarrow", "rich", "sqlglot", "numpy", "pandas")


def loaded_by(*arguments: str, cwd: Path) -> set[str]:
    """The heavy packages that a command imports, in a process of its own."""
    code = (
        "import sys\nfrom helios.cli import main\n"
        f"main({list(arguments)!r}, standalone_mode=False)\n"
        "print('loaded', *sorted({name.split('.')[0] for name in sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=cwd, capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split()) & set(HEAVY)


def test_help_lists_every_command_and_imports_no_engine(cli: Run, folder: Path) -> None:
    shown = cli("--help")
    assert shown.exit_code == 0
    listed = [line.split()[0] for line in shown.output.split("Commands:")[1].splitlines() if line.strip()]
    assert listed == [command.name for command in COMMANDS]
    assert loaded_by("--help", cwd=folder) == set()


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: str(command.name))
def test_every_command_has_help_with_an_example(command: click.Command, cli: Run) -> None:
    shown = cli(str(command.name), "--help")
    assert shown.exit_code == 0
    assert f"helios {command.name}" in shown.output.split("Example:")[1]
    brief = command.get_short_help_str(63)
    assert not brief.endswith("..."), "the list of commands would cut it off"


def test_version(cli: Run) -> None:
    assert cli("--version").output == f"helios, version {helios.__version__}\n"


def test_an_unknown_command_is_a_usage_error_that_names_the_nearest(cli: Run) -> None:
    shown = cli("chekc")
    assert shown.exit_code == 2
    assert "check" in shown.stderr


def test_planning_imports_neither_spark_nor_rich(cli: Run, folder: Path) -> None:
    cli("init")
    assert loaded_by("plan", "pipeline.py", cwd=folder) & {"pyspark", "rich", "pandas"} == set()


@pytest.mark.parametrize("module", ["helios", "helios.cli"])
def test_the_package_runs_as_a_module(module: str, folder: Path) -> None:
    done = subprocess.run([sys.executable, "-m", module, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"helios, version {helios.__version__}\n"


def group_that(raises: BaseException) -> Helios:
    """A command line whose one command fails."""

    @click.group(cls=Helios)
    def group() -> None:
        pass

    @group.command()
    @declare.options.common
    @declare.options.json_option
    def fail(profile: str | None, as_json: bool) -> None:
        raise raises

    return group


def test_a_helios_error_is_one_paragraph_on_stderr_with_its_own_status() -> None:
    error = RunError("the catalog is away", where=Origin("a.py", 3), fix="start it.")
    shown = CliRunner().invoke(group_that(error), ["fail"])
    assert shown.exit_code == 1
    assert shown.stdout == ""
    assert shown.stderr == "error[H200]: a.py:3: the catalog is away. Fix: start it.\n"


def test_a_helios_error_is_json_on_stdout_when_asked() -> None:
    error = NotFound("no table", where=Origin("a.py", 3))
    shown = CliRunner().invoke(group_that(error), ["fail", "--json"])
    assert shown.exit_code == 2
    assert shown.stderr == ""
    assert json.loads(shown.stdout) == {
        "error": "NotFound", "code": "H104", "what": "no table", "where": "a.py:3", "fix": None,
    }  # fmt: skip


def test_every_problem_of_a_check_is_a_paragraph() -> None:
    error = CheckFailed([NotFound("one."), NotFound("two.")])
    shown = CliRunner().invoke(group_that(error), ["fail"])
    assert shown.stderr.splitlines() == ["error[H104]: one.", "error[H104]: two."]


def test_an_unforeseen_exception_is_one_line_and_no_traceback() -> None:
    shown = CliRunner().invoke(group_that(ZeroDivisionError("by\nzero")), ["fail"])
    assert shown.exit_code == 1
    assert shown.stderr == (
        "error: ZeroDivisionError: by zero. This is a bug in Helios; run with --debug for the traceback.\n"
    )


def test_an_unforeseen_exception_as_json() -> None:
    shown = CliRunner().invoke(group_that(ZeroDivisionError("by zero")), ["fail", "--json"])
    assert shown.exit_code == 1
    assert json.loads(shown.stdout)["error"] == "ZeroDivisionError"


@pytest.mark.parametrize("error", [ZeroDivisionError("x"), HeliosError("x")])
def test_debug_shows_the_traceback(error: Exception) -> None:
    shown = CliRunner().invoke(group_that(error), ["fail", "--debug"])
    assert shown.exit_code == 1
    assert "Traceback (most recent call last)" in shown.stderr


def test_an_interrupted_command_ends_as_a_shell_expects() -> None:
    assert CliRunner().invoke(group_that(KeyboardInterrupt()), ["fail"]).exit_code == 130


def test_what_the_command_line_gave_has_no_place_in_a_file(cli: Run) -> None:
    shown = cli("schema", "../orders")
    assert shown.exit_code == 2
    assert shown.stderr.startswith("error[H101]: '../orders' is not a table name")


def test_a_message_cannot_steer_the_terminal() -> None:
    assert "\x1b" not in output.paragraph(HeliosError("a\x1b[2Jb"))


def test_main_is_what_the_console_script_calls() -> None:
    assert isinstance(main, Helios)
