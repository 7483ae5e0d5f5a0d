"""Python's collector of cycles, in processes that answer."""

from __future__ import annotations

import gc


def leave_alone_what_is_loaded() -> None:
    """Never look at again what is there now: modules and their functions live as long as the process.

    A whole collection looks at every object; with all that is imported that takes a third of a second, in which nothing is
    answered. To be called once, when a server is about to serve.
    """
    gc.freeze()
