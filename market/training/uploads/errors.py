"""Refusals of uploads."""

from market.platform.http.problem import MarketError


class FileNotAsked(MarketError):
    """The lease asks for another file than this one, or for none."""

    status = 409
    code = "file-not-asked"
    title = "The lease does not ask for this file"
    default_remedy = "Upload what the lease's task names; a train lease takes a payload, a reveal lease states."


class PieceRefused(MarketError):
    """``reason``: ``piece_mismatch`` (other bytes than its CID), ``file_too_large`` or ``piece_empty``."""

    status = 422
    code = "piece-refused"
    title = "The piece is not taken"
    default_remedy = "Read the piece again from the file, and send it with its own CID and number."


class UploadIncomplete(MarketError):
    """``missing`` names the first pieces that are missing; where it is empty, all are to be sent."""

    status = 409
    code = "upload-incomplete"
    title = "Pieces of the file are missing"
    default_remedy = "Read the file's state (GET on the same path), send the pieces that it lacks and repeat this."


class WrongFile(MarketError):
    status = 422
    code = "wrong-file"
    title = "The pieces make another file"
    default_remedy = "Send all pieces of the file again, in their order; all but the last are full."
