"""``zoo-compute webhook``: webhooks for events of your jobs."""

from typing import Annotated, Any

import typer

from zoo_compute.cli.session import ApiUrl, open_client
from zoo_compute.terminal.output import JsonFlag, print_facts, print_records, print_result, print_rows, report_done

app = typer.Typer(name="webhook", help="Send the events of your jobs to a URL.", no_args_is_help=True)
WebhookId = Annotated[int, typer.Argument(help="Id from `webhook list`.")]


@app.command()
def create(
    url: Annotated[str, typer.Argument(help="Receiver: https, not a private address.")],
    event: Annotated[
        list[str] | None,
        typer.Option(
            help="Select events: status, round, step, unit, late, dispute, slash, checkpoint, validation, rollback or "
            "settlement; may be repeated. Default: status, checkpoint and settlement."
        ),
    ] = None,
    api_url: ApiUrl = None,
    as_json: JsonFlag = False,
) -> None:
    """Send the events of your jobs to a URL, signed by Standard Webhooks. Shows the secret once."""
    body = {"url": url} | ({"events": event} if event else {})
    with open_client(api_url) as client:
        print_result(client.connection.post("/v1/webhooks", body), _show, as_json=as_json)


@app.command("list")
def list_webhooks(api_url: ApiUrl = None, as_json: JsonFlag = False) -> None:
    """List your webhooks."""
    with open_client(api_url) as client:
        found = client.connection.get("/v1/webhooks")
    rows = ([row["id"], row["url"], " ".join(row["events"]), "on" if row["enabled"] else "off"] for row in found)
    print_rows(found, ("id", "url", "events", "state"), rows, as_json=as_json)


@app.command()
def turn(
    webhook: WebhookId,
    on: Annotated[bool, typer.Argument(help="Use true or false.")],
    api_url: ApiUrl = None,
    as_json: JsonFlag = False,
) -> None:
    """Turn a webhook on or off. Events during the time off are not sent."""
    with open_client(api_url) as client:
        client.connection.call("PATCH", f"/v1/webhooks/{webhook}", repeatable=True, json={"enabled": on})
    report_done(f"webhook {webhook} is {'on' if on else 'off'}", {"id": webhook, "enabled": on}, as_json=as_json)


@app.command()
def delete(webhook: WebhookId, api_url: ApiUrl = None, as_json: JsonFlag = False) -> None:
    """Delete a webhook and its undelivered events."""
    with open_client(api_url) as client:
        client.connection.call("DELETE", f"/v1/webhooks/{webhook}", repeatable=True)
    report_done(f"webhook {webhook} is deleted", {"id": webhook, "deleted": True}, as_json=as_json)


@app.command()
def rotate(
    webhook: WebhookId,
    overlap_hours: Annotated[int, typer.Option(help="Sign with the old secret too for so many hours.")] = 24,
    api_url: ApiUrl = None,
    as_json: JsonFlag = False,
) -> None:
    """Create a new secret, and show it once."""
    with open_client(api_url) as client:
        path = f"/v1/webhooks/{webhook}/rotate-secret"
        print_result(client.connection.post(path, {"overlap_hours": overlap_hours}), _show, as_json=as_json)


@app.command()
def deliveries(
    webhook: WebhookId,
    after: Annotated[int | None, typer.Option(help="Continue after this delivery's id.")] = None,
    api_url: ApiUrl = None,
    as_json: JsonFlag = False,
) -> None:
    """List deliveries and their results, newest first."""
    with open_client(api_url) as client:
        found = client.connection.get(f"/v1/webhooks/{webhook}/deliveries", {"after": after} if after else None)
    columns = ("id", "event_id", "status", "attempts", "response_status", "error", "created_at")
    print_result(found, lambda page: print_records(columns, page["items"]), as_json=as_json)


@app.command()
def replay(
    webhook: WebhookId,
    delivery: Annotated[int, typer.Argument(help="Id from `webhook deliveries`.")],
    api_url: ApiUrl = None,
    as_json: JsonFlag = False,
) -> None:
    """Send a delivery again."""
    with open_client(api_url) as client:
        client.connection.post(f"/v1/webhooks/{webhook}/deliveries/{delivery}/replay")
    report_done(f"delivery {delivery} is sent again", {"id": delivery, "replayed": True}, as_json=as_json)


def _show(found: dict[str, Any]) -> None:
    print_facts({name: found[name] for name in ("id", "url", "secret")} | {"events": " ".join(found["events"])})
