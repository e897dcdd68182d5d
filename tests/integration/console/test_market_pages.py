"""Pages of market, providers, jobs and disputes over HTTP, on a market with a history."""

import re
from collections.abc import Callable

import httpx
import pytest
from kit.api.console_clients import Browser, signed_in
from kit.console.market_history import Seeded, seed
from kit.records import Records
from sqlalchemy import update

from market.accounts.models import Account
from market.jobs.models import Job
from market.platform.db.base import utc_now
from market.providers.models import Provider
from market.training.checkpoints.models import Checkpoint

INJECTION = "<script>alert(1)</script>\"'>"
SHOWN = re.compile(r"<script>alert|\sstyle=|\son\w+=")


@pytest.fixture
def seeded(records: Records) -> Seeded:
    return seed(records.database.engine, utc_now(), jobs=120, providers=60, epochs=5, rounds=30)


@pytest.fixture
def staff(api: httpx.Client, records: Records, seeded: Seeded) -> Browser:
    found = signed_in(api)
    records.execute(update(Account).where(Account.address == found.wallet.address).values(roles=["admin"]))
    return found


def text_of(browser: Browser | httpx.Client, path: str) -> str:
    http = browser.http if isinstance(browser, Browser) else browser
    page = http.get(f"/console{path}")
    assert page.status_code == 200, (path, page.status_code, page.text[-2_000:])
    assert not SHOWN.search(page.text)
    return page.text


def test_public_pages_need_no_session(api: httpx.Client, seeded: Seeded) -> None:
    market = text_of(api, "/market")
    assert all(
        words in market for words in ("bronze.eu-west", "wanted", "Fill rate", "It waits for suitable free nodes")
    )
    assert "silver.us-east" in text_of(api, "/market?book=silver.us-east&days=30")
    disputes = text_of(api, "/disputes")
    assert all(words in disputes for words in ("reveal the trace", "sign a verdict", "25 %"))
    assert api.get("/console/market?days=0").status_code == 422


def test_story_of_upheld_dispute_is_told_in_full(api: httpx.Client, seeded: Seeded) -> None:
    story = text_of(api, f"/disputes/{seeded.dispute_id}")
    for words in (
        "steps 13 to 18",
        "the contract draws a committee of referees by a block hash",
        "signed against the provider",
        "420 ZEN</span> are burned",
        "zoo-compute verify unit",
    ):
        assert words in story
    assert api.get(f"/console/disputes/0x{'00' * 32}").status_code == 404
    assert api.get("/console/disputes/nonsense").status_code == 422


@pytest.mark.parametrize("path", ["/jobs", "/providers", "/providers/{0.provider}"])
def test_staff_pages_refuse_other_wallets(api: httpx.Client, seeded: Seeded, path: str) -> None:
    where = f"/console{path.format(seeded)}"
    assert api.get(where).status_code == 303
    assert signed_in(api).http.get(where).status_code == 403


def test_lists_page_sort_and_filter(staff: Browser, seeded: Seeded) -> None:
    first = text_of(staff, "/jobs")
    second = text_of(staff, "/jobs?jobs.page=3")
    ids = [set(re.findall(r"/console/jobs/(0x[0-9a-f]{64})", page)) for page in (first, second)]
    assert (len(ids[0]), len(ids[1])) == (50, 20)
    assert not ids[0] & ids[1]
    assert f"/console/jobs/{seeded.job_id}" in text_of(staff, f"/jobs?jobs.q={seeded.job_id[:12]}")
    assert "Nothing matches this filter" in text_of(staff, "/jobs?jobs.q=%25")
    providers = text_of(staff, "/providers?providers.kind=verifier&providers.sort=name")
    assert seeded.verifier in providers
    assert seeded.provider not in providers


def test_job_page_has_all_parts(staff: Browser, seeded: Seeded) -> None:
    page = text_of(staff, f"/jobs/{seeded.job_id}")
    parts = (
        "Loss by round",
        "Bytes sent",
        "passed",
        "Proven copies",
        "In escrow",
        "zoo-compute job receipt",
        "Cancel this job",
    )
    assert [part for part in parts if part not in page] == []
    assert 'aria-current="step">running' in page
    assert "{&#34;x&#34;:[0,1,2," in page, "rounds on the chart's axis"
    settled = text_of(staff, f"/jobs/{seeded.settled_job_id}")
    assert "Cancel this job" not in settled
    assert 'class="now" aria-current="step">settled' in settled
    assert "hx-get" in text_of(staff, f"/jobs/{seeded.waiting_job_id}")
    assert 'id="why"' in text_of(staff, f"/jobs/{seeded.waiting_job_id}/why")


def test_job_page_names_rollbacks(staff: Browser, seeded: Seeded, records: Records) -> None:
    row = (Checkpoint.job_id == seeded.job_id) & (Checkpoint.round == 3)
    records.execute(update(Checkpoint).where(row).values(rolled_back_to=1, rollback_reason="loss_spike"))
    page = text_of(staff, f"/jobs/{seeded.job_id}")
    assert "Rollback 1 of at most 2: round 3 repeats the model after round 1, because the validation loss rose" in page
    assert "Lower the learning rates" not in page
    records.execute(update(Job).where(Job.id == seeded.job_id).values(reason="diverged"))
    assert "Lower the learning rates or check the data." in text_of(staff, f"/jobs/{seeded.job_id}")


def test_job_page_is_for_its_payer_and_staff(api: httpx.Client, seeded: Seeded, records: Records) -> None:
    wallet = signed_in(api)
    assert wallet.http.get(f"/console/jobs/{seeded.job_id}").status_code == 404
    records.execute(update(Job).where(Job.id == seeded.job_id).values(payer=wallet.wallet.address))
    assert "Cancel this job" in text_of(wallet, f"/jobs/{seeded.job_id}")


def test_support_cancels_job_after_confirmation(staff: Browser, seeded: Seeded, records: Records) -> None:
    path = f"/jobs/{seeded.waiting_job_id}/cancel"
    assert staff.submit(path, confirm="yes").status_code == 422
    assert staff.http.post(f"/console{path}", data={"confirm": seeded.waiting_job_id[:10]}).status_code == 403
    assert records.get(Job, seeded.waiting_job_id).status == "matching"
    assert staff.submit(path, confirm=seeded.waiting_job_id[:10]).status_code == 303
    assert records.get(Job, seeded.waiting_job_id).status in ("cancelled", "settling")


def test_provider_page_has_all_parts(staff: Browser, seeded: Seeded) -> None:
    page = text_of(staff, f"/providers/{seeded.provider}")
    parts = ("Score now", "One square a day", "Pay by day", "Hardware proofs", "Penalties", "its price is sealed")
    assert [part for part in parts if part not in page] == []
    assert staff.http.get(f"/console/providers/0x{'00' * 20}").status_code == 404


@pytest.fixture
def injected(seeded: Seeded, records: Records) -> Callable[[], None]:
    def inject() -> None:
        records.execute(
            update(Job).values(request={"name": INJECTION}, reason=None),
            update(Provider).values(name=INJECTION, region="<b>", site=INJECTION, owner=INJECTION),
        )

    return inject


def test_scripts_in_names_are_shown_as_text(staff: Browser, seeded: Seeded, injected: Callable[[], None]) -> None:
    injected()
    for path in (
        "/jobs",
        f"/jobs/{seeded.job_id}",
        "/providers",
        f"/providers/{seeded.provider}",
        "/disputes",
        "/market",
    ):
        page = text_of(staff, path)
        assert ("&lt;script&gt;" in page) == (path != "/market"), path
