"""The quick run of the auction's benchmark."""

from benchmarks import auction


def test_quick_run_has_all_rows_with_possible_values() -> None:
    rows = {row.name: row for row in auction.measure(quick=True)}
    assert list(rows) == [
        "orders_per_second_100000",
        "ratio_to_sort",
        "efficiency_5",
        "efficiency_10",
        "efficiency_100",
    ]
    assert all(0 < rows[f"efficiency_{traders}"].value <= 1 for traders in (5, 10, 100))
    assert rows["ratio_to_sort"].value > 0
