"""Merkle trees that OpenZeppelin's ``MerkleProof`` verifies.

Same rules as OpenZeppelin's standard tree. A leaf is ``keccak(keccak(encoded))``, so that no inner node can pass as a
leaf (second pre-image resistance). A parent is the hash of its sorted children, so that a proof needs no left/right
bits. Leaves keep their given order; where it matters (unit traces), an index inside the leaf commits to it.
"""

from collections.abc import Sequence

from zoo_protocol.hashing import keccak


def leaf_hash(encoded: bytes) -> bytes:
    """Return the leaf of ABI-encoded or otherwise canonical bytes, which are hashed twice."""
    return keccak(keccak(encoded))


def parent_hash(left: bytes, right: bytes) -> bytes:
    """Return the commutative parent of two nodes."""
    return keccak(left + right) if left <= right else keccak(right + left)


def levels(leaves: Sequence[bytes]) -> list[list[bytes]]:
    """Return all nodes by level, from the leaves to the root, for many proofs of one tree.

    Raises:
        ValueError: there is no leaf.
    """
    if not leaves:
        raise ValueError("a Merkle tree needs at least one leaf")
    found = [list(leaves)]
    while len(found[-1]) > 1:
        below = found[-1]
        above = [parent_hash(below[i], below[i + 1]) for i in range(0, len(below) - 1, 2)]
        if len(below) % 2:
            above.append(below[-1])  # an odd node rises unchanged
        found.append(above)
    return found


def root(leaves: Sequence[bytes]) -> bytes:
    """Return the root over ``leaves`` (:func:`leaf_hash`). Raises ValueError: no leaf."""
    return levels(leaves)[-1][0]


def proof(leaves: Sequence[bytes], index: int) -> list[bytes]:
    """Return the sibling path of leaf ``index``, up to the root. Raises IndexError."""
    if not 0 <= index < len(leaves):
        raise IndexError(f"leaf {index} of {len(leaves)}")
    return proof_in(levels(leaves), index)


def proof_in(tree: Sequence[Sequence[bytes]], index: int) -> list[bytes]:
    """Return the sibling path of leaf ``index`` in the nodes of :func:`levels`."""
    path = []
    for level in tree[:-1]:
        sibling = index ^ 1
        if sibling < len(level):
            path.append(level[sibling])
        index //= 2
    return path


def verify(expected_root: bytes, leaf: bytes, path: Sequence[bytes]) -> bool:
    """Return whether ``leaf`` with its ``path`` leads to ``expected_root``."""
    node = leaf
    for sibling in path:
        node = parent_hash(node, sibling)
    return node == expected_root
