import pytest

from zoo_protocol.content.cid import (
    DAG_PB,
    MAX_BLOCK_BYTES,
    RAW,
    BlockMismatch,
    Cid,
    ContentTooLarge,
    InvalidCid,
    cid_of_raw,
    cids_of_digest,
    digest_of,
    of_block,
    parse,
    verify_block,
)

HELLO = "bafkreifzjut3te2nhyekklss27nh3k72ysco7y32koao5eei66wof36n5e"


def test_raw_cid_of_hello_world_matches_published_one():
    assert cid_of_raw(b"hello world") == HELLO
    assert digest_of(HELLO).hex() == "b94d27b9934d3e08a52e52d7da7dabfac484efe37a5380ee9088f7ace2efcde9"
    raw, tree = cids_of_digest(digest_of(HELLO))
    assert raw == HELLO
    assert digest_of(tree) == digest_of(HELLO)
    assert parse(tree).codec == DAG_PB


@pytest.mark.parametrize("codec", [RAW, DAG_PB])
def test_text_and_binary_forms_round_trip(codec):
    cid = of_block(codec, b"block")
    assert parse(str(cid)) == cid == Cid.from_bytes(cid.to_bytes())


@pytest.mark.parametrize(
    "text",
    [
        "",
        "b",
        "bafkqaaa",  # identity hash
        "QmUNLLsPACCz1vLxQVkXqqLX5R1X345qqfHbsf67hvA3Nn",  # CIDv0
        "bafyreigq4zsipbk5w3uqkbmh2w2633c5tcagtj3mgdyqqyftqggydkrw7q",  # dag-cbor
        "zb2rhe5P4gXftAwvA4eXQ5HJwsER2owDyS9sKaQRRVQPn93bA",  # base58
        HELLO.upper(),
        HELLO + "=",
        HELLO[:-1],
        HELLO[:-1] + "f",  # stray bits behind the last byte
        HELLO[:-1] + "é",
        "ß" * 59,
    ],
)
def test_every_other_form_is_refused(text):
    with pytest.raises(InvalidCid):
        parse(text)


def test_block_must_match_cid_and_size():
    cid = of_block(RAW, b"block")
    assert verify_block(cid, b"block") == b"block"
    with pytest.raises(BlockMismatch):
        verify_block(cid, b"blocK")
    large = bytes(MAX_BLOCK_BYTES + 1)
    with pytest.raises(ContentTooLarge):
        verify_block(of_block(RAW, large), large)
