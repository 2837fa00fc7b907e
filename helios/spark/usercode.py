"""The user's own code on executors, which have neither the script nor its folder."""

from __future__ import annotations

import os
import sys
from types import ModuleType

from pyspark import cloudpickle

_PACKAGE = __name__.split(".", maxsplit=1)[0]
_INSTALLED = ("site-packages", "dist-packages")


def ship(module: ModuleType) -> list[str]:
    """Has a script, and the modules beside it that it imported, pickled by value with the functions of both.

    Args:
        module: The script's module, present in `sys.modules`.

    Returns:
        The names of the modules.
    """
    folder = os.path.dirname(os.path.abspath(module.__file__ or "")) + os.sep
    beside = [m for m in list(sys.modules.values()) if m is not module and _lies_in(m, folder)]
    for own in (module, *beside):
        cloudpickle.register_pickle_by_value(own)  # type: ignore[no-untyped-call]
    return [module.__name__, *(m.__name__ for m in beside)]


def _lies_in(module: ModuleType, folder: str) -> bool:
    file = getattr(module, "__file__", None)
    if not isinstance(file, str) or not file.startswith(folder) or sys.modules.get(module.__name__) is not module:
        return False
    # An environment or a checkout of Helios may lie in the script's folder.
    installed = any(part in _INSTALLED for part in file[len(folder) :].split(os.sep))
    return not installed and module.__name__.split(".", maxsplit=1)[0] not in (_PACKAGE, "__main__")
