"""The command line."""

from __future__ import annotations

from vitlab.cli.commands import app, main

__all__ = ["app", "main"]
