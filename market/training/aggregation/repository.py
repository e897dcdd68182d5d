"""Aggregation leaf queries."""

from collections.abc import Collection

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from market.training.aggregation.models import AggregationLeaf


def leaves_of_round(session: Session, job_id: str, round_: int) -> list[AggregationLeaf]:
    """Return the leaves in order, refreshed; none if the round has no tree or is not planned."""
    query = select(AggregationLeaf).where(AggregationLeaf.job_id == job_id, AggregationLeaf.round == round_)
    return list(session.scalars(query.order_by(AggregationLeaf.leaf).execution_options(populate_existing=True)))


def leaves_of_job(session: Session, job_id: str) -> list[AggregationLeaf]:
    return list(session.scalars(select(AggregationLeaf).where(AggregationLeaf.job_id == job_id)))


def drop_leaves(session: Session, job_id: str, rounds: Collection[int]) -> None:
    of_rounds = AggregationLeaf.job_id == job_id, AggregationLeaf.round.in_(rounds)
    session.execute(delete(AggregationLeaf).where(*of_rounds))
