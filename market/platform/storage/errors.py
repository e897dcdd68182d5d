"""Errors of stored content; each ``code`` is stable."""


class StorageError(Exception):
    code = "storage_error"


class StorageUnavailable(StorageError):
    """IPFS does not answer or fails; a later retry may help."""

    code = "storage_unavailable"


class BlobNotFound(StorageError):
    """IPFS did not find the content in time; upload it, or check the CID."""

    code = "blob_not_found"


class BlobTooLarge(StorageError):
    """Content exceeds the limit of this use."""

    code = "blob_too_large"


class BlobCorrupt(StorageError):
    """Content does not match its CID, or is not a file."""

    code = "blob_corrupt"
