"""The application: routes, guard and errors put together."""

from __future__ import annotations

from fastapi import FastAPI

from ingest_worker.api import deliveries, description, documents, health, jobs, problems, reference, webhooks, webhooks_sources
from ingest_worker.api.answers import Services
from ingest_worker.api.guard import Guard
from ingest_worker.api.metrics import Metrics, Watched
from ingest_worker.jobs.wake import Wake
from shared.config import Settings
from shared.credentials import Credential, find_credential
from shared.database import Pool, reachable
from shared.loopback import is_loopback

_ABOUT = (
    "Push documents in and see what becomes of them. Once a push is answered with 2xx it is stored for good. Every error is a"
    " problem document (RFC 9457). With DOCWELL_API_TOKENS set, or on an address that others can reach, every route but /healthz"
    " and /readyz needs a bearer token."
)


def make_api(settings: Settings, pool: Pool, wake: Wake) -> FastAPI:
    """The ingest API over this pool; `wake` is called after each commit that leaves a job to do, and must not block."""
    app = FastAPI(
        title="Docwell",
        version="1",
        description=_ABOUT,
        docs_url=None,
        redoc_url=None,
        # FastAPI's own spans hold the paths of documents; `shared.tracing` tells of requests without them.
        telemetry={"auto_configure": False, "tracing": False, "metrics": False, "logs": False},
    )
    metrics = Metrics(pool, settings.home)
    app.state.services = Services(settings=settings, pool=pool, wake=wake, metrics=metrics)
    # Webhooks first: routes are tried in their order, and many senders at once wait for each other.
    routers = (webhooks.router, webhooks_sources.router, documents.router, jobs.router, deliveries.router, health.router)
    for router in routers:
        app.include_router(router)
    description.install(app)
    reference.install(app)
    problems.install(app, [route for router in routers for route in router.routes])

    def find(token: str) -> Credential | None:
        with reachable(), pool.connection() as connection:
            return find_credential(connection, token)

    app.add_middleware(
        Guard,
        tokens=[token.get_secret_value() for token in settings.api_tokens],
        find=find,
        required=bool(settings.api_tokens) or not is_loopback(settings.api_host),
    )
    app.add_middleware(Watched, metrics=metrics)  # the last that is added stands in front
    return app
