"""Errors of uploads."""

from market.platform.http.problem import Conflict, UnprocessableRequest


class FileNotAsked(Conflict):
    code = "file-not-asked"
    title = "The lease does not request this file"
    default_remedy = (
        "Upload the files that the lease's task names: a payload for train leases, states for reveal leases."
    )


class PieceRefused(UnprocessableRequest):
    """``reason``: ``piece_mismatch`` (other bytes), ``file_too_large`` or ``piece_empty``."""

    code = "piece-refused"
    title = "The piece is refused"
    default_remedy = "Read the piece from the file again, and send it with its own CID and number."


class UploadIncomplete(Conflict):
    """``missing`` has the numbers of the first missing pieces; if it is empty, all are missing."""

    code = "upload-incomplete"
    title = "Pieces of the file are missing"
    default_remedy = "Read the file's state (GET on the same path), send the missing pieces and repeat this call."


class WrongFile(UnprocessableRequest):
    code = "wrong-file"
    title = "The pieces form another file"
    default_remedy = "Send all pieces of the file again in order; all except the last are full."
