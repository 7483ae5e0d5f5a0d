"""The embedder process: one model in memory for all workers and query servers, over HTTP on a Unix socket or a port.

It answers `/healthz` at once and loads the model in the background; until then `/embed` says 503 with Retry-After. Queries and
passages have a thread each, and the model lets a query in between two batches of passages.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import orjson
import structlog
import uvicorn
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from shared.config import Settings
from shared.embedding.open import open_local
from shared.embedding.protocol import Embedder, Role, Vectors
from shared.embedding.wire import (
    DIMENSION_HEADER,
    EMBED_PATH,
    FINGERPRINT_HEADER,
    FINGERPRINT_PATH,
    MAX_BYTES,
    MAX_TEXTS,
    VECTORS_TYPE,
    dump_fingerprint,
    dump_vectors,
    socket_path,
)
from shared.errors import ConfigurationError, DocwellError, PermanentError, TransientError

# Texts that may wait for one role. A client sends 32 at a time and waits for them, so this is 64 busy clients.
_MAX_WAITING = 2048
_WARMING_RETRY_SECONDS = 1
_BUSY_RETRY_SECONDS = 5
_DISCONNECT_CHECK_SECONDS = 1.0
# Requests for passages take turns batch by batch: a note of one passage does not wait for the whole book of another worker.
_THREADS = {Role.QUERY: 1, Role.PASSAGE: 4}


class _Refusal(Exception):
    def __init__(self, *, status: int, code: str, message: str, retry_after: int | None = None) -> None:
        super().__init__(message)
        headers = {"retry-after": str(retry_after)} if retry_after is not None else None
        self.response = JSONResponse({"code": code, "message": message}, status, headers)


class EmbedderService:
    """The ASGI application and the model behind it.

    `load` opens the model; it runs in a thread when the application starts. When it fails, `failure` holds the reason and
    `on_failure` is called, from that thread.
    """

    def __init__(self, load: Callable[[], Embedder], *, on_failure: Callable[[], None] = lambda: None) -> None:
        self._load = load
        self._on_failure = on_failure
        self._embedder: Embedder | None = None
        self.failure: DocwellError | None = None
        self._threads: dict[Role, ThreadPoolExecutor] = {}
        self._waiting = dict.fromkeys(Role, 0)
        self.app = Starlette(
            routes=[
                Route("/healthz", self._healthz),
                Route("/readyz", self._readyz),
                Route(FINGERPRINT_PATH, self._fingerprint),
                Route(EMBED_PATH, self._embed, methods=["POST"]),
            ],
            lifespan=self._lifespan,
            exception_handlers={_Refusal: _refuse},
        )

    @contextlib.asynccontextmanager
    async def _lifespan(self, _app: Starlette) -> AsyncIterator[None]:
        self._threads = {role: ThreadPoolExecutor(_THREADS[role], thread_name_prefix=f"embed-{role}") for role in Role}
        loader = threading.Thread(target=self._open, name="load-model", daemon=True)
        loader.start()
        try:
            yield
        finally:
            for threads in self._threads.values():
                threads.shutdown(wait=False, cancel_futures=True)

    def _open(self) -> None:
        log = structlog.get_logger(__name__)
        try:
            embedder = self._load()
            model = embedder.fingerprint
        except DocwellError as error:
            self.failure = error
        except Exception as error:
            log.exception("model_not_loaded")
            self.failure = PermanentError(f"The embedding model cannot be loaded: {error!r}.", code="model_invalid")
        else:
            self._embedder = embedder
            log.info("model_loaded", model=model.model, dimension=model.dimension, fingerprint=model.key)
            return
        self._on_failure()

    def _model(self) -> Embedder:
        if self.failure is not None:
            raise _Refusal(status=500, code=self.failure.code, message=str(self.failure))
        if self._embedder is None:
            raise _Refusal(
                status=503,
                code="embedder_warming",
                message="The embedding model is being loaded; it takes a few seconds.",
                retry_after=_WARMING_RETRY_SECONDS,
            )
        return self._embedder

    async def _healthz(self, _request: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def _readyz(self, _request: Request) -> Response:
        fingerprint = self._model().fingerprint
        return JSONResponse({"status": "ready", "model": fingerprint.model, "fingerprint": fingerprint.key})

    async def _fingerprint(self, _request: Request) -> Response:
        return Response(dump_fingerprint(self._model().fingerprint), media_type="application/json")

    async def _embed(self, request: Request) -> Response:
        embedder = self._model()
        texts, role = _parse(await _body(request))
        if self._waiting[role] + len(texts) > _MAX_WAITING:
            raise _Refusal(
                status=503,
                code="embedder_busy",
                message=f"{self._waiting[role]} texts are waiting already.",
                retry_after=_BUSY_RETRY_SECONDS,
            )
        self._waiting[role] += len(texts)
        work = self._threads[role].submit(embedder.embed, texts, role)
        try:
            vectors = await _result(work, request)
        except TransientError as error:
            raise _Refusal(status=503, code=error.code, message=str(error), retry_after=_BUSY_RETRY_SECONDS) from error
        except PermanentError as error:
            raise _Refusal(status=422, code=error.code, message=str(error)) from error
        finally:
            self._waiting[role] -= len(texts)
        headers = {
            FINGERPRINT_HEADER: embedder.fingerprint.key,
            DIMENSION_HEADER: str(embedder.fingerprint.dimension),
        }
        return Response(dump_vectors(vectors), media_type=VECTORS_TYPE, headers=headers)


async def _result(work: Future[Vectors], request: Request) -> Vectors:
    """What the work gives; work that has not begun is dropped when its client went away."""
    result = asyncio.wrap_future(work)
    while True:
        await asyncio.wait({result}, timeout=_DISCONNECT_CHECK_SECONDS)
        if result.done():
            return result.result()
        if await request.is_disconnected() and result.cancel():
            raise ClientDisconnect


async def _body(request: Request) -> bytes:
    parts = bytearray()
    async for part in request.stream():
        parts += part
        if len(parts) > MAX_BYTES:
            raise _Refusal(status=413, code="request_too_large", message=f"A request has at most {MAX_BYTES} bytes.")
    return bytes(parts)


def _parse(body: bytes) -> tuple[list[str], Role]:
    try:
        request = orjson.loads(body)
        texts, role = request["texts"], Role(request["role"])
    except (ValueError, TypeError, KeyError) as error:
        message = 'Expected {"texts": ["…"], "role": "query" or "passage"}.'
        raise _Refusal(status=400, code="request_invalid", message=message) from error
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise _Refusal(status=400, code="request_invalid", message="`texts` must be a list of strings.")
    if len(texts) > MAX_TEXTS:
        raise _Refusal(status=413, code="request_too_large", message=f"A request has at most {MAX_TEXTS} texts.")
    return texts, role


async def _refuse(_request: Request, refusal: Exception) -> Response:
    assert isinstance(refusal, _Refusal)  # noqa: S101 - Starlette calls it for nothing else
    return refusal.response


def serve(settings: Settings) -> None:
    """Run the embedder until a signal stops it: on the socket that `embedder_url` names, else on the host and port.

    Raises:
        DocwellError: the model cannot be loaded, or the socket or port cannot be had.
    """
    path = socket_path(settings.embedder_url) if settings.embedder_url else None
    listener = _listen_on_path(Path(path)) if path else _listen_on_port(settings.embedder_host, settings.embedder_port)
    service = EmbedderService(lambda: open_local(settings), on_failure=lambda: server.stop())
    config = uvicorn.Config(
        service.app, log_config=None, access_log=False, lifespan="on", timeout_graceful_shutdown=5, timeout_keep_alive=60
    )
    server = _Server(config)
    try:
        server.run(sockets=[listener])
    finally:
        listener.close()
        if path:
            Path(path).unlink(missing_ok=True)
    if service.failure is not None:
        raise service.failure


class _Server(uvicorn.Server):
    """uvicorn raises the signal that stopped it once more, which would kill the process before it removes its socket."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def stop(self) -> None:
        self.should_exit = True


def _listen_on_path(path: Path) -> socket.socket:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        if probe.connect_ex(str(path)) == 0:
            raise ConfigurationError(
                f"Another embedder listens on {path}: stop it first, or set DOCWELL_EMBEDDER_URL.", code="embedder_address"
            )
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        path.unlink(missing_ok=True)
        listener.bind(str(path))
        path.chmod(0o600)
        listener.listen(128)
    except OSError as error:
        listener.close()
        raise ConfigurationError(f"The socket {path} cannot be made: {error}.", code="embedder_address") from error
    return listener


def _listen_on_port(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=128)
    except OSError as error:
        raise ConfigurationError(
            f"The embedder cannot listen on {host}:{port}: {error}. Set DOCWELL_EMBEDDER_HOST and DOCWELL_EMBEDDER_PORT.",
            code="embedder_address",
        ) from error
