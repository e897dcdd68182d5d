"""Why a job waits, from the command line, against the real API."""

from api_support import Cli
from jobs_world import ZEN, World

from zoo_compute.errors import ExitCode


def test_why_tells_its_payer_what_removes_the_nodes_and_what_would_help(cli: Cli, world: World) -> None:
    world.node(region="us")
    for price in (1, 9):
        world.node(price=price * ZEN)
    job_id = world.job(nodes=2, max_price=3 * ZEN, requirements={"regions": ["eu"]})
    assert "job-not-found" in cli("job", "why", job_id, code=ExitCode.REFUSED)  # it is somebody else's
    cli.be(bytes(world.wallets[world.read(job_id).payer].key))
    found = cli.json("job", "why", job_id)
    assert (found["job_id"], found["nodes_total"], found["nodes"]) == (job_id, 3, 2)
    assert "asks_above_limit" in [finding["code"] for finding in found["findings"]]
    removed = {step["code"]: (step["removes"], step["left"]) for step in found["constraints"]}
    assert removed["region"] == (1, 2)
    assert [change["field"] for change in found["changes"]] == ["requirements.regions", "nodes"]

    shown = cli("job", "why", job_id)
    for finding in found["findings"]:
        assert f"{finding['sentence']}  [{finding['code']}]" in shown
    assert "Of 3 nodes of the tier; 2 are wanted:" in shown
    assert "Its limit is 3 ZEN per GPU-hour:" in shown
    assert "bronze.eu" in shown
    for change in found["changes"]:
        assert f"{change['field']}: {change['sentence']}" in shown
