"""Which states of a server are whose fault."""

import socket
import ssl

import asyncpg
import pytest

from retrieval.store.database.faults import by_hand, fault, outcome_unknown, reason

pytestmark = pytest.mark.unit


def error(code: str, message: str = "said", severity: str = "ERROR") -> asyncpg.PostgresError:
    fields = {"C": code, "M": message, "S": severity, "V": severity}
    made = asyncpg.PostgresError.new(fields)
    assert isinstance(made, asyncpg.PostgresError)
    return made


# fmt: off
TABLE = [
    # connection lost
    ("08000", "gone", True), ("08003", "gone", True), ("08006", "gone", True),
    ("08001", "gone", True), ("08004", "gone", True), ("08P01", "refused", True),
    # state of the transaction
    ("25000", "refused", True), ("25001", "refused", True), ("25006", "gone", True),
    ("25P01", "refused", True), ("25P02", "refused", True), ("25P03", "refused", True),
    ("25P04", "refused", True),
    # who may log in, and to what
    ("28000", "refused", False), ("28P01", "refused", False), ("3D000", "refused", False),
    ("42501", "refused", False),
    # resources
    ("53000", "refused", False), ("53100", "refused", False), ("53200", "busy", True),
    ("53300", "busy", False), ("53400", "refused", False),
    # an administrator
    ("57000", "gone", True), ("57P01", "gone", True), ("57P02", "gone", True),
    ("57P03", "gone", True), ("57P05", "gone", True), ("57P04", "refused", True),
    # the machine below
    ("58000", "refused", True), ("58030", "refused", True), ("58P01", "refused", True),
    ("XX001", "refused", True), ("XX002", "refused", True),
    # others at the same rows
    ("40001", "again", False), ("40P01", "again", False), ("40003", "refused", True),
    ("72000", "again", False),
    ("55006", "busy", False), ("55P03", "busy", False),
    ("57014", "late", False),
    # poolers
    ("26000", "gone", True), ("42P05", "gone", True),
]
OURS = [
    "22001", "22003", "22021", "22P02", "22P05", "23502", "23503", "23505", "23514", "42601",
    "42703", "42883", "42P01", "42P07", "0A000", "21000", "54000", "P0001", "XX000",
]
# fmt: on


@pytest.mark.parametrize(("code", "verdict", "drop"), TABLE)
def test_states_of_the_server(code: str, verdict: str, drop: bool) -> None:
    found = fault(error(code))
    assert found is not None
    assert (found.verdict, found.drop) == (verdict, drop)


@pytest.mark.parametrize("code", OURS)
def test_a_wrong_statement_is_ours(code: str) -> None:
    assert fault(error(code)) is None


def test_only_a_read_only_session_condemns_all_connections() -> None:
    assert [code for code, *_ in TABLE if fault(error(code)).all] == ["25006"]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("raised", "verdict"),
    [
        (ConnectionRefusedError(111, "refused"), "gone"),
        (ConnectionResetError(), "gone"),
        (socket.gaierror(-2, "Name or service not known"), "gone"),
        (ssl.SSLError(1, "wrong version number"), "gone"),
        (ssl.SSLCertVerificationError(1, "self-signed certificate"), "refused"),
        (asyncpg.InterfaceError("connection is closed"), "gone"),
        (asyncpg.InternalClientError("got result for unknown protocol state"), "gone"),
        (asyncpg.ClientConfigurationError("invalid DSN"), "refused"),
        (asyncpg.InvalidCachedStatementError("cached plan must not change"), "gone"),
        (TimeoutError(), "late"),
    ],
)
def test_what_the_driver_and_the_network_raise(raised: Exception, verdict: str) -> None:
    found = fault(raised)
    assert found is not None
    assert found.verdict == verdict


@pytest.mark.parametrize(
    "raised", [ValueError("x"), KeyError("x"), asyncpg.InterfaceError("another operation runs")]
)
def test_other_errors_are_not_the_servers(raised: Exception) -> None:
    assert fault(raised) is None


def test_who_cancelled_a_statement() -> None:
    late = error("57014", "canceling statement due to statement timeout")
    stopped = error("57014", "canceling statement due to user request")
    assert not by_hand(late, 700, 600)
    assert by_hand(stopped, 0.1, 600)
    german = error("57014", "Anfrage wird storniert")
    assert by_hand(german, 0.1, 600)
    assert not by_hand(german, 600.1, 600)
    assert by_hand(german, 9000, 0)  # without a limit of ours
    assert not by_hand(TimeoutError(), 0.1, 600)


def test_a_commit_that_was_refused_did_not_happen() -> None:
    assert not outcome_unknown(error("53100"))
    assert not outcome_unknown(error("25006"))
    assert not outcome_unknown(error("23505"))
    assert not outcome_unknown(error("57014"))
    assert outcome_unknown(error("57P01", severity="FATAL"))
    assert outcome_unknown(error("40003"))
    assert outcome_unknown(ConnectionResetError())
    assert outcome_unknown(TimeoutError())


def test_a_reason_is_one_line_and_names_the_cure() -> None:
    assert reason(error("53100", "could not extend file:\n No space left")) == (
        "could not extend file: No space left"
    )
    assert "DB_STATEMENT_CACHE_SIZE" in reason(error("26000", "no such statement"))
    assert reason(TimeoutError()) == "TimeoutError"


@pytest.mark.parametrize("code", ["XX000", "0A000", "22023", "42704", "F0000"])
@pytest.mark.parametrize("severity", ["FATAL", "PANIC"])
def test_whatever_ends_a_session_is_no_fault_of_the_statement(code: str, severity: str) -> None:
    """So poolers answer that have no place ("XX000"), and servers that refuse a setting."""
    found = fault(error(code, severity=severity))
    assert found is not None
    assert (found.verdict, found.drop) == ("gone", True)
