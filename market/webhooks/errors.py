"""Refusals of webhooks."""

from market.platform.http.problem import MarketError


class WebhookNotFound(MarketError):
    status = 404
    code = "webhook-not-found"
    title = "You have no such webhook"
    default_remedy = "List yours with GET /v1/webhooks."


class DeliveryNotFound(MarketError):
    status = 404
    code = "delivery-not-found"
    title = "The webhook has no such delivery"
    default_remedy = "List its deliveries with GET /v1/webhooks/{id}/deliveries."


class WebhookAddressRefused(MarketError):
    status = 422
    code = "webhook-address-refused"
    title = "Webhooks do not go to this address"
    default_remedy = "Give an https URL whose host has public addresses only."


class TooManyWebhooks(MarketError):
    status = 409
    code = "too-many-webhooks"
    title = "The account has as many webhooks as it may have"
    default_remedy = "Delete one (DELETE /v1/webhooks/{id}) and try again."
