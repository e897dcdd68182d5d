"""All pages of the console, in the order of the navigation."""

from market.console.page import Page
from market.console.pages import (
    account,
    audit,
    design,
    disputes,
    guardian,
    job,
    jobs,
    market,
    network,
    overview,
    providers,
    system,
    transactions,
    treasury,
)

PAGES: tuple[Page, ...] = (
    network.PAGE,
    market.PAGE,
    disputes.PAGE,
    treasury.PAGE,
    overview.PAGE,
    jobs.PAGE,
    job.PAGE,
    providers.PAGE,
    guardian.PAGE,
    transactions.PAGE,
    system.PAGE,
    audit.PAGE,
    account.PAGE,
    design.PAGE,
)
