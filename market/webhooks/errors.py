"""Refusals of webhooks."""

from market.platform.http.problem import Conflict, MarketError, MissingResource, UnprocessableRequest


class WebhookNotFound(MissingResource):
    code = "webhook-not-found"
    title = "The webhook does not exist"
    default_remedy = "List yours with `zoo-compute webhook list` (GET /v1/webhooks)."


class DeliveryNotFound(MissingResource):
    code = "delivery-not-found"
    title = "The delivery does not exist"
    default_remedy = "List its deliveries with `zoo-compute webhook deliveries` (GET /v1/webhooks/{id}/deliveries)."


class WebhookAddressRefused(UnprocessableRequest):
    code = "webhook-address-refused"
    title = "Webhooks are not sent to this address"
    default_remedy = "Give an https URL whose host has public addresses only."


class WebhookChecksBusy(MarketError):
    status = 503
    code = "webhook-checks-busy"
    title = "Too many webhooks are being checked at once"
    default_remedy = "Nothing was changed. Repeat the request in a few seconds."


class TooManyWebhooks(Conflict):
    code = "too-many-webhooks"
    title = "The account has the maximum number of webhooks"
    default_remedy = "Delete one (`zoo-compute webhook delete`, DELETE /v1/webhooks/{id}) and try again."
