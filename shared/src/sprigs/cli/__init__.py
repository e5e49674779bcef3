"""The command line: `sprigs`."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line and exit with the code that `sprigs --help` documents."""
    try:
        from sprigs.cli._app import app

        app(prog_name="sprigs")
    except KeyboardInterrupt:
        # One that came before click was there to answer it.
        sys.exit(130)
