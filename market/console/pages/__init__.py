"""All pages of the console, in the order of the navigation."""

from market.console.page import Page
from market.console.pages import account, audit, design, network, overview, system, transactions, treasury

PAGES: tuple[Page, ...] = (
    network.PAGE,
    treasury.PAGE,
    overview.PAGE,
    transactions.PAGE,
    system.PAGE,
    audit.PAGE,
    account.PAGE,
    design.PAGE,
)
