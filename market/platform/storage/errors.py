"""What can go wrong with stored content; each ``code`` is stable and says what a caller can do."""


class StorageError(Exception):
    """Base of all storage errors."""

    code = "storage_error"


class StorageUnavailable(StorageError):
    """IPFS does not answer, or fails; trying later may help."""

    code = "storage_unavailable"


class BlobNotFound(StorageError):
    """Content could not be found in time; upload it, or check the CID."""

    code = "blob_not_found"


class BlobTooLarge(StorageError):
    """Content exceeds the limit of this use; send less."""

    code = "blob_too_large"


class BlobCorrupt(StorageError):
    """What IPFS gave or stored is not what the CID says, or is not a file."""

    code = "blob_corrupt"
