"""What a person reads when Docwell is ready: where to drop files, where it answers, how to connect a client."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path

from shared.config import Settings


def docwell_program() -> str:
    """The absolute path of the command `docwell` of this installation."""
    beside = Path(sys.executable).absolute().with_name("docwell")
    return str(beside) if beside.exists() else shutil.which("docwell") or "docwell"


def stdio_command(settings: Settings) -> str:
    """The line that connects Claude Code over stdio. The name stands before `--env`, which takes every word after it."""
    environment = f"DOCWELL_HOME={settings.home}"
    server = [docwell_program(), "mcp", "--transport", "stdio"]
    return shlex.join(["claude", "mcp", "add", "docwell", "--env", environment, "--", *server])


def http_command(mcp_url: str) -> str:
    """The line that connects Claude Code over HTTP."""
    return shlex.join(["claude", "mcp", "add", "--transport", "http", "docwell", mcp_url])


def ready_lines(settings: Settings, *, api_url: str, mcp_url: str, seconds: float) -> list[tuple[str, str]]:
    """Label and value of each line of the banner."""
    home = [] if settings.home == Path.cwd() / ".docwell" else [f"DOCWELL_HOME={shlex.quote(str(settings.home))}"]
    search = " ".join([*home, shlex.join([docwell_program(), "search", "how do I cancel an invoice"])])
    return [
        ("Docwell is ready", f"in {seconds:.1f} s; Ctrl-C stops it"),
        ("Inbox", str(settings.inbox)),
        ("API", f"{api_url}/docs"),
        ("MCP", mcp_url),
        ("Claude Code", stdio_command(settings)),
        ("or over HTTP", http_command(mcp_url)),
        ("Try", search),
        ("Logs", str(settings.home / "logs")),
    ]


def show(lines: list[tuple[str, str]]) -> None:
    """Prints the banner on stdout: in a frame on a terminal, as plain lines elsewhere. Commands are never broken in two."""
    from rich.console import Console
    from rich.panel import Panel
    from rich.text import Text

    title, *rest = lines
    width = max(len(label) for label, _ in rest) + 1
    console = Console()
    if console.is_terminal and max(len(value) for _, value in rest) + width + 6 <= console.width:
        body = Text("\n".join(f"{label + ':':<{width}} {value}" for label, value in rest), no_wrap=True)
        console.print(Panel(body, title=f"{title[0]} {title[1]}", title_align="left", border_style="green", expand=False))
        return
    text = [f"{title[0]} {title[1]}", *(f"  {label + ':':<{width}} {value}" for label, value in rest)]
    sys.stdout.write("\n".join(text) + "\n")
    sys.stdout.flush()
