"""Queries of providers, stakes, benchmarks and asks."""

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Integer,
    Row,
    Select,
    Text,
    and_,
    any_,
    cast,
    delete,
    exists,
    false,
    func,
    literal,
    or_,
    select,
    update,
)
from sqlalchemy.dialects.postgresql import ARRAY, insert
from sqlalchemy.orm import Session

from market.domain.lifecycle import ProviderStatus
from market.platform.db.base import Address, Hash32, Wei
from market.platform.db.locks import locked
from market.providers.models import AskRow, AttestationChallenge, BenchmarkRun, Provider, SignerNonce, Stake

ANSWERED_WITHIN = timedelta(hours=1)
"""Time after the commitment during which a benchmark blocks placement; a later answer may still pass."""

_GPU_MEMORY = Provider.hardware["gpu_memory_gb"].astext
_FOR_PLACEMENT = (
    *(Provider.address, Provider.region, Provider.environment_class, Provider.measured_mflops),
    *(Provider.reliability_bps, Provider.site, Provider.asn, Provider.owner, Provider.round_trip_ms),
    _GPU_MEMORY,
)
"""What the placement reads of a node: thousands of whole providers take five times as long."""


def provider(session: Session, address: str) -> Provider | None:
    return session.get(Provider, address)


def insert_provider(session: Session, **values: object) -> None:
    """Insert a provider unless its address is registered."""
    session.execute(insert(Provider).values(**values).on_conflict_do_nothing())


def lock_provider(session: Session, address: str) -> Provider | None:
    """Return the provider's row, refreshed and locked against other writers."""
    return session.scalar(locked(select(Provider).where(Provider.address == address)))


def lock_stake(session: Session, address: str) -> Stake:
    """Return the wallet's stake, locked; it begins at 0."""
    session.execute(insert(Stake).values(address=address, stake_wei=0, unbonding_wei=0).on_conflict_do_nothing())
    return session.scalars(locked(select(Stake).where(Stake.address == address))).one()


def stake_of(session: Session, address: str) -> int:
    """Return the active stake in wei; 0 for an unknown wallet."""
    return session.scalar(select(Stake.stake_wei).where(Stake.address == address)) or 0


def at_risk(session: Session, address: str) -> int:
    """Return the slashable balance in wei (stake plus unbonding); 0 for an unknown wallet."""
    return session.scalar(select(Stake.stake_wei + Stake.unbonding_wei).where(Stake.address == address)) or 0


def page(session: Session, after: str, limit: int) -> Sequence[Row[Provider, int]]:
    """Return providers with their stakes, by address, beginning after ``after``."""
    statement = _with_stake().where(Provider.address > after).order_by(Provider.address).limit(limit)
    return session.execute(statement).all()


def with_stake(session: Session, address: str) -> Row[Provider, int] | None:
    return session.execute(_with_stake().where(Provider.address == address)).first()


def _with_stake() -> Select[Provider, int]:
    return select(Provider, func.coalesce(Stake.stake_wei, 0)).outerjoin(Stake, Stake.address == Provider.address)


def count_by_status(session: Session) -> dict[tuple[str, str], int]:
    """Return the number of providers by (kind, status)."""
    statement = select(Provider.kind, Provider.status, func.count()).group_by(Provider.kind, Provider.status)
    return {(kind, status): count for kind, status, count in session.execute(statement)}


def record_heartbeat(session: Session, address: str, now: datetime, round_trip_ms: int | None) -> bool:
    """Record a heartbeat, with the round trip if measured; return False for an unknown provider."""
    seen = {"last_seen_at": now} | ({} if round_trip_ms is None else {"round_trip_ms": round_trip_ms})
    statement = update(Provider).where(Provider.address == address).values(seen)
    return session.scalar(statement.returning(Provider.address)) is not None


def mark_unseen(session: Session, address: str) -> None:
    """Mark the provider as never seen, until its next heartbeat."""
    session.execute(update(Provider).where(Provider.address == address).values(last_seen_at=None))


def _is_in_benchmark(now: datetime) -> ColumnElement[bool]:
    """Return the condition that a provider has a benchmark deadline or runs a benchmark."""
    under_way = exists().where(BenchmarkRun.provider == Provider.address, _is_running(now))
    return or_(Provider.rebenchmark_by.is_not(None), under_way)


def _is_running(now: datetime) -> ColumnElement[bool]:
    """Return the condition that a benchmark was started and may still be answered."""
    run = BenchmarkRun
    is_due = or_(
        and_(run.committed_at.is_(None), run.deadline_at > now),
        and_(run.committed_at <= run.deadline_at, run.committed_at > now - ANSWERED_WITHIN),
    )
    return and_(run.answered_at.is_(None), is_due)


def _may_work(accepted: Collection[str] | None) -> ColumnElement[bool]:
    """Return the condition: active, undisputed, of an ``accepted`` class (None: any)."""
    # A node keeps its status when its class loses acceptance, so that it works again with the next acceptance.
    may = and_(Provider.status == ProviderStatus.ACTIVE, Provider.disputed_at.is_(None))
    return may if accepted is None else and_(may, Provider.environment_class.in_(accepted))


def in_benchmark_among(session: Session, addresses: Collection[str], now: datetime) -> set[str]:
    """Return the providers that have a benchmark deadline or run a benchmark."""
    statement = select(Provider.address).where(Provider.address.in_(addresses), _is_in_benchmark(now))
    return set(session.scalars(statement))


def available_asks(
    session: Session, tier_id: int, accepted: Collection[str] | None, seen_since: datetime, now: datetime
) -> Sequence[Row[*tuple[Any, ...]]]:
    """Return a tier's available providers with their open asks and stakes, cheapest first."""
    ask = (AskRow.gpus, AskRow.min_price_wei, AskRow.created_at.label("placed_at"), AskRow.id.label("ask_id"))
    statement = (
        select(*_FOR_PLACEMENT, *ask, Stake.stake_wei)
        .join(AskRow, AskRow.provider == Provider.address)
        .join(Stake, Stake.address == Provider.address)
        .where(
            _may_work(accepted),
            Provider.last_seen_at >= seen_since,
            AskRow.status == "open",
            AskRow.tier_id == tier_id,
            AskRow.valid_until > now,
            ~_is_in_benchmark(now),
        )
        .order_by(AskRow.min_price_wei, AskRow.created_at, AskRow.id)
    )
    return session.execute(statement).all()


def equal_nodes(
    session: Session,
    tier_id: int,
    accepted: Collection[str] | None,
    seen_since: datetime,
    now: datetime,
    *,
    reliabilities: Sequence[int],
    limit_wei: int,
    attested: Collection[str],
    held: Select[str | None, str],
) -> Sequence[Row[*tuple[Any, ...]]]:
    """Return groups of equal nodes: those of a tier, of any status, and those with an ask in it.

    One row per group, however many nodes there are. It has the asks of free nodes and the jobs of busy ones.

    Args:
        reliabilities: ascending thresholds; ``rank`` counts those that a node reaches.
        limit_wei: highest affordable ask.
        held: query of (node, job) for busy nodes.
    """
    busy = held.subquery()
    holder, job_id = busy.c
    open_ask = and_(
        AskRow.provider == Provider.address,
        AskRow.status == "open",
        AskRow.tier_id == tier_id,
        AskRow.valid_until > now,
    )
    in_benchmark = select(BenchmarkRun.provider).where(_is_running(now)).distinct().subquery()
    may_work, is_seen = _may_work(accepted), Provider.last_seen_at >= seen_since
    has_ask = and_(
        *(may_work, is_seen, AskRow.id.is_not(None), Stake.address.is_not(None)),
        *(Provider.rebenchmark_by.is_(None), in_benchmark.c.provider.is_(None)),
    )
    mflops = func.coalesce(Provider.measured_mflops, 0)
    node = (
        select(
            *(Provider.region, Provider.environment_class, _coarse(mflops).label("mflops")),
            _GPU_MEMORY.label("gpu_memory_gb"),
            func.width_bucket(Provider.reliability_bps, literal([*reliabilities], ARRAY(Integer))).label("rank"),
            (Provider.address == any_(literal([*attested], ARRAY(Address)))).label("attested"),
            (Provider.tier_id.is_not_distinct_from(tier_id)).label("of_tier"),
            func.coalesce(may_work, false()).label("working"),
            func.coalesce(is_seen, false()).label("seen"),
            func.coalesce(has_ask, false()).label("offered"),
            holder.is_not(None).label("busy"),
            func.coalesce(AskRow.min_price_wei <= limit_wei, false()).label("affordable"),
            *(AskRow.min_price_wei.label("ask"), job_id.label("job_id")),
        )
        .outerjoin(AskRow, open_ask)
        .outerjoin(Stake, Stake.address == Provider.address)
        .outerjoin(busy, holder == Provider.address)
        .outerjoin(in_benchmark, in_benchmark.c.provider == Provider.address)
        .where(or_(Provider.tier_id == tier_id, Provider.address.in_(open_askers(tier_id))))
        .subquery()
        .c
    )
    kind = (node.region, node.environment_class, node.mflops, node.gpu_memory_gb, node.rank, node.attested)
    state = (node.of_tier, node.working, node.seen, node.offered, node.busy, node.affordable)
    asks = func.array_agg(node.ask, type_=ARRAY(Wei)).filter(node.offered, ~node.busy)
    jobs = func.array_agg(node.job_id, type_=ARRAY(Hash32)).filter(node.offered, node.affordable, node.busy)
    statement = select(*kind, *state, func.count().label("size"), asks.label("asks"), jobs.label("jobs"))
    return session.execute(statement.group_by(*kind, *state)).all()


def _coarse(mflops: ColumnElement[int]) -> ColumnElement[int]:
    """Return a speed rounded down to two digits, as :func:`coarse_mflops`."""
    digits = func.greatest(0, func.length(cast(mflops, Text)) - 2)
    return mflops - mflops % cast(func.power(10, digits), BigInteger)


def for_placement(session: Session, addresses: Collection[str]) -> Sequence[Row[*tuple[Any, ...]]]:
    """Return what the placement reads of these providers."""
    return session.execute(select(*_FOR_PLACEMENT).where(Provider.address.in_(addresses))).all()


def addresses_of_tier(tier_id: int) -> Select[str]:
    """Return the query of the providers that earned a tier or have an open ask in it."""
    return select(Provider.address).where(or_(Provider.tier_id == tier_id, Provider.address.in_(open_askers(tier_id))))


def open_askers(tier_id: int) -> Select[str]:
    """Return the query of the providers with an open ask in a tier."""
    return select(AskRow.provider).where(AskRow.status == "open", AskRow.tier_id == tier_id)


def among(session: Session, addresses: Collection[str]) -> Sequence[Provider]:
    return session.scalars(select(Provider).where(Provider.address.in_(addresses))).all()


def of_same_owner(session: Session, address: str) -> Sequence[str]:
    """Return the nodes with the same declared owner, including this one; none if undeclared."""
    owner = select(Provider.owner).where(Provider.address == address).scalar_subquery()
    return session.scalars(select(Provider.address).where(Provider.owner == owner)).all()


def working_among(session: Session, addresses: Collection[str], accepted: Collection[str] | None) -> set[str]:
    among = Provider.address == any_(literal(list(addresses), ARRAY(Address)))  # one parameter for any number
    return set(session.scalars(select(Provider.address).where(among, _may_work(accepted))))


def open_ask_prices(session: Session, addresses: Collection[str]) -> dict[str, tuple[int, datetime]]:
    """Return (price, time) of the providers' open asks."""
    statement = select(AskRow).where(AskRow.provider.in_(addresses), AskRow.status == "open")
    return {ask.provider: (ask.min_price_wei, ask.created_at) for ask in session.scalars(statement)}


def expire_asks(session: Session, now: datetime) -> None:
    """Close asks past their ``validUntil``; clearings ignore them from that instant."""
    statement = update(AskRow).where(AskRow.status == "open", AskRow.valid_until <= now)
    session.execute(statement.values(status="expired"))


def working_verifiers(
    session: Session, accepted: Collection[str] | None, seen_since: datetime
) -> Sequence[Row[Provider, Stake]]:
    """Return the recently seen verifiers that may work, with their stakes, by address."""
    statement = (
        select(Provider, Stake)
        .join(Stake, Stake.address == Provider.address)
        .where(Provider.kind == "verifier", _may_work(accepted), Provider.last_seen_at >= seen_since)
        .order_by(Provider.address)
    )
    return session.execute(statement).all()


def count_of_tier(session: Session, tier_id: int) -> int:
    active = (Provider.tier_id == tier_id, Provider.status == ProviderStatus.ACTIVE)
    return session.scalar(select(func.count()).select_from(Provider).where(*active)) or 0


def count_of_class(
    session: Session, environment_class: str, besides: str, accepted: Collection[str] | None, seen_since: datetime
) -> int:
    """Return the number of live verifiers of a class, without ``besides``."""
    statement = select(func.count()).where(
        Provider.kind == "verifier",
        _may_work(accepted),
        Provider.last_seen_at >= seen_since,
        Provider.environment_class == environment_class,
        Provider.address != besides,
    )
    return session.scalars(statement).one()


def asks_of(session: Session, address: str) -> list[AskRow]:
    """Return all asks of a provider, newest first."""
    return list(session.scalars(select(AskRow).where(AskRow.provider == address).order_by(AskRow.created_at.desc())))


def close_open_ask(session: Session, address: str, status: str) -> None:
    """Set the final status of the provider's open ask, if any."""
    session.execute(update(AskRow).where(AskRow.provider == address, AskRow.status == "open").values(status=status))


def cancel_ask(session: Session, address: str, ask_id: str) -> bool:
    """Cancel an open ask of that provider; return False if there is none."""
    statement = (
        update(AskRow)
        .where(AskRow.id == ask_id, AskRow.provider == address, AskRow.status == "open")
        .values(status="cancelled")
    )
    return session.scalar(statement.returning(AskRow.id)) is not None


def use_nonce(session: Session, signer: str, nonce: int, used_for: str) -> bool:
    """Record a signer's nonce as used; return False if it was used before."""
    statement = insert(SignerNonce).values(signer=signer, nonce=nonce, used_for=used_for).on_conflict_do_nothing()
    return session.scalar(statement.returning(SignerNonce.used_for)) is not None


def lock_benchmark(session: Session, run_id: str, address: str) -> BenchmarkRun | None:
    statement = select(BenchmarkRun).where(BenchmarkRun.id == run_id, BenchmarkRun.provider == address)
    return session.scalar(locked(statement))


def last_failed_benchmark(session: Session, address: str, since: datetime) -> datetime | None:
    """Return the newest timely benchmark commitment after ``since`` without a right answer.

    Late commitments do not count: the provider gains nothing from the revealed selection.
    """
    statement = select(func.max(BenchmarkRun.committed_at)).where(
        BenchmarkRun.provider == address,
        BenchmarkRun.committed_at > since,
        BenchmarkRun.committed_at <= BenchmarkRun.deadline_at,
        or_(BenchmarkRun.reason == "wrong_answer", BenchmarkRun.answered_at.is_(None)),
    )
    return session.scalar(statement)


def benchmark_to_answer(session: Session, address: str, since: datetime) -> BenchmarkRun | None:
    """Return the newest unanswered benchmark with a timely commitment after ``since``."""
    statement = select(BenchmarkRun).where(
        BenchmarkRun.provider == address,
        BenchmarkRun.committed_at > since,
        BenchmarkRun.committed_at <= BenchmarkRun.deadline_at,
        BenchmarkRun.answered_at.is_(None),
    )
    return session.scalar(statement.order_by(BenchmarkRun.committed_at.desc()).limit(1))


def overdue_rebenchmarks(session: Session, statuses: Collection[ProviderStatus], now: datetime) -> list[str]:
    """Return the providers of these statuses past the deadline of their benchmark."""
    overdue = select(Provider.address).where(Provider.rebenchmark_by < now, Provider.status.in_(statuses))
    return list(session.scalars(overdue))


def lock_attestation(session: Session, challenge_id: str, address: str) -> AttestationChallenge | None:
    statement = select(AttestationChallenge).where(
        AttestationChallenge.id == challenge_id, AttestationChallenge.provider == address
    )
    return session.scalar(locked(statement))


def forget_open_attestation(session: Session, address: str) -> None:
    """Delete the wallet's unanswered challenge, if any."""
    is_open = AttestationChallenge.answered_at.is_(None)
    session.execute(delete(AttestationChallenge).where(AttestationChallenge.provider == address, is_open))
