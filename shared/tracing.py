"""Traces over OpenTelemetry: a few functions that do nothing, and import nothing, until an endpoint is set.

What turns them on is what the OpenTelemetry specification says: `OTEL_EXPORTER_OTLP_ENDPOINT`, or for traces alone
`OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`; `OTEL_SDK_DISABLED=true` and `OTEL_TRACES_EXPORTER=none` turn them off again. The SDK
reads the others by itself: `OTEL_SERVICE_NAME`, `OTEL_RESOURCE_ATTRIBUTES`, `OTEL_TRACES_SAMPLER`, `OTEL_EXPORTER_OTLP_HEADERS`.

Attributes are names and numbers of ours. No text of a document or a query, and no path, ever goes into one.
"""

from __future__ import annotations

import atexit
import importlib.metadata
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import structlog

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

Attributes: TypeAlias = Mapping[str, str | int | float | bool]

ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")

_LONGEST_GOODBYE_MS = 2_000
"""How long an ending process waits for a collector to take its last spans."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A part of a piece of work that is over; times are those of `time.perf_counter`."""

    name: str
    began: float
    ended: float

    @property
    def seconds(self) -> float:
        """How long it took."""
        return self.ended - self.began


class _Tracing:
    """The SDK, set up once for this process."""

    def __init__(self, service: str) -> None:
        # Half a second of imports, which only those pay who want traces.
        from opentelemetry import trace
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        version = importlib.metadata.version("docwell")
        named = {} if os.environ.get("OTEL_SERVICE_NAME") else {"service.name": f"docwell-{service}"}
        resource = Resource.create({**named, "service.version": version})
        self.provider: TracerProvider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._processor = BatchSpanProcessor(OTLPSpanExporter())
        self.provider.add_span_processor(self._processor)
        # The MCP SDK makes the spans of calls by the provider in force.
        trace.set_tracer_provider(self.provider)
        self.tracer = self.provider.get_tracer("docwell", version)

    def close(self) -> None:
        self._processor._batch_processor.shutdown(_LONGEST_GOODBYE_MS)  # noqa: SLF001 - the public one waits for half a minute


_tracing: _Tracing | None = None


def wants_traces(environment: Mapping[str, str]) -> bool:
    """Whether these variables ask for traces over OTLP."""
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    exporters = environment.get("OTEL_TRACES_EXPORTER", "").strip() or "otlp"
    return "otlp" in exporters.split(",") and any(environment.get(name, "").strip() for name in ENDPOINTS)


def configure_tracing(service: str) -> None:
    """Send spans of this process from now on, if the environment asks for it. `service` is told as `service.name`.

    What cannot be sent is said once in the log, and keeps nothing from its work. Call it after a fork, not before.
    """
    global _tracing
    if _tracing is not None or not wants_traces(os.environ):
        return
    protocol = next((found for name in PROTOCOLS if (found := os.environ.get(name, "").strip())), "http/protobuf")
    if protocol != "http/protobuf":
        log.warning("traces_off", protocol=protocol, cure="Docwell sends OTLP as http/protobuf, mostly on port 4318.")
        return
    try:
        _tracing = _Tracing(service)
    except ImportError as error:
        log.warning("traces_off", error=str(error), cure="Install `docwell[telemetry]`.")
        return
    atexit.register(close_tracing)


def close_tracing() -> None:
    """Send what is left, for two seconds at most, and send nothing any more."""
    global _tracing
    closing, _tracing = _tracing, None
    if closing is not None:
        closing.close()


def is_tracing() -> bool:
    """Whether spans are sent."""
    return _tracing is not None


def continued(headers: Mapping[str, str]) -> AbstractContextManager[None]:
    """Within it spans belong to the trace of a request with these headers (W3C Trace Context: `traceparent`, `tracestate`)."""
    return nullcontext() if _tracing is None or "traceparent" not in headers else _continue(headers)


@contextmanager
def _continue(headers: Mapping[str, str]) -> Iterator[None]:
    from opentelemetry import context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    names = ("traceparent", "tracestate")
    carrier = {name: headers[name] for name in names if name in headers}
    token = context.attach(TraceContextTextMapPropagator().extract(carrier))
    try:
        yield
    finally:
        context.detach(token)


def annotate(attributes: Attributes) -> None:
    """Say more of the span that is under way."""
    if _tracing is not None:
        from opentelemetry import trace

        trace.get_current_span().set_attributes(dict(attributes))


def emit_stages(stages: Iterable[Stage]) -> None:
    """Spans for what is over, below the span that is under way."""
    _emit_stages(stages, _epoch())


def _emit_stages(stages: Iterable[Stage], now: _epoch) -> None:
    if _tracing is not None:
        for stage in stages:
            _tracing.tracer.start_span(stage.name, start_time=now(stage.began)).end(now(stage.ended))


def emit(
    name: str,
    *,
    began: float,
    ended: float,
    stages: Sequence[Stage] = (),
    attributes: Attributes | None = None,
    error: str | None = None,
    kind: Literal["server", "consumer"] = "server",
) -> None:
    """A span for work that is over, with one below it for each stage; `error` is the code of what made it fail.

    It belongs to the trace that is under way, or begins one. Times are those of `time.perf_counter`.
    """
    if _tracing is None:
        return
    from opentelemetry import trace

    now = _epoch()
    kinds = {"server": trace.SpanKind.SERVER, "consumer": trace.SpanKind.CONSUMER}
    given: dict[str, Any] = dict(attributes or {})
    if error is not None:
        given["error.type"] = error
    span = _tracing.tracer.start_span(name, kind=kinds[kind], attributes=given, start_time=now(began))
    if error is not None:
        span.set_status(trace.StatusCode.ERROR)
    with trace.use_span(span):
        _emit_stages(stages, now)
    span.end(now(ended))


class _epoch:  # noqa: N801 - called like a function
    """Nanoseconds since 1970 of a time of `time.perf_counter`."""

    def __init__(self) -> None:
        self._offset = time.time_ns() - int(time.perf_counter() * 1e9)

    def __call__(self, moment: float) -> int:
        return self._offset + int(moment * 1e9)
