"""`docwell ask`: a question to a model that answers from the documents and says where it stands."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shared.config import Settings, load_settings
from shared.errors import DocwellError
from shared.text import visible

if TYPE_CHECKING:
    from infra.ask.conversation import Answer


def ask(
    question: Annotated[str, typer.Argument(help="What you want to know.")],
    model: Annotated[str | None, typer.Option(help="The model that answers, instead of DOCWELL_ASK_MODEL.")] = None,
    namespace: Annotated[str, typer.Option(help="Search only this namespace.")] = "",
    url: Annotated[
        str | None, typer.Option(help="The MCP server, instead of DOCWELL_ASK_MCP_URL or the one that runs here.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """Answer a question from the documents, with citations: a model searches over MCP first (needs ANTHROPIC_API_KEY)."""
    import anyio

    from infra.ask.model import require_key

    if not question.strip():
        raise typer.BadParameter("The question is empty.")
    settings, _ = load_settings()
    name = model or settings.ask_model
    require_key(settings)
    try:
        answer = anyio.run(_ask, settings, question, name, url or mcp_url(settings), namespace)
    except BaseExceptionGroup as group:
        raise _only(group) from group
    if as_json:
        print(json.dumps(_as_json(settings, question, name, answer), ensure_ascii=False))
    else:
        _show(settings, name, answer)


def _only(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Our error among those of the tasks of the MCP client, which wraps whatever passes through it."""
    for error in group.exceptions:
        found = _only(error) if isinstance(error, BaseExceptionGroup) else error
        if isinstance(found, DocwellError):
            return found
    return group


def mcp_url(settings: Settings) -> str:
    """Where the MCP server answers: what is set, else the one that runs in this home, else where one would listen."""
    from infra.local.runtime import running
    from infra.local.up import mcp_url as default_url

    if settings.ask_mcp_url is not None:
        return settings.ask_mcp_url
    found = running(settings.home)
    return found.mcp_url if found is not None else default_url(settings)


async def _ask(settings: Settings, question: str, model_name: str, url: str, namespace: str) -> Answer:
    from infra.ask.conversation import Conversation
    from infra.ask.knowledge import open_server
    from infra.ask.model import open_model

    token = settings.ask_token or next(iter(settings.mcp_tokens), None)
    fixed = {"namespace": namespace} if namespace else {}
    async with (
        open_server(url, None if token is None else token.get_secret_value(), fixed=fixed) as server,
        open_model(settings, model_name) as model,
    ):
        return await Conversation(model, server, tell=_tell).ask(question)


def _tell(sentence: str) -> None:
    print(f"docwell: {_plain(sentence)}", file=sys.stderr)


def _plain(text: str) -> str:
    """Nothing in a document or an answer can move the cursor, or turn other text round."""
    return visible(text, lines=True)


def _show(settings: Settings, model: str, answer: Answer) -> None:
    from infra.ask.conversation import NOTHING
    from infra.ask.shelf import cited_documents, write_out

    if answer.outcome == "no_match":
        print(NOTHING)
    else:
        print(_plain(write_out(answer.parts)))
        documents = cited_documents(answer.parts)
        if documents:
            print("\nCited")
        for passages in documents.values():
            first = passages[0]
            where = first.url or first.path
            print(f"  {_plain(where)}: {' '.join(dict.fromkeys(_plain(one.citation) for one in passages))}")
        if not documents:
            print("docwell: this answer cites no passage: check it before you rely on it.", file=sys.stderr)
        if answer.cut:
            print("docwell: the answer was cut at its longest.", file=sys.stderr)
    print(f"\n{_bill(settings, model, answer)}", file=sys.stderr)


def _bill(settings: Settings, model: str, answer: Answer) -> str:
    from shared.prices import cost

    use = answer.use
    cached = (
        f", {use.cache_read_tokens} from the cache, {use.cache_write_tokens} into it"
        if use.cache_read_tokens + use.cache_write_tokens
        else ""
    )
    tokens = f"{model}: {use.calls} calls, {use.input_tokens} tokens in{cached}, {use.output_tokens} out"
    money = cost(settings.prices, model, use)
    price = f", {money:.4f} by [prices]" if money is not None else " (no price is set for it in [prices])"
    return f"{tokens}{price}."


def _as_json(settings: Settings, question: str, model: str, answer: Answer) -> dict[str, Any]:
    import dataclasses

    from infra.ask.conversation import NOTHING
    from infra.ask.shelf import cited_documents, write_out
    from shared.prices import cost

    money = cost(settings.prices, model, answer.use)
    return {
        "question": question,
        "model": model,
        "outcome": answer.outcome,
        "answer": NOTHING if answer.outcome == "no_match" else write_out(answer.parts),
        "cut": answer.cut,
        "parts": [dataclasses.asdict(part) for part in answer.parts],
        "files": [
            {
                "document_id": document,
                "path": passages[0].path,
                "namespace": passages[0].namespace,
                "url": passages[0].url,
                "citations": list(dict.fromkeys(one.citation for one in passages)),
            }
            for document, passages in cited_documents(answer.parts).items()
        ],
        "searches": [dataclasses.asdict(one) for one in answer.searches],
        "usage": dataclasses.asdict(answer.use),
        "cost": None if money is None else float(money),
    }
