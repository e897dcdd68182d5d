"""Errors of stored content; each ``code`` is stable."""


class StorageError(Exception):
    """Base of errors of stored content."""


class StorageUnavailable(StorageError):
    """IPFS does not answer or fails; a later retry may help."""


class BlobNotFound(StorageError):
    """IPFS did not find the content in time; upload it, or check the CID."""


class BlobTooLarge(StorageError):
    """Content exceeds the limit of this use."""


class BlobCorrupt(StorageError):
    """Content does not match its CID, or is not a file."""
