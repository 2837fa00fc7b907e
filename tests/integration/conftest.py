"""The tests of the command line have the JVM that a user has."""

from __future__ import annotations

import pytest

from tests.suite import jvm


@pytest.fixture(autouse=True)
def _a_users_java(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(jvm.OF_ALL_JAVA, raising=False)
