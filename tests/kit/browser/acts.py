"""Acts on a page: prepared, confirmed, signed by the wallet, followed until they are final."""

from collections.abc import Callable

from playwright.sync_api import Locator, Page, expect


def prepare(page: Page) -> Locator:
    """Prepare the act of this page; return its box."""
    page.get_by_role("button", name="Prepare").click()
    box = page.locator("#act")
    expect(box).to_contain_text("The simulation")
    return box


def sign(page: Page, confirmation: str, make_final: Callable[[], None]) -> None:
    """Prepare the act of this page, confirm it, sign it, and follow it until it is final."""
    box = prepare(page)
    expect(box).to_contain_text("The simulation passes.")
    button = box.get_by_role("button", name="Sign in the wallet")
    expect(button).to_be_disabled()
    box.get_by_label(f"Type {confirmation} to confirm").fill(confirmation)
    button.click()
    expect(box.get_by_role("status")).to_contain_text("Mined")
    make_final()
    expect(box.get_by_role("status")).to_contain_text("Final")
