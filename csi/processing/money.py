"""US dollars: Decimal with four decimals in documents, whole micro-dollars in rows, never a float.

Sums are rounded, not their parts: a hundred calls of 0.00004 USD cost 0.0040 USD.
"""

from decimal import ROUND_HALF_UP, ROUND_UP, Decimal
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer

UNIT = Decimal("0.0001")
MICRO = Decimal("0.000001")


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
    return value.quantize(MICRO, ROUND_UP)


def exact(value: Decimal) -> Decimal:
    """For prices: to a micro-dollar."""
    return value.quantize(MICRO, ROUND_HALF_UP)


def to_micro(amount: Decimal) -> int:
    usd(amount)  # refuses what is no amount
    return int(exact(Decimal(str(amount))) / MICRO)


def from_micro(micro: int | None) -> Decimal:
    """Rounded to four decimals."""
    return usd(Decimal(micro or 0) * MICRO)


# JSON numbers are doubles: four decimals of an amount below ten million survive one when rounded back.
Usd = Annotated[Decimal, BeforeValidator(usd), PlainSerializer(float, return_type=float, when_used="json")]
