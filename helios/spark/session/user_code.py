"""Sends the user's code to executors, which do not have the script and its folder."""

from __future__ import annotations

import ast
import hashlib
import os
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from pyspark import cloudpickle
from pyspark.sql import SparkSession

_PACKAGE = __name__.split(".", maxsplit=1)[0]
_INSTALLED = ("site-packages", "dist-packages")


def send_to_executors(module: ModuleType, spark: SparkSession) -> list[str]:
    """Makes pickle send by value the functions of a script and of the modules in the script's folder.

    This works for modules that are already imported. A module that a function imports later, when it runs, is sent to
    the executors as a file.

    Args:
        module: The script's module, present in `sys.modules`.

    Returns:
        The names of the modules that are pickled by value.
    """
    folder = os.path.dirname(os.path.abspath(module.__file__ or "")) + os.sep
    neighbors = [m for m in list(sys.modules.values()) if m is not module and _lies_in(m, folder)]
    for user_module in (module, *neighbors):
        cloudpickle.register_pickle_by_value(user_module)  # type: ignore[no-untyped-call]
    loaded = {Path(str(m.__file__)) for m in neighbors}
    script = Path(str(module.__file__))
    files = reachable(script, Path(folder)) if script.suffix == ".py" else []  # a YAML file has no functions
    if not loaded.issuperset(files):
        spark.sparkContext.addPyFile(str(_archive(files, Path(folder), Path(str(spark.sparkContext._temp_dir)))))
    return [module.__name__, *(m.__name__ for m in neighbors)]


def send_declaring_module(file: str, spark: SparkSession) -> None:
    """Calls `send_to_executors` for the module that declares a pipeline; does nothing if the tasks run on this machine.

    Args:
        file: The module's file, or the name of a notebook cell. Functions of a cell are always pickled by value.
    """
    if str(spark.sparkContext.master).startswith("local"):
        return
    for module in list(sys.modules.values()):
        path = getattr(module, "__file__", None)
        if path and os.path.abspath(path) == os.path.abspath(file) and sys.modules.get(module.__name__) is module:
            send_to_executors(module, spark)
            return


def _lies_in(module: ModuleType, folder: str) -> bool:
    file = getattr(module, "__file__", None)
    if not isinstance(file, str) or not file.startswith(folder) or sys.modules.get(module.__name__) is not module:
        return False
    # The script's folder may contain a virtual environment or a checkout of Helios.
    installed = any(part in _INSTALLED for part in file[len(folder) :].split(os.sep))
    return not installed and module.__name__.split(".", maxsplit=1)[0] not in (_PACKAGE, "__main__")


def reachable(script: Path, folder: Path) -> list[Path]:
    """The files in a folder that a script may import, directly or not. Of a package, these are all modules."""
    files: dict[Path, None] = {}
    pending = [script]
    while pending:
        for name in _imported_names(pending.pop()):
            new = [file for file in _module_files(folder, name) if file not in files]
            files.update(dict.fromkeys(new))
            pending += new
    return sorted(files)


def _imported_names(file: Path) -> Iterator[str]:
    try:
        nodes = list(ast.walk(ast.parse(file.read_bytes())))
    except (OSError, SyntaxError, ValueError):
        return  # the import itself will raise the error
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            yield node.module.partition(".")[0]


def _module_files(folder: Path, name: str) -> list[Path]:
    if name == _PACKAGE:
        return []
    package, module = folder / name, folder / f"{name}.py"
    # Python's order: a package, then a module, then a folder without __init__.py.
    if module.is_file() and not (package / "__init__.py").is_file():
        return [module]
    return sorted(package.rglob("*.py"))


def _archive(files: list[Path], folder: Path, into: Path) -> Path:
    """A zip archive of files. Its name has a hash of the content, because Spark adds only one archive of a name."""
    content_hash = hashlib.sha256(b"".join(str(f).encode() + f.read_bytes() for f in files)).hexdigest()[:16]
    archive = into / f"helios-{content_hash}.zip"
    with zipfile.ZipFile(archive, "w", strict_timestamps=False) as zipped:
        for file in files:
            zipped.write(file, file.relative_to(folder).as_posix())
    return archive
