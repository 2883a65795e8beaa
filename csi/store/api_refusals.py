"""API credentials that the API refused, until it accepts them again."""

from dataclasses import dataclass

from csi.store.db import columns, fetch, fetch_all, run, writing


@dataclass(frozen=True)
class ApiRefusal:
    """`name`: the variable of the key, or `oauth`. `error`: the reason in our words."""

    name: str
    error: str
    since: float


def note(name: str, error: str, now: float) -> None:
    """The API refused these credentials. `since` stays that of the first refusal."""
    sql = (
        "INSERT INTO api_refusals (name, error, since) VALUES (?, ?, ?) "
        "ON CONFLICT (name) DO UPDATE SET error = excluded.error"
    )
    with writing():
        run(sql, name, error, now)


def accepted(name: str) -> None:
    """The API accepted these credentials. Writes nothing where no refusal is recorded."""
    if fetch("SELECT 1 FROM api_refusals WHERE name = ?", name):
        with writing():
            run("DELETE FROM api_refusals WHERE name = ?", name)


def forget() -> None:
    """The configuration was loaded: whether the API accepts its credentials is not known yet. Part of the caller's
    transaction."""
    run("DELETE FROM api_refusals")


def current() -> list[ApiRefusal]:
    return fetch_all(ApiRefusal, f"SELECT {columns(ApiRefusal)} FROM api_refusals ORDER BY name")
