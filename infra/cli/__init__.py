"""The command `docwell`: composes both processes and what runs them. Modules here print; logic lives elsewhere."""

from __future__ import annotations

import importlib
import sys

import typer

from shared.errors import ConfigurationError, DocwellError, ServiceUnavailable
from shared.text import visible

FAILED, WRONG_USAGE, NO_SERVICE = 1, 2, 3

# Where each command stands: its module, and its function, or None for a group of commands.
COMMANDS: dict[str, tuple[str, str | None]] = {
    "up": ("processes", "up"),
    "ingest": ("ingest", "ingest"),
    "search": ("search", "search"),
    "ask": ("ask", "ask"),
    "why": ("why", "why"),
    "eval": ("evaluate", "evaluate"),
    "documents": ("documents", None),
    "erase": ("erase", "erase"),
    "sources": ("sources", None),
    "jobs": ("jobs", None),
    "tokens": ("tokens", None),
    "reindex": ("reindex", None),
    "reprocess": ("reprocess", "reprocess"),
    "usage": ("usage", "usage"),
    "status": ("status", "status"),
    "doctor": ("doctor", "doctor"),
    "config": ("config", None),
    "migrate": ("config", "migrate"),
    "mcp-config": ("config", "mcp_config"),
    "init": ("init", "init"),
    "mcp": ("processes", "mcp"),
    "watch": ("processes", "watch"),
    "worker": ("processes", "worker"),
    "scheduler": ("processes", "scheduler"),
    "api": ("processes", "api"),
    "embedder": ("processes", "embedder"),
}


def make_app(only: str | None = None) -> typer.Typer:
    """The commands as a typer application: all, or `only` this one, whose start need not wait for the imports of the others."""
    app = typer.Typer(
        name="docwell",
        help="Drop documents in, draw cited passages out.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )
    # With a callback typer takes a single command for one of several too.
    app.callback()(lambda: None)
    for name in COMMANDS if only is None else [only]:
        module_name, function = COMMANDS[name]
        module = importlib.import_module(f"infra.cli.{module_name}")
        if function is None:
            app.add_typer(module.app, name=name)
        else:
            app.command(name)(getattr(module, function))
    return app


def main() -> None:
    """Run one command: exit 0 done, 1 the work failed, 2 wrong usage, 3 a service it needs is not reachable."""
    try:
        command = sys.argv[1] if len(sys.argv) > 1 and sys.argv[1] in COMMANDS else None
        sys.exit(make_app(command)(standalone_mode=False) or 0)
    except typer.Exit as error:
        sys.exit(error.exit_code)
    except typer.Abort:
        sys.exit(FAILED)
    except typer.TyperException as error:
        # Only the errors of usage can show themselves, with the line that names the command's help.
        show = getattr(error, "show", None)
        if show is None:
            raise
        show()
        sys.exit(WRONG_USAGE)
    except ServiceUnavailable as error:
        _complain(error, NO_SERVICE)
    except ConfigurationError as error:
        _complain(error, WRONG_USAGE)
    except DocwellError as error:
        _complain(error, FAILED)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(FAILED)


def _complain(error: DocwellError, exit_code: int) -> None:
    print(f"docwell: {visible(str(error), lines=True)}", file=sys.stderr)
    sys.exit(exit_code)
