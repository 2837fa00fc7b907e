"""`helios explain`, and the page of codes."""

from __future__ import annotations

import json
import re

import pytest

from helios import errors
from helios.cli.explain import FAMILIES, entries
from tests.suite.pages import ROOT
from tests.unit.cli.conftest import Run

pytestmark = pytest.mark.promise("words")

PAGE = (ROOT / "docs" / "troubleshooting.md").read_text()


def test_the_page_of_codes_has_each_family() -> None:
    rows = re.findall(r"^\| (H\d+) \| `(\w+)` \| (\d) \| (.*) \| (.*) \|$", (ROOT / "docs/errors.md").read_text(), re.M)
    assert rows == [(f.code, f.error.__name__, str(f.error.exit_status), f.meaning, f.retry) for f in FAMILIES]


def test_each_class_of_errors_is_a_family_with_a_code_of_its_own() -> None:
    declared = {e for e in vars(errors).values() if isinstance(e, type) and issubclass(e, errors.HeliosError)}
    assert {f.error for f in FAMILIES} == declared - {errors.HeliosError, errors.CheckFailed}
    assert len({f.code for f in FAMILIES}) == len(FAMILIES)


def test_each_section_of_a_family_is_on_the_page_and_has_errors() -> None:
    assert {s for f in FAMILIES for s in f.sections} <= {entry.section for entry in entries()}


def test_each_row_of_the_page_is_an_entry() -> None:
    assert len(entries()) == len(re.findall(r"^\| `", PAGE, re.MULTILINE)) > 100
    assert all(entry.says and entry.cause and entry.remedy for entry in entries())


def test_a_code_has_its_entries(cli: Run) -> None:
    done = cli("explain", "h106")
    assert done.output.startswith("H106, CheckpointError: A checkpoint that is not this pipeline's")
    assert "exit status 2; running it again does not help" in done.output
    assert "but its checkpoint ... is lost" in done.output
    assert json.loads(cli("explain", "CheckpointError", "--json").output)["code"] == "H106"


def test_an_error_as_it_was_printed_is_found(cli: Run) -> None:
    printed = cli("schema", "shop.oders")
    assert printed.stderr.startswith("error[H104]: ")
    told = cli("explain", printed.stderr)
    assert told.output.startswith("table ... does not exist")
    assert "remedy" in told.output


def test_some_words_of_an_error_are_enough(cli: Run) -> None:
    assert "stop the process on the host" in cli("explain", "Another driver").output


def test_an_unknown_text_is_an_error(cli: Run) -> None:
    done = cli("explain", "H1066")
    assert done.exit_code == 2
    assert "no known error matches 'H1066'. Did you mean 'H106'?" in done.stderr


def test_the_codes_are_listed(cli: Run) -> None:
    listed = cli("explain").output.splitlines()
    assert [line.split()[0] for line in listed[1:]] == [f.code for f in FAMILIES]
    assert [row["code"] for row in json.loads(cli("explain", "--json").output)] == [f.code for f in FAMILIES]
