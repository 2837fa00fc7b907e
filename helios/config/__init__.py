"""Reads and checks helios.toml (or `[tool.helios]` in pyproject.toml), and resolves table names."""

from helios.config.config import Config, load, resolve

__all__ = ["Config", "load", "resolve"]
