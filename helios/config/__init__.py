"""helios.toml (or `[tool.helios]` in pyproject.toml): its reading and its checks, and how table names resolve."""

from helios.config.config import Config, load, resolve

__all__ = ["Config", "load", "resolve"]
