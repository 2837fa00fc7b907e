"""The runs of the tests are all of them and share none; each promise has its tests; no skip goes unseen."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.conformance.cases import CASES
from tests.conftest import ALL
from tests.suite import promises
from tests.suite.marks import RUNS, SERVERS, named_cases

pytestmark = [pytest.mark.promise("suite"), pytest.mark.sampled(1)]

ROOT = Path(__file__).parents[2]
CONFORMANCE = "tests/conformance/"


class Marks(dict[str, bool]):
    """The marks of a test, as an expression of `-m` asks them."""

    def __missing__(self, name: str) -> bool:
        return False


def expression(target: str) -> str:
    """What a target of the Makefile gives to `pytest -m`."""
    recipe = re.search(rf"^{target}:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert recipe is not None, target
    [found] = re.findall(r'pytest -m "([^"]+)"', recipe[1])
    return str(found)


@pytest.fixture(scope="module")
def items(request: pytest.FixtureRequest) -> list[pytest.Item]:
    """All tests, before `-m` has chosen."""
    if request.config.args_source is not pytest.Config.ArgsSource.TESTPATHS:
        pytest.skip("only some tests were collected")
    return request.config.stash[ALL]


@pytest.fixture(scope="module")
def selected(items: list[pytest.Item]) -> dict[str, list[str]]:
    """The tests that each target selects, and all."""
    marks = {item.nodeid: Marks((mark.name, True) for mark in item.iter_markers()) for item in items}
    chosen = {
        target: [nodeid for nodeid, marked in marks.items() if eval(expression(target), {}, marked)]
        for target in ("test", "landing", "test-all", "test-slow")
    }
    return chosen | {"all": [item.nodeid for item in items]}


@pytest.mark.unit
def test_the_runs_share_no_test_and_are_all_tests(selected: dict[str, list[str]]) -> None:
    runs = [selected[name] for name in ("test", "test-all", "test-slow")]
    assert Counter(test for run in runs for test in run) == dict.fromkeys(selected["all"], 1)
    assert len(selected["all"]) == len(set(selected["all"]))
    assert set(selected["landing"]) <= set(selected["test-all"])


@pytest.mark.unit
def test_every_promise_is_shown_by_each_run(items: list[pytest.Item]) -> None:
    found = promises.counted(items)
    alone = [name for name, promise in promises.PROMISES.items() if not (found[name]["test"] or promise.served)]
    landed = [name for name, tests in found.items() if not (tests["test"] or tests["landing"])]
    assert (alone, landed) == ([], [])


@pytest.mark.unit
def test_every_test_on_spark_or_servers_shows_a_promise(items: list[pytest.Item]) -> None:
    assert [i.nodeid for i in items if not i.get_closest_marker("unit") and not promises.shown(i)] == []


@pytest.mark.unit
def test_the_cases_that_marks_name_are_there(items: list[pytest.Item]) -> None:
    named, there = set(), set()
    for item in items:
        test = item.nodeid.partition("[")[0]
        named |= {f"{test}[{case}]" for run in RUNS for case in named_cases(item, run)}
        there.add(item.nodeid)
    assert named <= there, named - there


@pytest.mark.unit
def test_what_is_short_needs_no_server(selected: dict[str, list[str]]) -> None:
    folders = tuple(f"tests/{folder}/" for folder in SERVERS)
    served = [test for test in selected["test"] if test.startswith(folders)]
    assert all(test.endswith("[local-local]") for test in served), served


def of_mode(tests: list[str], mode: str) -> set[str]:
    """The tests of the conformance suite of a write mode."""
    return {test for test in tests if test.startswith(CONFORMANCE) and re.search(rf"[\[-]{mode}(-|\])", test)}


@pytest.mark.unit
def test_the_short_form_has_a_story_of_every_mode_and_every_failure_of_append(selected: dict[str, list[str]]) -> None:
    assert [mode for mode in CASES if not of_mode(selected["test"], mode)] == []
    failures = {test for test in of_mode(selected["all"], "append") if "test_bad_input" not in test}
    assert len(failures) > 12
    assert failures <= set(selected["test"])


@pytest.mark.unit
def test_the_landing_check_has_every_failure_of_another_mode_too(selected: dict[str, list[str]]) -> None:
    def failures(tests: list[str]) -> set[str]:
        return {test.partition("[")[0] for mode in CASES if mode != "append" for test in of_mode(tests, mode)}

    assert failures(selected["all"]) - failures(selected["test"] + selected["landing"]) == set()


@pytest.mark.unit
def test_every_test_has_one_cost(request: pytest.FixtureRequest) -> None:
    costs = {
        item.nodeid: [cost for cost in ("unit", "spark", "process") if item.get_closest_marker(cost)]
        for item in request.session.items
    }
    assert {nodeid: found for nodeid, found in costs.items() if len(found) != 1} == {}


def pytest_at(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


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


WAITS = """
import subprocess, time

def test_a():
    time.sleep(0.6)
    subprocess.run(["sleep", "0.3"])
"""


@pytest.mark.parametrize("workers", [(), ("-n", "1")])
def test_minutes_tell_what_a_run_waited_for(tmp_path: Path, workers: tuple[str, ...]) -> None:
    (tmp_path / "test_waits.py").write_text(WAITS)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n    unit\n    short\n    process\n")
    process = pytest_at(tmp_path, "-p", "tests.conftest", "--minutes", *workers)
    said = process.communicate()[0]
    assert process.returncode == 0, said
    assert re.search(r"\| fixed waits, .* \| 1 \| 1 \|", said), said
    assert re.search(r"\| waiting for processes .* \| [1-9] \| \d \|", said), said
