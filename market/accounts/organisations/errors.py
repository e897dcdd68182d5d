"""Problems of organisations."""

from market.platform.http.problem import Conflict, MissingResource


class OrganisationNotFound(MissingResource):
    code = "organisation-not-found"
    title = "You are not a member of this organisation"
    default_remedy = "GET /v1/organisations lists yours. An owner or admin of the organisation can add you."


class MemberNotFound(MissingResource):
    code = "member-not-found"
    title = "The organisation has no such member"
    default_remedy = "GET /v1/organisations/{id} lists the members."


class LastOwner(Conflict):
    code = "last-owner"
    title = "An organisation must have at least one owner"
    default_remedy = "Make another member owner first."
