"""Database trigger on units: ``STATEMENTS`` run after ``create_all``."""

from sqlalchemy import DDL, event

from market.training.units.models import Unit

STATEMENTS = (
    """
    CREATE FUNCTION units_keep_batch() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF EXISTS (SELECT FROM settlement_batches WHERE id = OLD.settlement_id AND void_reason IS NULL) THEN
            RAISE EXCEPTION 'unit % is in settlement batch %, which stands', OLD.id, OLD.settlement_id
                USING ERRCODE = 'restrict_violation';
        END IF;
        RETURN NEW;
    END $$
    """,
    """
    CREATE TRIGGER units_keep_batch BEFORE UPDATE OF settlement_id ON units FOR EACH ROW
    WHEN (OLD.settlement_id IS NOT NULL AND NEW.settlement_id IS DISTINCT FROM OLD.settlement_id)
    EXECUTE FUNCTION units_keep_batch()
    """,
)

for _statement in STATEMENTS:
    event.listen(Unit.__table__, "after_create", DDL(_statement.replace("%", "%%")))  # type: ignore[no-untyped-call]
