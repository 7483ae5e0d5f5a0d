"""Parts of addresses that FastAPI's own patterns do not take as they come: what is wrong with them is for the route to say."""

from __future__ import annotations

from typing import Final

from starlette.convertors import Convertor, register_url_convertor

NAMESPACE: Final = "namespace"
"""The first part of a document's address, but for `by-id`, below which documents stand by their numbers."""

REST: Final = "rest"
"""All that follows, line ends too: `path` of Starlette ends at one, and such an address would have no route."""


class _Text(Convertor[str]):
    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


class _Namespace(_Text):
    regex = "(?!by-id/)[^/]*"


class _Rest(_Text):
    regex = "(?s:.*)"


register_url_convertor(NAMESPACE, _Namespace())
register_url_convertor(REST, _Rest())
