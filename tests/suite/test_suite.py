"""The three runs of the tests are all of them and share none; each promise has its tests; no skip goes unseen."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.conformance.cases import CASES
from tests.suite.short import CONFORMANCE, PROMISES, SERVERS, within

ROOT = Path(__file__).parents[2]


def expression(target: str) -> str:
    """What a target of the Makefile gives to `pytest -m`."""
    recipe = re.search(rf"^{target}:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert recipe is not None, target
    [found] = re.findall(r'pytest -m "([^"]+)"', recipe[1])
    return str(found)


def pytest_at(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.fixture(scope="module")
def selected() -> dict[str, list[str]]:
    """The tests that each of the three targets selects, and all."""
    started = {
        name: pytest_at(ROOT, "--collect-only", "-q", *options)
        for name, options in {
            "test": ("-m", expression("test")),
            "test-all": ("-m", expression("test-all")),
            "test-slow": ("-m", expression("test-slow")),
            "all": (),
        }.items()
    }
    said = {name: process.communicate()[0] for name, process in started.items()}
    for name, process in started.items():
        assert process.returncode == 0, said[name]
    return {name: [line for line in text.splitlines() if "::" in line] for name, text in said.items()}


def test_the_runs_share_no_test_and_are_all_tests(selected: dict[str, list[str]]) -> None:
    runs = [selected[name] for name in ("test", "test-all", "test-slow")]
    assert Counter(test for run in runs for test in run) == dict.fromkeys(selected["all"], 1)
    assert len(selected["all"]) == len(set(selected["all"]))


def test_every_promise_is_shown_by_tests_that_are_there(selected: dict[str, list[str]]) -> None:
    names = [name for promise in PROMISES for name in promise.tests]
    assert [name for name in names if not any(within(test, name) for test in selected["test"])] == []


def test_what_is_short_needs_no_server(selected: dict[str, list[str]]) -> None:
    folders = tuple(f"tests/{folder}/" for folder in SERVERS)
    served = [test for test in selected["test"] if test.startswith(folders)]
    assert all(test.endswith("[local-local]") for test in served), served


def test_the_short_form_has_a_story_of_every_mode_and_every_failure_of_append(selected: dict[str, list[str]]) -> None:
    def of_mode(tests: list[str], mode: str) -> set[str]:
        return {test for test in tests if test.startswith(CONFORMANCE) and re.search(rf"[\[-]{mode}(-|\])", test)}

    assert [mode for mode in CASES if not of_mode(selected["test"], mode)] == []
    failures = {test for test in of_mode(selected["all"], "append") if "test_bad_input" not in test}
    assert len(failures) > 12
    assert failures <= set(selected["test"])


@pytest.mark.unit
def test_every_test_has_one_cost(request: pytest.FixtureRequest) -> None:
    costs = {
        item.nodeid: [cost for cost in ("unit", "spark", "process") if item.get_closest_marker(cost)]
        for item in request.session.items
    }
    assert {nodeid: found for nodeid, found in costs.items() if len(found) != 1} == {}


SKIPS = """
import pytest

@pytest.mark.skipif(True, reason="root may write everywhere")
def test_known():
    pass

def test_unknown():
    pytest.skip("not today")

@pytest.fixture
def server():
    pytest.skip("service not to be had: minio: it went away")

def test_unknown_server(server):
    pass

@pytest.mark.xfail(strict=True, reason="a gap")
def test_gap():
    assert False
"""


@pytest.mark.parametrize(
    ("options", "status", "outcome"),
    [
        ((), 0, "3 skipped, 1 xfailed"),
        (("--strict-skips",), 1, "1 failed, 1 skipped, 1 xfailed, 1 error"),
        (("--strict-skips", "-n", "1"), 1, "1 failed, 1 skipped, 1 xfailed, 1 error"),
    ],
)
def test_a_skip_that_is_not_named_is_a_failure(
    tmp_path: Path, options: tuple[str, ...], status: int, outcome: str
) -> None:
    file = tmp_path / "tests" / "unit" / "cli" / "test_doctor.py"
    file.parent.mkdir(parents=True)
    file.write_text(SKIPS)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n    unit\n    short\n    process\n")
    process = pytest_at(tmp_path, "-p", "tests.conftest", *options)
    said = process.communicate()[0]
    assert process.returncode == status, said
    assert outcome in said.splitlines()[-1]
    assert not options or "not named in tests/suite/skips.py" in said
