"""Webhooks over REST."""

from datetime import datetime, timedelta
from typing import Annotated, Any, Literal, get_args

from fastapi import APIRouter, Path, Query, Request
from pydantic import BaseModel, Field

from market.accounts.deps import CurrentAccount
from market.accounts.idempotency import IDEMPOTENT_ROUTE, IdempotentRoute
from market.platform.db.rows import from_row
from market.platform.http.deps import Reads, ServicesDep, Uow
from market.platform.http.refusals import refusals
from market.platform.http.types import RequestModel, RowId
from market.webhooks import service
from market.webhooks.errors import (
    DeliveryNotFound,
    TooManyWebhooks,
    WebhookAddressRefused,
    WebhookChecksBusy,
    WebhookNotFound,
)
from market.webhooks.models import WebhookDelivery, WebhookEndpoint

router = APIRouter(prefix="/v1/webhooks", tags=["webhooks"], route_class=IdempotentRoute)
WebhookId = Annotated[RowId, Path(description="The webhook's id.")]
DeliveryId = Annotated[RowId, Path(description="The delivery's id.")]
EventKind = Literal[
    "status",
    "round",
    "step",
    "unit",
    "late",
    "slash",
    "dispute",
    "checkpoint",
    "validation",
    "rollback",
    "settlement",
]
Url = Annotated[str, Field(min_length=1, max_length=2048, examples=["https://hooks.example.com/zoo"])]
Kinds = Annotated[
    list[EventKind],
    Field(min_length=1, max_length=len(get_args(EventKind)), description="Which events of your jobs to send."),
]
DEFAULT_KINDS: list[EventKind] = ["status", "checkpoint", "settlement"]


class WebhookRequest(RequestModel):
    url: Url
    events: Kinds = Field(default_factory=lambda: list(DEFAULT_KINDS))


class WebhookPatch(RequestModel):
    """Omitted fields keep their values."""

    url: Url | None = None
    events: Kinds | None = None
    enabled: bool | None = None


class RotateSecretRequest(RequestModel):
    overlap_hours: Annotated[
        int, Field(ge=0, le=168, description="Hours during which messages are also signed with the old secret.")
    ] = 24


class WebhookView(BaseModel):
    id: int
    url: str
    events: list[EventKind]
    enabled: Annotated[bool, Field(description="The market disables it after an answer 410 (gone).")]
    created_at: datetime


class NewWebhookView(WebhookView):
    secret: Annotated[
        str | None,
        Field(
            description="`whsec_` and the key in base64, to check signatures. Shown once: null in a repeated answer "
            "for the same Idempotency-Key. Rotate the secret in that case."
        ),
    ]


class DeliveryView(BaseModel):
    id: int
    message_id: Annotated[str, Field(description="The header `webhook-id`: the same in every attempt.")]
    event_id: int
    status: Literal["pending", "delivered", "failed"]
    attempts: int
    next_attempt_at: datetime | None
    response_status: int | None
    error: str | None
    payload: dict[str, Any]
    created_at: datetime
    delivered_at: datetime | None


class DeliveryPage(BaseModel):
    items: list[DeliveryView]
    next_after: int | None


@router.post(
    "",
    status_code=201,
    responses=refusals(WebhookAddressRefused, WebhookChecksBusy, TooManyWebhooks),
    dependencies=[IDEMPOTENT_ROUTE],
)
def create_webhook(
    body: WebhookRequest, account: CurrentAccount, services: ServicesDep, session: Uow, request: Request
) -> NewWebhookView:
    """Send the events of your jobs to a URL, signed per Standard Webhooks."""
    settings = services.settings
    private, limit = settings.webhooks_to_private_addresses, settings.webhooks_per_account
    row = service.create(session, account.address, body.url, body.events, private=private, limit=limit)
    return _with_secret(request, row)


@router.get("")
def list_webhooks(account: CurrentAccount, session: Reads) -> list[WebhookView]:
    """Your webhooks, oldest first."""
    return [_view(row) for row in service.of_owner(session, account.address)]


@router.get("/{webhook_id}", responses=refusals(WebhookNotFound))
def get_webhook(webhook_id: WebhookId, account: CurrentAccount, session: Reads) -> WebhookView:
    """One webhook."""
    return _view(service.get(session, account.address, webhook_id))


@router.patch("/{webhook_id}", responses=refusals(WebhookNotFound, WebhookAddressRefused, WebhookChecksBusy))
def change_webhook(
    webhook_id: WebhookId, body: WebhookPatch, account: CurrentAccount, services: ServicesDep, session: Uow
) -> WebhookView:
    """Change, disable or enable a webhook. Events while it is disabled are not sent."""
    row = service.get(session, account.address, webhook_id)
    private = services.settings.webhooks_to_private_addresses
    service.change(session, row, url=body.url, kinds=body.events, enabled=body.enabled, private=private)
    return _view(row)


@router.delete("/{webhook_id}", status_code=204, responses=refusals(WebhookNotFound))
def delete_webhook(webhook_id: WebhookId, account: CurrentAccount, session: Uow) -> None:
    """Delete a webhook. Its pending deliveries are never sent."""
    service.delete(service.get(session, account.address, webhook_id))


@router.post("/{webhook_id}/rotate-secret", responses=refusals(WebhookNotFound), dependencies=[IDEMPOTENT_ROUTE])
def rotate_webhook_secret(
    webhook_id: WebhookId, body: RotateSecretRequest, account: CurrentAccount, session: Uow, request: Request
) -> NewWebhookView:
    """Replace the secret. During the overlap each message carries both signatures."""
    row = service.get(session, account.address, webhook_id)
    service.rotate_secret(row, timedelta(hours=body.overlap_hours))
    return _with_secret(request, row)


@router.get("/{webhook_id}/deliveries", responses=refusals(WebhookNotFound))
def list_deliveries(
    webhook_id: WebhookId,
    account: CurrentAccount,
    session: Reads,
    after: Annotated[RowId | None, Query(description="Id of the last delivery seen.")] = None,
    limit: Annotated[int, Query(ge=1, le=100, description="Maximum number.")] = 20,
) -> DeliveryPage:
    """Deliveries with their results, newest first."""
    service.get(session, account.address, webhook_id)
    rows = service.deliveries(session, webhook_id, after, limit)
    return DeliveryPage(
        items=[_delivery_view(row) for row in rows], next_after=rows[-1].id if len(rows) == limit else None
    )


@router.post(
    "/{webhook_id}/deliveries/{delivery_id}/replay",
    responses=refusals(WebhookNotFound, DeliveryNotFound),
    dependencies=[IDEMPOTENT_ROUTE],
)
def replay_delivery(
    webhook_id: WebhookId, delivery_id: DeliveryId, account: CurrentAccount, session: Uow
) -> DeliveryView:
    """Send a delivery again, with the same id and all attempts."""
    service.get(session, account.address, webhook_id)
    return _delivery_view(service.replay(session, webhook_id, delivery_id))


def _view(row: WebhookEndpoint) -> WebhookView:
    return from_row(WebhookView, row, events=row.kinds)


def _with_secret(request: Request, row: WebhookEndpoint) -> NewWebhookView:
    request.state.secret_fields = ("secret",)
    return from_row(NewWebhookView, row, events=row.kinds)


def _delivery_view(row: WebhookDelivery) -> DeliveryView:
    return from_row(DeliveryView, row, next_attempt_at=row.next_attempt_at if row.status == "pending" else None)
