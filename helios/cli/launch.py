"""Starts the Spark session of a script in the background, while the script's pipelines are compiled."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from helios.cli import output
from helios.cli.options import Loaded
from helios.cli.progress import Progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from helios.plan import Plan

SPARK_SECONDS = 6.0
"""The usual time of a start of Spark that uses the class archive."""


class Launch:
    """Starts a Spark session in a thread of its own; with `debug`, Java's tracebacks are shown too."""

    def __init__(self, loaded: Loaded, components: Sequence[str], display: Progress, *, debug: bool) -> None:
        self._loaded = loaded
        self._components = components
        self._display = display
        self._debug = debug
        self._session: SparkSession | None = None
        self._error: BaseException | None = None
        self._lock = threading.Lock()
        self._compiling = True
        self._held_back: list[tuple[str, float | None]] = []
        self._thread = threading.Thread(target=self._run, name="helios-launch", daemon=True)
        self._thread.start()

    def session(self, plans: list[Plan]) -> SparkSession:
        """Waits for the session, and declares the plans' catalogs and the script's functions in it."""
        from helios.environment import java
        from helios.spark.session import session
        from helios.spark.session.user_code import send_to_executors

        notice = java.find_java().notice
        if notice:
            output.say("note", notice, "yellow")
        with self._lock:
            self._compiling = False
            for text, usual_seconds in self._held_back:
                self._display.show_wait(text, usual_seconds)
        self._thread.join()
        if self._error is not None:
            raise self._error
        assert self._session is not None
        session.declare_catalogs(self._session, plans)
        send_to_executors(self._loaded.script.module, self._session)
        return self._session

    def _run(self) -> None:
        from helios.environment import class_archive, jars, java
        from helios.spark.session.launch import launch

        try:
            version, _ = jars.installed_spark()
            if jars.missing_jars_of(self._components, spark_version=version):
                jars.ensure(self._components, spark_version=version, progress=self._show_wait)
                class_archive.ensure(java.find_java(), version, self._show_preparation)
            self._show_wait(f"starting Spark {version} on {self._loaded.context.config.master} ...", SPARK_SECONDS)
            jvm = launch(self._loaded.context.config, self._components, debug=self._debug)
            from helios.spark.session import session  # pyspark loads while Java starts

            self._session = session.connect(jvm)
        except BaseException as error:
            self._error = error

    def _show_preparation(self, text: str) -> None:
        from helios.environment import class_archive

        if text == class_archive.PREPARING:
            self._show_wait(text, class_archive.USUAL_SECONDS)
        else:
            self._display.note(text)

    def _show_wait(self, text: str, usual_seconds: float | None = None) -> None:
        """Shows what the start waits for.

        The text is held back until the pipelines have compiled: if they have problems, only the problems are shown.
        """
        with self._lock:
            if self._compiling:
                self._held_back.append((text, usual_seconds))
            else:
                self._display.show_wait(text, usual_seconds)
