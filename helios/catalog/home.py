"""Finds the configuration file of a script."""

from __future__ import annotations

import re
from pathlib import Path

from helios.errors import Origin

CONFIG_FILE = "helios.toml"
STATE_FOLDER = ".helios"


def find_config(start: Path) -> Path | None:
    """The nearest helios.toml, or pyproject.toml with `[tool.helios]`, in a folder or above it; None without one."""
    for folder in (start, *start.parents):
        if (folder / CONFIG_FILE).is_file():
            return folder / CONFIG_FILE
        project = folder / "pyproject.toml"
        if project.is_file() and _mentions_helios(project):
            return project
    return None


def _mentions_helios(project: Path) -> bool:
    text = project.read_bytes().decode("utf-8-sig", errors="replace")
    # Most files only list helios as a dependency: a file without `tool.helios` or a table `tool` is not parsed.
    if "helios" not in text or re.search(r"""\btool["']?\s*(?:\.\s*["']?helios\b|[\]=])""", text) is None:
        return False
    import tomllib

    try:
        tool = tomllib.loads(text).get("tool")
    except tomllib.TOMLDecodeError:
        # An invalid file with a table [tool.helios] counts: when it is loaded, the error says what is wrong.
        return re.search(r"^\s*\[\s*tool\s*\.\s*helios\b", text, re.MULTILINE) is not None
    return isinstance(tool, dict) and "helios" in tool


def project_folder(origin: Origin | None) -> Path:
    """The folder of a script's configuration file; the working directory if there is none."""
    script = Path(origin.file) if origin else None
    start = script.absolute().parent if script and script.is_file() else Path.cwd()
    config = find_config(start)
    return config.parent if config else Path.cwd()
