"""``zoo-compute devnet``: a development stack on this machine."""

import signal
import threading
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from zoo_compute.devnet.state import DEFAULT_DIRECTORY, Options, StateDirectory
from zoo_compute.terminal.output import JsonFlag, print_facts, print_note, print_result, report_done

app = typer.Typer(
    name="devnet", help="Run a whole market on this machine: engines, contracts, nodes.", no_args_is_help=True
)
Attack = Literal[
    "fabricate", "skip-step", "half-batch", "bf16", "edited-data", "stale", "lazy", "copy", "withhold", "refuse"
]
Directory = Annotated[Path, typer.Option("--directory", help="Keep the devnet's state here.")]


@app.command()
def up(
    directory: Directory = DEFAULT_DIRECTORY,
    providers: Annotated[int | None, typer.Option(min=1, max=50, help="Start so many providers; default: 5.")] = None,
    verifiers: Annotated[int | None, typer.Option(min=1, max=20, help="Start so many verifiers; default: 3.")] = None,
    cheat: Annotated[bool, typer.Option("--cheat", help="Make the first provider dishonest.")] = False,
    cheat_kind: Annotated[
        Attack | None, typer.Option("--cheat-kind", help="Choose its attack; implies --cheat; default: fabricate.")
    ] = None,
    slow_link: Annotated[
        float | None,
        typer.Option("--slow-link", min=0.1, help="Limit provider-2's link, in Mbit/s; default: no limit."),
    ] = None,
    detach: Annotated[bool, typer.Option("--detach", help="Return once every part is healthy.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Start or recover the stack. Without --detach it runs until Ctrl-C."""
    from zoo_compute.devnet import control

    state = StateDirectory(directory)
    given: dict[str, Any] = {
        "providers": providers,
        "verifiers": verifiers,
        "cheat": cheat or cheat_kind is not None or None,
        "cheat_kind": cheat_kind,
        "slow_link_mbps": slow_link,
    }
    chosen = {name: value for name, value in given.items() if value is not None}
    print_note(f"starting the stack in {state.root} ...")
    try:
        info = control.up(state, Options(**chosen) if chosen else None)
    except KeyboardInterrupt:
        print_note("interrupted; stopping what was started ...")
        control.down(state)
        raise
    print_result(info, _show, as_json=as_json)
    if detach:
        return
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: stop.set())
    print_note("running; Ctrl-C stops it")
    stop.wait()
    control.down(state)
    print_note("stopped")


@app.command()
def info(directory: Directory = DEFAULT_DIRECTORY, as_json: JsonFlag = False) -> None:
    """Show addresses, contracts, development keys and processes of the running stack."""
    from zoo_compute.devnet import control

    print_result(control.info(StateDirectory(directory)), _show, as_json=as_json)


@app.command()
def down(directory: Directory = DEFAULT_DIRECTORY, as_json: JsonFlag = False) -> None:
    """Stop the stack and keep its data."""
    from zoo_compute.devnet import control

    stopped = control.down(StateDirectory(directory))
    report_done("stopped" if stopped else "nothing was running", {"stopped": stopped}, as_json=as_json)


@app.command()
def reset(directory: Directory = DEFAULT_DIRECTORY, as_json: JsonFlag = False) -> None:
    """Remove a stopped stack with all its data."""
    from zoo_compute.devnet import control

    control.reset(StateDirectory(directory))
    report_done(f"{directory} is removed", {"directory": str(directory), "removed": True}, as_json=as_json)


def _show(info: dict[str, Any]) -> None:
    names = ("api_url", "rpc_url", "ipfs_url", "chain_id", "database_url", "redis_url", "state_directory")
    facts: dict[str, object] = {name: info[name] for name in names}
    facts |= {f"contract {name}": address for name, address in info["contracts"].items()}
    facts |= {name: info["accounts"][name]["address"] for name in ("user", "admin")}
    facts |= {"API documentation": f"{info['api_url']}/docs"}
    print_facts(facts)
