"""US dollars with four decimals: Decimal in documents, whole ten-thousandths in rows, never a float."""

from decimal import ROUND_HALF_UP, ROUND_UP, Decimal
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer

UNIT = Decimal("0.0001")


def usd(value: Any) -> Decimal:
    """Round to four decimals; ValueError for anything else. A float is read through its text, so that 0.1 is 0.1."""
    try:
        amount = Decimal(str(value))
    except ArithmeticError as error:
        raise ValueError("expected an amount of US dollars") from error
    if isinstance(value, bool) or not amount.is_finite() or abs(amount) > 10_000_000:
        raise ValueError("expected an amount of US dollars")
    return amount.quantize(UNIT, ROUND_HALF_UP)


def round_up(value: Decimal) -> Decimal:
    """For estimates: rounding never hides that a budget is exceeded."""
    return value.quantize(UNIT, ROUND_UP)


def to_units(amount: Decimal) -> int:
    return int(usd(amount) / UNIT)


def from_units(units: int | None) -> Decimal:
    return usd(Decimal(units or 0) * UNIT)


# JSON numbers are doubles: four decimals of an amount below ten million survive one when rounded back.
Usd = Annotated[Decimal, BeforeValidator(usd), PlainSerializer(float, return_type=float, when_used="json")]
