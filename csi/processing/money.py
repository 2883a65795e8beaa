"""US dollars with four decimals: Decimal in documents, whole ten-thousandths in rows, never a float."""

from decimal import ROUND_HALF_UP, ROUND_UP, Decimal
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer

CENT_OF_A_CENT = Decimal("0.0001")


def usd(value: Any) -> Decimal:
    """Rounded to four decimals. A float goes through its text, so that 0.1 is 0.1. ValueError otherwise."""
    try:
        amount = Decimal(str(value))
    except ArithmeticError as error:
        raise ValueError("expected an amount of US dollars") from error
    if isinstance(value, bool) or not amount.is_finite() or abs(amount) > 10_000_000:
        raise ValueError("expected an amount of US dollars")
    return amount.quantize(CENT_OF_A_CENT, ROUND_HALF_UP)


def dearer(value: Decimal) -> Decimal:
    """An estimate: rounded up, so that a budget is never passed by rounding."""
    return value.quantize(CENT_OF_A_CENT, ROUND_UP)


def to_units(amount: Decimal) -> int:
    return int(usd(amount) / CENT_OF_A_CENT)


def from_units(units: int | None) -> Decimal:
    return usd(Decimal(units or 0) * CENT_OF_A_CENT)


# JSON has one kind of number. Four decimals of a sum below ten million survive a double exactly when rounded back.
Usd = Annotated[Decimal, BeforeValidator(usd), PlainSerializer(float, return_type=float, when_used="json")]
