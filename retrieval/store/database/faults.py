"""What an error of PostgreSQL, of the driver or of the network means for a caller.

SQLSTATE classes and codes: PostgreSQL 18, appendix A. What is not listed is a fault of the
statement, so one of ours, and is raised as it is.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import asyncpg

Verdict = Literal["again", "gone", "refused", "busy", "late"]


@dataclass(frozen=True, slots=True)
class DatabaseFault:
    """`verdict`:

    again    the transaction lost against another: retried at once, on the same connection
    gone     the connection is of no use any more, another may be: retried after a wait
    busy     the server cannot now, and soon may: retried after a wait, on the same connection
    refused  the server cannot, and will not within seconds: the caller is told
    late     a limit of time was reached

    `drop`: the connection is given up. `all`: so are all others, which lead to the same server.
    `retry_after_s`: when a caller may try again.
    """

    verdict: Verdict
    drop: bool = False
    all: bool = False
    retry_after_s: float = 1.0
    hint: str = ""


_GONE = DatabaseFault("gone", drop=True)
_REFUSED = DatabaseFault("refused", retry_after_s=5.0)
_UNSURE = DatabaseFault("refused", drop=True)
# Whatever else ends a session is no fault of a statement: hosted poolers say "internal error" while
# they have no place, or while the database behind them wakes up.
_ENDED = DatabaseFault("gone", drop=True, retry_after_s=5.0)
_POOLER = DatabaseFault(
    "gone", drop=True, hint="behind a transaction pooler set DB_STATEMENT_CACHE_SIZE to 0"
)

CLASSES: Mapping[str, DatabaseFault] = {
    "08": _GONE,  # connection exception
    "25": _UNSURE,  # invalid transaction state: what the session is in is not known
    "28": _REFUSED,  # invalid authorization: a password or pg_hba.conf was changed
    "3D": _REFUSED,  # invalid catalog name: the database was dropped or renamed
    "53": _REFUSED,  # insufficient resources
    "57": _GONE,  # operator intervention: shut down, crashed, starting up
    "58": DatabaseFault(
        "refused", drop=True, retry_after_s=5.0
    ),  # system error: i/o, missing files
}

CODES: Mapping[str, DatabaseFault] = {
    "08P01": DatabaseFault(
        "refused", drop=True, hint="behind a pooler set DB_STATEMENT_CACHE_SIZE to 0"
    ),
    "25006": DatabaseFault(
        "gone", drop=True, all=True, retry_after_s=5.0
    ),  # read only: not the primary
    "25P03": _UNSURE,  # idle in transaction for too long
    "25P04": _UNSURE,  # transaction took too long for the server's own limit
    "26000": _POOLER,  # a prepared statement is on another server connection
    "40001": DatabaseFault("again"),  # serialization failure, conflict with recovery
    "40003": _UNSURE,  # it is not known whether the statement completed
    "40P01": DatabaseFault("again"),  # deadlock detected
    "42501": _REFUSED,  # insufficient privilege: it was taken away
    "42P05": _POOLER,  # a prepared statement of another client
    "53200": DatabaseFault("busy", drop=True),  # out of memory: that of a backend ends with it
    "53300": DatabaseFault("busy"),  # too many connections
    "55006": DatabaseFault("busy"),  # object in use
    "55P03": DatabaseFault(
        "busy"
    ),  # lock not available: a lock_timeout of the server's or the role's
    "57014": DatabaseFault("late"),  # query cancelled: by our limit of time, or by an administrator
    "57P04": DatabaseFault("refused", drop=True, retry_after_s=5.0),  # the database was dropped
    "72000": DatabaseFault("again"),  # snapshot too old: versions 15 and 16 may be set to say so
    "XX001": DatabaseFault("refused", drop=True, retry_after_s=5.0),  # data corrupted
    "XX002": DatabaseFault("refused", drop=True, retry_after_s=5.0),  # index corrupted
}


def fault(error: BaseException) -> DatabaseFault | None:
    """What `error` means; None: it is no matter of the server's state, or not of a database."""
    if isinstance(error, asyncpg.InvalidCachedStatementError):  # a plan from before a migration
        return _GONE
    if isinstance(error, asyncpg.PostgresError):
        code = str(error.sqlstate or "")
        found = CODES.get(code) or CLASSES.get(code[:2])
        return found or (_ENDED if error.severity_en in ("FATAL", "PANIC") else None)
    if isinstance(error, asyncpg.ClientConfigurationError):  # a DSN that says nothing usable
        return _REFUSED
    if isinstance(error, asyncpg.InterfaceError):  # also raised for misuse of the driver
        ended = "clos" in str(error) or "released back" in str(error)
        return _GONE if ended else None
    if isinstance(error, asyncpg.InternalClientError):  # the driver lost count of what was going on
        return _GONE
    if isinstance(error, TimeoutError):
        return DatabaseFault("late", drop=True)
    if isinstance(error, ssl.SSLCertVerificationError):
        return _REFUSED
    if isinstance(error, OSError):  # refused, reset, no such host, TLS
        return _GONE
    return None


def outcome_unknown(error: BaseException) -> bool:
    """Of an error of a COMMIT: may it have been done? A server that says ERROR has rolled back."""
    if isinstance(error, asyncpg.PostgresError) and error.sqlstate != "40003":
        found = fault(error)
        return found is not None and found.drop and error.severity_en != "ERROR"
    return fault(error) is not None


def by_hand(error: BaseException, spent_s: float, limit_s: float) -> bool:
    """Did somebody else cancel the statement? It ran for `spent_s` of `limit_s`.

    The server says it in its own language: where that is not English, a statement that did not
    use up its time was not cancelled for it.
    """
    if not isinstance(error, asyncpg.QueryCanceledError):
        return False
    said = str(error.message)
    if "timeout" in said or "user request" in said:
        return "user request" in said
    return not limit_s or spent_s < limit_s


def reason(error: BaseException) -> str:
    """The error in one line, with what may help."""
    found = fault(error)
    said = error.message if isinstance(error, asyncpg.PostgresError) else str(error)
    said = " ".join(str(said or "").split()) or type(error).__name__
    return f"{said} ({found.hint})" if found is not None and found.hint else said
