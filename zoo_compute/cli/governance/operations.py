"""Operations of the timelock on the command line: list, execute, cancel."""

from collections.abc import Iterable, Mapping
from typing import Any

from zoo_compute.cli.governance.flow import ExportTo, NoWait, OperationId, Sender, governance_chain, perform
from zoo_compute.cli.session import ApiUrl, open_client
from zoo_compute.terminal.output import JsonOfSent, Yes, print_table


def print_operations(operations: Iterable[Mapping[str, Any]]) -> None:
    """Print operations with their status, time and words."""
    rows = [[one["id"], one["status"], one["ready_at"], " ".join(one["words"])] for one in operations]
    if rows:
        print_table(("operation", "status", "executable from", "effect"), rows)


def execute(
    operation_id: OperationId,
    sender: Sender = None,
    export: ExportTo = None,
    yes: Yes = False,
    no_wait: NoWait = False,
    api_url: ApiUrl = None,
    as_json: JsonOfSent = False,
) -> None:
    """Execute a due operation of the timelock."""
    from zoo_protocol.acts import calls

    with open_client(api_url) as client:
        chain = governance_chain(client)
        prepared = calls.execute(chain.operation(operation_id), chain.contracts)
        perform(client, chain, prepared, sender=sender, export=export, yes=yes, no_wait=no_wait, as_json=as_json)


def cancel(
    operation_id: OperationId,
    sender: Sender = None,
    export: ExportTo = None,
    yes: Yes = False,
    no_wait: NoWait = False,
    api_url: ApiUrl = None,
    as_json: JsonOfSent = False,
) -> None:
    """Cancel a pending operation of the timelock."""
    from zoo_protocol.acts import calls

    with open_client(api_url) as client:
        chain = governance_chain(client)
        prepared = calls.cancel(chain.operation(operation_id), chain.contracts)
        perform(client, chain, prepared, sender=sender, export=export, yes=yes, no_wait=no_wait, as_json=as_json)
