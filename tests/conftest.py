"""Marks of all tests, what they show and cost, the order in which workers get them, and skips that are on no list."""

from __future__ import annotations

import os
from collections.abc import Generator
from typing import Any

import pytest
from hypothesis import settings

from tests.suite import jvm, marks, minutes, promises
from tests.suite.schedule import LongFirst
from tests.suite.skips import named

# A machine that is busy is no failure.
settings.register_profile("helios", deadline=None)
settings.load_profile("helios")

ALL = pytest.StashKey[list[pytest.Item]]()
"""All tests that were collected, before `-m` has chosen."""

pytest_plugins = ["tests.services.fixtures"]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--strict-skips", action="store_true", help="a skip that tests/suite/skips.py does not name fails")
    parser.addoption(
        "--promises", action="store_true", help="print which tests show each promise (with --collect-only)"
    )
    parser.addoption("--minutes", action="store_true", help="print where the minutes of the run went")


def pytest_configure(config: pytest.Config) -> None:
    os.environ.setdefault(jvm.OF_ALL_JAVA, jvm.QUICK)
    if config.getoption("--minutes"):
        config.pluginmanager.register(minutes.Minutes(config))


@pytest.hookimpl(tryfirst=True)  # before `-m` is asked
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    marks.mark_all(items)
    for item in items:
        promises.shown(item)  # refuses a promise that is not there, also if only some tests are run
    config.stash[ALL] = list(items)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if config.getoption("--promises"):
        terminalreporter.write_line("\n".join(promises.table(config.stash[ALL])))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LongFirst:
    return LongFirst(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if not hasattr(report, "wasxfail"):
        _refuse_unnamed(report, item.config)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    _refuse_unnamed(report, collector.config)
    return report


def _refuse_unnamed(report: pytest.TestReport | pytest.CollectReport, config: pytest.Config) -> None:
    """Makes a skip that no list names a failure, as which the summary then counts it."""
    if not report.skipped or not config.getoption("--strict-skips"):
        return
    said = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    if named(report.nodeid, said) is None:
        report.outcome = "failed"
        report.longrepr = f"{said}\nThis skip is not named in tests/suite/skips.py, with the reason why it is right."
