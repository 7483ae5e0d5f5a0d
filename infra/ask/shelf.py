"""The passages that a model was shown, in the order in which its citations count them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from infra.ask.brackets import read_brackets
from infra.ask.shown import Shown

if TYPE_CHECKING:
    from anthropic.types import SearchResultBlockParam


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A stretch of an answer with the passages that it rests on."""

    text: str
    passages: tuple[Shown, ...] = ()


class Shelf:
    """Passages by their number. A citation names the number of a `search_result` block among all of a request, and blocks never
    leave a conversation, so that a number stays."""

    def __init__(self) -> None:
        self._shown: list[Shown] = []

    def __len__(self) -> int:
        return len(self._shown)

    def put_results(self, results: Iterable[Mapping[str, Any]]) -> list[SearchResultBlockParam]:
        """The results of a search as blocks to be cited."""
        return [self._put(result, result["document_id"], result["path"], result.get("namespace")) for result in results]

    def put_pieces(self, answer: Mapping[str, Any]) -> list[SearchResultBlockParam]:
        """The pieces of a document that was read."""
        document = answer["document"]
        return [
            self._put(piece, document["document_id"], document["path"], document.get("namespace"), document.get("url"))
            for piece in answer["pieces"]
        ]

    def _put(
        self, piece: Mapping[str, Any], document_id: str, path: str, namespace: str | None, url: str | None = None
    ) -> SearchResultBlockParam:
        self._shown.append(
            Shown(
                citation=piece["citation"],
                path=path,
                document_id=document_id,
                chunk_id=piece["chunk_id"],
                namespace=namespace,
                url=piece.get("url", url),
            )
        )
        return {
            "type": "search_result",
            "source": path,
            "title": piece["citation"],
            "content": [{"type": "text", "text": piece["text"].strip() or "(no text)"}],
            "citations": {"enabled": True},
        }

    def read(self, content: Iterable[Any]) -> list[Part]:
        """The text of a model's message, each stretch with what it cites. A number that was never shown is no citation, and
        brackets that the model wrote are one only where they name a passage that was shown.
        """
        citations = {shown.citation: shown for shown in reversed(self._shown)}
        parts = []
        for block in content:
            if block.type != "text":
                continue
            numbers = [one.search_result_index for one in block.citations or () if one.type == "search_result_location"]
            cited = [self._shown[number] for number in numbers if 0 <= number < len(self._shown)]
            text, named = read_brackets(block.text, citations)
            parts.append(Part(text=text, passages=tuple(dict.fromkeys(cited + named))))
        return parts


def write_out(parts: Sequence[Part]) -> str:
    """The answer as text, with the citations behind what they belong to."""
    written = []
    for part in parts:
        text = part.text
        marks = "".join(dict.fromkeys(passage.citation for passage in part.passages))
        if marks:
            body = text.rstrip()
            text = f"{body} {marks}{text[len(body) :]}"
        written.append(text)
    return "".join(written).strip()


def cited_documents(parts: Sequence[Part]) -> dict[str, list[Shown]]:
    """The passages that are cited by the id of their document, in the order in which the answer cites them first."""
    found: dict[str, list[Shown]] = {}
    for part in parts:
        for passage in part.passages:
            held = found.setdefault(passage.document_id, [])
            if passage not in held:
                held.append(passage)
    return found
