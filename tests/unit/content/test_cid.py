import pytest

from zoo_protocol.content import cid as cids

HELLO = "bafkreifzjut3te2nhyekklss27nh3k72ysco7y32koao5eei66wof36n5e"


def test_raw_cid_of_hello_world_matches_published_one():
    assert str(cids.of_block(cids.RAW, b"hello world")) == HELLO
    assert cids.digest_of(HELLO).hex() == "b94d27b9934d3e08a52e52d7da7dabfac484efe37a5380ee9088f7ace2efcde9"
    raw, tree = cids.cids_of_digest(cids.digest_of(HELLO))
    assert raw == HELLO
    assert cids.digest_of(tree) == cids.digest_of(HELLO)
    assert cids.parse(tree).codec == cids.DAG_PB


@pytest.mark.parametrize("codec", [cids.RAW, cids.DAG_PB])
def test_text_and_binary_forms_round_trip(codec):
    cid = cids.of_block(codec, b"block")
    assert cids.parse(str(cid)) == cid == cids.Cid.from_bytes(cid.to_bytes())


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
    with pytest.raises(cids.InvalidCid):
        cids.parse(text)


def test_block_must_match_cid_and_size():
    cid = cids.of_block(cids.RAW, b"block")
    assert cids.verify_block(cid, b"block") == b"block"
    with pytest.raises(cids.BlockMismatch):
        cids.verify_block(cid, b"blocK")
    large = bytes(cids.MAX_BLOCK_BYTES + 1)
    with pytest.raises(cids.ContentTooLarge):
        cids.verify_block(cids.of_block(cids.RAW, large), large)
