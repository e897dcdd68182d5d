"""Rights of a console's visitor towards jobs, as the services of the API know them."""

from market.accounts.service import Principal
from market.console.page import Audience
from market.console.sessions.service import Visitor

_READS_ALL, _CHANGES_ALL = "treasury", "admin"


def principal_of(visitor: Visitor) -> Principal:
    """Return the visitor as a caller. Staff read all jobs; support changes them."""
    roles = set()
    if Audience.STAFF.admits(visitor):
        roles.add(_READS_ALL)
    if "support" in visitor.roles:
        roles.add(_CHANGES_ALL)
    return Principal(visitor.address, frozenset(roles), credential_id=0, credential_kind="session")
