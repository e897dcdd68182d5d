"""``zoo-compute model``: upload models to start from, show and fetch them."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer

from zoo_compute.cli.session import ApiUrl, open_client
from zoo_compute.terminal.output import JsonFlag, print_result

if TYPE_CHECKING:
    from training_gym.model.folder import ModelManifest

app = typer.Typer(name="model", help="Upload models to start from, show and fetch them.", no_args_is_help=True)
Cid = Annotated[str, typer.Argument(help="CID of the model's manifest.", metavar="CID")]


@app.command()
def push(
    model: Annotated[str, typer.Argument(help="Read this folder, or hf://ORGANISATION/NAME.", metavar="FOLDER")],
    api_url: ApiUrl = None,
    as_json: JsonFlag = False,
) -> None:
    """Check a model of safetensors, upload what storage lacks of it, and print its CID."""
    from zoo_compute.client import models
    from zoo_compute.terminal.progress import ByteProgress

    with open_client(api_url) as client, ByteProgress() as progress, TemporaryDirectory(prefix="zoo-model-") as copy:
        folder = Path(model)
        if model.startswith(models.HUB):
            folder = Path(copy)
            models.fetch_hub(model, folder, progress.start("download", None))
        checked = models.check_folder(folder)
        cid, manifest = models.push(client, checked, progress.start("upload", checked.size))
    print_result({"cid": cid, **_facts(manifest)}, as_json=as_json)


@app.command()
def show(cid: Cid, api_url: ApiUrl = None, as_json: JsonFlag = False) -> None:
    """Show a model's architecture, size and files."""
    from zoo_compute.client import models

    with open_client(api_url) as client:
        manifest = models.read_manifest(client, cid)
    print_result({"cid": cid, **_facts(manifest)}, as_json=as_json)


@app.command()
def pull(
    cid: Cid,
    folder: Annotated[Path, typer.Argument(help="Write the files here.", metavar="FOLDER")],
    api_url: ApiUrl = None,
    as_json: JsonFlag = False,
) -> None:
    """Fetch a model's files, checked against their CIDs; `from_pretrained` loads the folder."""
    from zoo_compute.client import models
    from zoo_compute.terminal.progress import ByteProgress

    with open_client(api_url) as client, ByteProgress() as progress:
        manifest = models.pull(client, cid, folder, progress.start("download", None))
    print_result({"cid": cid, "path": str(folder), **_facts(manifest)}, as_json=as_json)


def _facts(manifest: "ModelManifest") -> dict[str, Any]:
    from zoo_compute.client.models import settings_of

    model = settings_of(manifest)
    return {
        "architecture": model.architecture,
        "parameters": model.num_parameters(),
        "vocab_size": model.vocab_size,
        "max_position_embeddings": model.max_position_embeddings,
        "bytes": sum(file.size for file in manifest.files.values()),
        "files": sorted(manifest.files),
    }
