"""The version of Helios."""

VERSION = "0.1.0"
