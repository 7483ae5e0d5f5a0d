"""How costs are said: tokens and money of calls, of a document or of all, and what a load would come to."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shared.config import Settings
from shared.prices import TokenUse

if TYPE_CHECKING:
    from psycopg import Connection

    from ingest_worker.catalogue.captions import Captioning
    from ingest_worker.catalogue.contexts import Enrichment
    from ingest_worker.catalogue.ledger import Total
    from ingest_worker.catalogue.without_vector import GapCount
    from ingest_worker.enrich.estimate import Estimate, Share


def total_line(total: Total) -> str:
    """One line on what calls of a kind took."""
    said = _tokens(
        TokenUse(
            input_tokens=total.input_tokens,
            output_tokens=total.output_tokens,
            cache_read_tokens=total.cache_read_tokens,
            cache_write_tokens=total.cache_write_tokens,
        )
    )
    money = (
        f"{_money(total.money)} money" if not total.unpriced_calls else f"{_money(total.money)} money, and calls without a price"
    )
    return f"{total.kind} ({total.model}): {total.calls:,} calls, {said}, {money}"


def tokens_of(total: Total) -> int:
    """All tokens of a total, whatever they cost."""
    return total.input_tokens + total.output_tokens + total.cache_read_tokens + total.cache_write_tokens


def gaps_line(gaps: Sequence[GapCount]) -> str | None:
    """One line on passages that searches find by their words alone, and why; None where there are none."""
    said = [
        f"{gap.passages} passages of {gap.documents} documents ({gap.code}): {gap.reason}"
        if gap.documents > 1
        else f"{gap.passages} passages ({gap.code}): {gap.reason}"
        for gap in gaps
    ]
    return " ".join(said) or None


def enrichment_line(found: Enrichment) -> str:
    """One line on how far a document has come with its contexts."""
    line = f"{found.state}, {found.with_context} of {found.chunks} passages"
    if found.reason:
        line += f": {found.reason}"
    if found.next_try is not None:
        line += f" The rest is asked for at {found.next_try:%Y-%m-%d %H:%M:%S} UTC."
    return line


def captioning_line(found: Captioning) -> str:
    """One line on how far a document has come with the captions of its pictures."""
    line = f"{found.state}, {found.with_caption} of {found.pictures} pictures"
    if found.decoration:
        line += f", {found.decoration} are decoration"
    if found.reason:
        line += f": {found.reason}"
    if found.next_try is not None:
        line += f" The rest is asked for at {found.next_try:%Y-%m-%d %H:%M:%S} UTC."
    return line


def estimate_files(connection: Connection[Any], files: Sequence[Path], current: Settings, *, namespace: str) -> dict[str, Any]:
    """What taking these files in would come to, as JSON has it; nothing is written, and nothing leaves this machine."""
    from ingest_worker.enrich.caption_estimate import caption_share, caption_use
    from ingest_worker.enrich.estimate import estimate_load
    from ingest_worker.intake.manual import intend
    from ingest_worker.intake.read import read_file
    from ingest_worker.parse.cage import CageLimits, ParserCage
    from ingest_worker.parse.fingerprint import ocr_settings
    from ingest_worker.parse.pictures import PictureLimits
    from shared.errors import DocwellError

    documents = []
    asked = []
    pictures = PictureLimits(pictures=current.caption_pictures)
    left: dict[str, str] = {}
    limits = CageLimits(
        timeout_seconds=current.parse_timeout_seconds,
        memory_bytes=current.parse_memory_bytes,
        passwords=tuple(password.get_secret_value() for password in current.document_passwords),
        ocr=ocr_settings(current),
    )
    with ParserCage(limits) as cage:
        for number, file in enumerate(files, start=1):
            if sys.stderr.isatty():
                print(f"\r{number} of {len(files)}", end="", file=sys.stderr)
            intention = intend(connection, file, namespace=namespace, max_bytes=current.max_bytes)
            if intention.action not in {"new", "changed"}:
                left[str(file)] = f"{intention.action}: {intention.reason}"
                continue
            try:
                data = read_file(file, max_bytes=current.max_bytes).data
                parsed = cage.parse_and_chunk(str(file), data, current.chunk_tokens, current.chunk_overlap, pictures=pictures)
            except DocwellError as error:
                left[str(file)] = f"{error.code}: {error}"
            else:
                documents.append((str(file), parsed.title, parsed.chunks))
                asked.append(caption_use(parsed.pictures or ()))
    if sys.stderr.isatty():
        print(file=sys.stderr)
    captions = caption_share(asked, current)
    return {**estimate_json(estimate_load(documents, current)), "caption": _share_json(captions), "left_out": left}


def estimate_json(found: Estimate) -> dict[str, Any]:
    """An estimate as JSON has it."""
    return {
        "documents": found.documents,
        "chunks": found.chunks,
        "embedding": _share_json(found.embedding),
        "context": _share_json(found.context),
    }


def print_estimate(found: dict[str, Any]) -> None:
    """An estimate for people."""
    print(
        f"{found['documents']} documents, {found['chunks']} chunks; {len(found['left_out'])} files cost nothing or cannot be read"
    )
    for name, noun in (("embedding", "embedding"), ("context", "contexts"), ("caption", "captions")):
        share = found[name]
        tokens = f"{share['tokens']:,} tokens" + (f" in {share['calls']:,} calls" if share["calls"] else "")
        if name == "embedding" and not share["on"]:
            money = "nothing to pay"
        else:
            money = "no price is set" if share["money"] is None else f"{share['money']} money"
        off = "" if share["on"] or name == "embedding" else " (off: this is what they would cost)"
        print(f"{noun} by {share['model']}: about {tokens}, {money}{off}")


def _share_json(share: Share) -> dict[str, Any]:
    use = share.use
    return {
        "model": share.model,
        "on": share.is_on,
        "calls": use.calls,
        "tokens": use.tokens,
        "input_tokens": use.input_tokens,
        "output_tokens": use.output_tokens,
        "cache_read_tokens": use.cache_read_tokens,
        "cache_write_tokens": use.cache_write_tokens,
        "money": None if share.money is None else _money(share.money),
    }


def _tokens(use: TokenUse) -> str:
    parts = [f"{use.input_tokens:,} in"]
    parts += [f"{use.cache_read_tokens:,} from the cache"] if use.cache_read_tokens else []
    parts += [f"{use.cache_write_tokens:,} into it"] if use.cache_write_tokens else []
    parts += [f"{use.output_tokens:,} out"] if use.output_tokens else []
    return ", ".join(parts)


def _money(money: Decimal) -> str:
    return f"{money:.6f}".rstrip("0").rstrip(".") or "0"
