"""The worker's entry point (``celery -A worker.main worker -Q celery``)."""

from celery.signals import worker_init

from market.platform.observability.tracing import configure_tracing
from market.settings import Settings
from worker.app import create_app

app = create_app(Settings())  # type: ignore[call-arg]  # an entry point: the environment has them


@worker_init.connect
def trace_tasks(**_: object) -> None:
    """Configure traces before the first task, which builds the context."""
    configure_tracing("zoo-worker")


@worker_init.connect
def load_torch(**_: object) -> None:
    """Load torch, which takes seconds, before the first task."""
    import training_gym.evaluate.loss  # noqa: F401
