"""`docwell init`: a folder to begin with, with a sample document and a set of questions about it."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Annotated

import typer

from shared.errors import PermanentError

_PLACES = {"docwell.toml": "docwell.toml", "handbook.md": "inbox/handbook.md", "eval.yaml": "eval.yaml"}


def init(folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder; it is made when it is not there.")]) -> None:
    """Lay down settings, an inbox with a sample document, and questions about it. Nothing that is there is written over."""
    there = [place for place in _PLACES.values() if (folder / place).exists()]
    if there:
        raise PermanentError(
            f"{folder} has {', '.join(there)} already, and nothing is written over. Name another folder.", code="exists"
        )
    try:
        for name, place in _PLACES.items():
            target = folder / place
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(files("infra.scaffold").joinpath(name).read_bytes())
    except OSError as error:
        raise PermanentError(f"{folder} cannot be written to: {error.strerror}.", code="unwritable") from error
    print(f"{folder} has {', '.join(_PLACES.values())}. Next, in that folder:")
    print("  docwell up                                    # start it; the sample is taken in by itself")
    print("  docwell eval eval.yaml --min-hit-rate 0.9     # how well the questions are answered")
