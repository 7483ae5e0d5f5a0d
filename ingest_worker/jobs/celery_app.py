"""The Celery application: it wakes and runs workers, and keeps no books of its own."""

from __future__ import annotations

from celery import Celery

from shared.config import Settings
from shared.errors import ConfigurationError

QUEUE = "docwell"
WORK = "docwell.work"


def make_app(settings: Settings) -> Celery:
    """An application on the broker of `settings`. No result backend, no ETA, no retries: the job table has all that."""
    if settings.redis_url is None:
        raise ConfigurationError("No broker is set. Set DOCWELL_REDIS_URL, or start everything with `docwell up`.")
    app = Celery("docwell", broker=broker_url(settings.redis_url.get_secret_value()), set_as_current=False)
    app.conf.update(
        task_ignore_result=True,
        task_acks_late=False,
        task_default_queue=QUEUE,
        task_routes={WORK: {"queue": QUEUE}},
        worker_prefetch_multiplier=1,
        worker_hijack_root_logger=False,
        worker_redirect_stdouts=False,
        worker_send_task_events=False,
        worker_enable_remote_control=False,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        broker_transport_options={
            "socket_connect_timeout": 2,
            "socket_timeout": 30,
            "socket_keepalive": True,
            "retry_on_timeout": True,
        },
        accept_content=["json"],
        task_serializer="json",
    )
    return app


def broker_url(url: str) -> str:
    """Celery's spelling of a Redis URL: redis-py says `unix:///path?db=0`, kombu `redis+socket:///path?virtual_host=0`."""
    if url.startswith("unix://"):
        path, _, query = url.removeprefix("unix://").partition("?")
        database = dict(part.split("=", 1) for part in query.split("&") if "=" in part).get("db", "0")
        return f"redis+socket://{path}?virtual_host={database}"
    return url
