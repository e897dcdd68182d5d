"""Entry point of the webhooks' workers (``celery -A worker.webhooks worker -Q webhooks``).

They connect to untrusted peers, so they hold no key and run no other task.
"""

from celery.signals import worker_init

from market.platform.observability.logs import configure_logs
from market.platform.observability.tracing import configure_tracing
from market.settings import Settings
from worker.app import create_app

settings = Settings()  # type: ignore[call-arg]  # an entry point: the environment has them
app = create_app(settings, tasks=("worker.tasks.webhooks",))


@worker_init.connect
def configure(**_: object) -> None:
    """Configure logs and traces before the first task."""
    configure_logs(settings.log_level, as_json=settings.log_json, processors=configure_tracing("zoo-webhooks"))
