# ruff: noqa: E501 - small programs in one line each
from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingest_worker.chunk.chunk import chunk_document
from ingest_worker.parse.parse import parse
from shared.documents import Chunk, ChunkKind
from shared.tokens import load_token_counter


def _chunks(name: str, text: str, target: int = 480) -> tuple[Chunk, ...]:
    return chunk_document(parse(name, text.encode()), load_token_counter(), target)


def _visible(text: str) -> str:
    return re.sub(r"\s", "", text)


def _own_text(chunk: Chunk, text: str) -> str:
    """The chunk without the lines of its enclosing scope: what it shares with the lines that it cites."""
    assert chunk.span.line_start is not None
    cited = _visible("\n".join(text.split("\n")[chunk.span.line_start - 1 : chunk.span.line_end]))
    lines = chunk.text.split("\n")
    start = next(i for i in range(len(lines)) if _visible("\n".join(lines[i:])) in cited)
    return "\n".join(lines[start:])


_INVOICE = '''"""Invoices."""

import datetime
from decimal import Decimal

RATE = Decimal("0.19")


class Invoice:
    """What a customer owes, with the items that make the sum and the day on which it is due at the latest."""

    def __init__(self, number: str, items: list[Decimal]) -> None:
        self.number = number
        self.items = items
        self.cancelled_at: datetime.datetime | None = None

    # Cancelling keeps the number: numbers must have no gaps.
    @property
    def total(self) -> Decimal:
        """The sum of all items with tax on top of it, rounded to cents."""
        return sum(self.items, Decimal(0)) * (1 + RATE)

    def cancel(self, reason: str) -> None:
        """Cancel the invoice; it stays in the books with its reason."""
        self.cancelled_at = datetime.datetime.now(datetime.UTC)
        self.reason = reason


def overdue(invoices: list[Invoice], today: datetime.date) -> list[Invoice]:
    """The invoices that should have been paid before today and were not cancelled."""
    return [invoice for invoice in invoices if invoice.due < today and not invoice.cancelled_at]
'''


def test_methods_and_functions_are_chunks_with_their_dotted_path() -> None:
    chunks = _chunks("invoice.py", _INVOICE)
    assert [chunk.symbol for chunk in chunks] == [
        None, "Invoice", "Invoice.__init__", "Invoice.total", "Invoice.cancel", "overdue",
    ]  # fmt: skip
    assert all(chunk.kind is ChunkKind.CODE and chunk.language == "python" for chunk in chunks)
    lines = _INVOICE.split("\n")
    for chunk in chunks:
        assert chunk.span.line_start is not None
        assert chunk.text.endswith("\n".join(lines[chunk.span.line_start - 1 : chunk.span.line_end]))


def test_a_method_comes_with_its_comment_its_decorator_and_the_line_of_its_class() -> None:
    total = next(chunk for chunk in _chunks("invoice.py", _INVOICE) if chunk.symbol == "Invoice.total")
    assert total.text.split("\n")[:5] == [
        "class Invoice:",
        "    …",
        "    # Cancelling keeps the number: numbers must have no gaps.",
        "    @property",
        "    def total(self) -> Decimal:",
    ]
    assert total.text.endswith("(1 + RATE)")
    assert (total.span.line_start, total.span.line_end) == (17, 21)


@pytest.mark.parametrize(
    ("name", "text", "symbols"),
    [
        ("a.go", "package a\n\n// Cancel ends it for good, whatever state it is in.\nfunc (i *Invoice) Cancel(reason string) error {\n\ti.reason = reason\n\treturn i.save()\n}\n", {"Invoice.Cancel"}),
        ("A.java", "class Invoice {\n  /** Ends it for good, whatever state it is in, and keeps the number. */\n  @Override\n  public void cancel(String reason) {\n    this.reason = reason;\n    save();\n  }\n}\n", {"Invoice.cancel"}),
        ("a.rs", "impl Invoice {\n    /// Ends it for good, whatever state it is in, and keeps the number.\n    pub fn cancel(&mut self, reason: &str) {\n        self.reason = reason.into();\n    }\n}\n", {"Invoice.cancel"}),
        ("a.ts", "export class Invoice {\n  async cancel(reason: string): Promise<void> {\n    this.reason = reason;\n    await this.save({ number: this.number, reason });\n  }\n}\n", {"Invoice.cancel"}),
        ("a.js", "export const cancel = async (invoice, reason) => {\n  invoice.reason = reason;\n  await save(invoice);\n};\n", {"cancel"}),
        ("a.rb", "module Billing\n  class Invoice\n    def cancel(reason)\n      @reason = reason\n      save\n    end\n  end\nend\n", {"Billing.Invoice.cancel"}),
        ("a.ex", "defmodule Invoice do\n  def cancel(invoice, reason) do\n    %{invoice | reason: reason}\n  end\nend\n", {"Invoice.cancel"}),
        ("a.c", "/* Ends it. */\nint cancel(struct invoice *i,\n           const char *reason)\n{\n    i->reason = reason;\n    return 0;\n}\n", {"cancel"}),
        ("a.cs", "namespace Billing {\n  class Invoice {\n    public void Cancel(string reason) {\n      Reason = reason;\n      Save();\n    }\n  }\n}\n", {"Billing.Invoice.Cancel"}),
        ("a.kt", "class Invoice {\n    fun cancel(reason: String) {\n        this.reason = reason\n        save()\n    }\n}\n", {"Invoice.cancel"}),
    ],
)  # fmt: skip
def test_symbols_are_found_in_many_languages(name: str, text: str, symbols: set[str]) -> None:
    assert symbols <= {chunk.symbol for chunk in _chunks(name, text)}


_LINE = st.sampled_from(
    ["def f(x):", "    return x", "class A:", "    def m(self):", "        pass", "", "# note", "x = (", ")", "}", "{", "@d", '"""', "\tif x:",
     "y" * 900, "import os", "a = [1, 2, 3] * 40"]
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(st.lists(_LINE, min_size=1, max_size=120), st.sampled_from(["a.py", "a.js", "a.c", "Makefile", "a.nas"]))
def test_no_line_is_lost_however_broken_the_syntax_is(lines: list[str], name: str) -> None:
    text = "\n".join(lines)
    if not text.strip():
        return
    chunks = _chunks(name, text, 64)
    assert _visible("".join(_own_text(chunk, text) for chunk in chunks)) == _visible(text)
    assert all(0 < chunk.tokens <= 64 for chunk in chunks)
    assert chunks == _chunks(name, text, 64)


@pytest.mark.parametrize("text", ["x = " + "(" * 10_000 + ")" * 10_000, "x = " + "(\n" * 3_000 + ")\n" * 3_000, "{\n" * 5_000])
def test_ten_thousand_nested_parentheses_are_only_long(text: str) -> None:
    for name in ("a.py", "a.c"):
        chunks = _chunks(name, text)
        assert all(chunk.tokens <= 480 for chunk in chunks)
        assert sum(chunk.text.count("(") + chunk.text.count("{") for chunk in chunks) == text.count("(") + text.count("{")


def test_a_long_function_is_cut_at_its_statements() -> None:
    body = "\n".join(
        f"    if condition_{i}:\n        call_number_{i}(first, second, third)\n        log.info('done')" for i in range(80)
    )
    chunks = _chunks("a.py", f"def long(first, second, third):\n{body}\n")
    assert len(chunks) > 3
    assert {chunk.symbol for chunk in chunks} == {"long"}
    assert chunks[0].text.startswith("def long(first, second, third):\n    if condition_0:")
    for chunk in chunks[1:]:
        assert chunk.text.startswith("def long(first, second, third):\n    …\n    if ")


def test_small_neighbours_are_cited_together_and_not_by_the_first_of_them() -> None:
    text = "".join(f"def {name}(x):\n    return x\n\n\n" for name in ("first", "second", "third"))
    assert [chunk.symbol for chunk in _chunks("a.py", text)] == ["first, second, third"]
    in_a_class = "class Sums:\n" + "".join(f"    def {name}(self): return 1\n\n" for name in ("first", "second"))
    assert [chunk.symbol for chunk in _chunks("a.py", in_a_class)] == ["Sums"]


def test_a_function_with_a_small_one_inside_is_cited_by_its_own_name() -> None:
    body = "\n".join(f"    value_{i} = compute({i})" for i in range(6))
    text = f"def outer():\n{body}\n    def inner():\n        return 1\n{body}\n    return inner\n"
    assert [chunk.symbol for chunk in _chunks("a.py", text)] == ["outer"]
