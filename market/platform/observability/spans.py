"""Traces of SQL statements, Celery tasks, and calls to chain and storage.

Imported only if traces are sent. Spans omit statement parameters, task arguments and URL paths,
which may contain secrets.
"""

from functools import cache
from typing import Any
from urllib.parse import urlsplit

import requests
from celery import Task
from celery.signals import before_task_publish, task_failure, task_postrun, task_prerun
from opentelemetry import propagate, trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.instrumentation.requests import RequestsInstrumentor
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, use_span
from sqlalchemy import Connection, Engine, ExceptionContext, event
from structlog.typing import EventDict, WrappedLogger

_tracer = trace.get_tracer("zoo")
_SPAN = "zoo.span"


@cache
def install(service: str) -> None:
    """Send this process's spans to the environment's endpoint, with its sampling."""
    resource = Resource.create({"service.name": service}).merge(OTELResourceDetector().detect())
    provider = TracerProvider(resource=resource)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    event.listen(Engine, "before_cursor_execute", _begin_statement)
    event.listen(Engine, "after_cursor_execute", _end_statement)
    event.listen(Engine, "handle_error", _fail_statement)
    before_task_publish.connect(_hand_over)
    task_prerun.connect(_begin_task)
    task_failure.connect(_fail_task)
    task_postrun.connect(_end_task)
    RequestsInstrumentor().instrument(request_hook=_hide_path)


def add_trace_ids(_: WrappedLogger, __: str, line: EventDict) -> EventDict:
    """Add the ids of the current trace to a log line; a structlog processor."""
    context = trace.get_current_span().get_span_context()
    if context.is_valid:
        line["trace_id"], line["span_id"] = f"{context.trace_id:032x}", f"{context.span_id:016x}"
    return line


def _begin_statement(connection: Connection, _cursor: Any, statement: str, *_: Any) -> None:
    if trace.get_current_span().is_recording():
        attributes = {"db.system.name": "postgresql", "db.query.text": statement}
        name = statement.split(maxsplit=1)[0].upper()
        connection.info[_SPAN] = _tracer.start_span(name, kind=SpanKind.CLIENT, attributes=attributes)


def _end_statement(connection: Connection, *_: Any) -> None:
    span: Span | None = connection.info.pop(_SPAN, None)
    if span is not None:
        span.end()


def _fail_statement(context: ExceptionContext) -> None:
    span: Span | None = context.connection.info.pop(_SPAN, None) if context.connection is not None else None
    if span is not None:
        span.set_status(Status(StatusCode.ERROR, type(context.original_exception).__name__))
        span.end()


def _hand_over(headers: dict[str, Any], **_: Any) -> None:
    propagate.inject(headers)


def _begin_task(task: Task, **_: Any) -> None:
    carrier = {name: getattr(task.request, name, None) for name in propagate.get_global_textmap().fields}
    sender = propagate.extract({name: value for name, value in carrier.items() if isinstance(value, str)})
    span = _tracer.start_span(task.name, context=sender, kind=SpanKind.CONSUMER)
    task.request.zoo_span = use_span(span, end_on_exit=True)
    task.request.zoo_span.__enter__()


def _fail_task(exception: BaseException, **_: Any) -> None:
    span = trace.get_current_span()
    span.record_exception(exception)
    span.set_status(Status(StatusCode.ERROR, type(exception).__name__))


def _end_task(task: Task, **_: Any) -> None:
    span = getattr(task.request, "zoo_span", None)  # a task that began before the installation has none
    if span is not None:
        span.__exit__(None, None, None)


def _hide_path(span: Span, request: requests.PreparedRequest) -> None:
    """Remove the path: the URL of a chain endpoint often contains its API key."""
    parts = urlsplit(request.url or "")
    shown = f"{parts.scheme}://{parts.hostname}"
    for name in ("http.url", "url.full"):
        span.set_attribute(name, shown)
