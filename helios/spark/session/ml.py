"""Registers the functions of Spark ML in a JVM that was started by a recipe, when Spark ML is imported.

Spark's own extension registers these functions in every session, by Scala's reflection, which adds half a second to
each start. So a recipe (see `helios.environment.recipe`) leaves this extension out. The functions are internal: only
`pyspark.ml` calls them, and no SQL text can.
"""

from __future__ import annotations

import importlib.abc
import sys
from collections.abc import Sequence
from types import ModuleType

from helios.spark.jvm.classes import classes

PACKAGES = ("pyspark.ml", "pyspark.mllib")


class _OnImport(importlib.abc.MetaPathFinder):
    """An import hook that registers the functions before a package of Spark ML is imported, and finds no module."""

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        if fullname in PACKAGES:
            register()


_ON_IMPORT = _OnImport()


def register_when_imported() -> None:
    """Registers the functions: now if Spark ML is already imported, otherwise when Spark ML is imported."""
    if any(package in sys.modules for package in PACKAGES):
        register()
    if _ON_IMPORT not in sys.meta_path:
        sys.meta_path.insert(0, _ON_IMPORT)


def register() -> None:
    """Registers the functions in the JVM of this process, as Spark's own extension does."""
    classes().org.apache.spark.sql.ml.InternalFunctionRegistration().apply(None)
