"""The command `docwell`: composes both processes and what runs them. Modules here print; logic lives elsewhere."""

from __future__ import annotations

import sys

import typer

from infra.cli import config, documents, ingest, jobs, processes, search, sources
from infra.cli.doctor import doctor
from infra.cli.status import status
from shared.errors import ConfigurationError, DocwellError, ServiceUnavailable

FAILED, WRONG_USAGE, NO_SERVICE = 1, 2, 3

app = typer.Typer(
    name="docwell",
    help="Drop documents in, draw cited passages out.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.add_typer(documents.app, name="documents", help="The corpus: list, show, history, delete, exclude, include.")
app.add_typer(sources.app, name="sources", help="Where documents come from.")
app.add_typer(jobs.app, name="jobs", help="The queue and its dead letters.")
app.add_typer(config.app, name="config", help="The settings in force.")
app.command("up")(processes.up)
app.command("watch")(processes.watch)
app.command("worker")(processes.worker)
app.command("scheduler")(processes.scheduler)
app.command("api")(processes.api)
app.command("embedder")(processes.embedder)
app.command("mcp")(processes.mcp)
app.command("ingest")(ingest.ingest)
app.command("search")(search.search)
app.command("status")(status)
app.command("doctor")(doctor)
app.command("migrate")(config.migrate)
app.command("mcp-config")(config.mcp_config)


def main() -> None:
    """Run one command: exit 0 done, 1 the work failed, 2 wrong usage, 3 a service it needs is not reachable."""
    try:
        sys.exit(app(standalone_mode=False) or 0)
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
    print(f"docwell: {error}", file=sys.stderr)
    sys.exit(exit_code)
