"""All pages of the console, in the order of the navigation."""

from market.console.page import Page
from market.console.pages import (
    account,
    audit,
    design,
    disputes,
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
from market.console.pages.governance import act, guardian, timelock
from market.console.pages.mine import access, my_jobs, new_job, node

PAGES: tuple[Page, ...] = (
    network.PAGE,
    market.PAGE,
    disputes.PAGE,
    treasury.PAGE,
    timelock.PAGE,
    overview.PAGE,
    jobs.PAGE,
    job.PAGE,
    providers.PAGE,
    guardian.PAGE,
    transactions.PAGE,
    system.PAGE,
    audit.PAGE,
    my_jobs.PAGE,
    new_job.PAGE,
    node.PAGE,
    access.PAGE,
    act.PAGE,
    account.PAGE,
    design.PAGE,
)
