"""``zoo-compute dataset``: build datasets from files, upload and show them."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from zoo_compute.cli.session import ApiUrl, open_client
from zoo_compute.terminal.output import JsonFlag, print_result

if TYPE_CHECKING:
    from training_gym.data.dataset import DatasetManifest

app = typer.Typer(name="dataset", help="Build datasets from files, and show them.", no_args_is_help=True)
Cid = Annotated[str, typer.Argument(help="CID of the dataset's manifest.", metavar="CID")]


@app.command()
def push(
    sources: Annotated[
        list[str],
        typer.Argument(
            help="Read these: files, folders, patterns, https://, s3:// or hf:// of text, JSONL or Parquet.",
            metavar="SOURCE…",
        ),
    ],
    tokenizer: Annotated[
        str, typer.Option(help="Train a BPE of so many tokens, or use a model's: folder, CID or hf://NAME.")
    ] = "bpe:8192",
    validation: Annotated[
        list[str] | None, typer.Option(help="Validate on this source; default: a share of the documents.")
    ] = None,
    share: Annotated[
        float, typer.Option("--validation-share", min=0.0001, max=0.5, help="Hold out this share of the documents.")
    ] = 0.05,
    licence: Annotated[str, typer.Option(help="Name the data's licence in the manifest.")] = "",
    source: Annotated[str, typer.Option(help="Name the data's origin; default: the names of the files.")] = "",
    api_url: ApiUrl = None,
    as_json: JsonFlag = False,
) -> None:
    """Build a dataset, upload what storage lacks of it, and print its CID."""
    from zoo_compute.client import datasets
    from zoo_compute.terminal.progress import ByteProgress

    request = datasets.Request(sources, tokenizer, validation or (), share, licence, source)
    with open_client(api_url) as client, ByteProgress() as progress:
        pushed = datasets.push(client, request, progress)
    print_result({"cid": pushed.cid, **_facts(pushed.manifest), "documents": pushed.documents}, as_json=as_json)


@app.command()
def show(cid: Cid, api_url: ApiUrl = None, as_json: JsonFlag = False) -> None:
    """Show a dataset's tokens, tokenizer, licence and source."""
    from zoo_compute.client import datasets

    with open_client(api_url) as client:
        manifest = datasets.read_manifest(client, cid)
    print_result({"cid": cid, **_facts(manifest)}, as_json=as_json)


def _facts(manifest: "DatasetManifest") -> dict[str, Any]:
    splits = {"train": manifest.train, "validation": manifest.validation}
    facts: dict[str, Any] = {
        "samples": manifest.samples,
        "vocab_size": manifest.vocab_size,
        "tokenizer": None if manifest.tokenizer is None else manifest.tokenizer.cid,
        "licence": manifest.licence,
        "source": manifest.source,
    }
    for name, shards in splits.items():
        facts[f"{name}_tokens"] = sum(shard.tokens for shard in shards)
        facts[f"{name}_shards"] = len(shards)
        facts[f"{name}_bytes"] = sum(map(manifest.size_of, shards))
    return facts
