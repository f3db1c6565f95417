"""Scores after the reranker: normalisation, recency, proximity, proof, and their product.

    final = reranker * recency_boost * temporal_boost * proof_boost,
    boost = 1 + alpha * (signal - 0.5)

so a neutral signal (0.5) changes nothing. All functions are pure, over arrays of candidates, in
float64; times are int64 microseconds UTC with NO_TIME for unknown.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from retrieval.types import DAY_US, NO_TIME, Bools, Doubles, Floats, Ints, Longs

ALPHA_RECENCY = 0.2
ALPHA_TEMPORAL = 0.2
ALPHA_PROOF = 0.1
NEUTRAL = 0.5
OUTSIDE = 0.7
"""What is known not to hold at the time that is asked about keeps so much of its score: less than
the signals could win back for it, and a clearly better match still stands."""

_RAW_LIMIT = 1e30
"""Raw scores are reported within this, so that infinities stay valid JSON."""


@dataclass(frozen=True, slots=True)
class Reranked:
    """raw and normalised reranker scores, float64 (n,), finite."""

    raw: Doubles
    normalised: Doubles


def normalise(scores: Floats | Doubles, scale: str = "unknown") -> Reranked:
    """Scores of one recall on the scale [0, 1].

    scale "logit" always takes the sigmoid, "probability" never; "unknown" lets the batch decide:
    if every finite score lies in [0, 1] they pass unchanged, otherwise all take the sigmoid.
    NaN becomes raw 0 and normalised 0; +inf 1, -inf 0.
    """
    raw = np.asarray(scores, np.float64)
    missing = np.isnan(raw)
    finite = raw[np.isfinite(raw)]
    squash = scale == "logit" or (
        scale == "unknown" and len(finite) > 0 and not ((finite >= 0) & (finite <= 1)).all()
    )
    normalised = sigmoid(raw) if squash else np.clip(raw, 0.0, 1.0)
    normalised = np.where(missing, 0.0, normalised)
    clean = np.clip(np.where(missing, 0.0, raw), -_RAW_LIMIT, _RAW_LIMIT)
    return Reranked(clean, normalised)


def sigmoid(x: Doubles) -> Doubles:
    """1 / (1 + e^-x) without overflow for any x; infinities give 0 and 1."""
    with np.errstate(invalid="ignore"):
        e = np.exp(-np.abs(x))
        return np.where(x >= 0, 1.0 / (1.0 + e), e / (1.0 + e))


def passthrough(n: int) -> Doubles:
    """The stand-in score of position i of n when nothing reranked: 1.0 down to 0.1."""
    return 1.0 - 0.9 * np.arange(n) / max(1, n - 1)


def recency(
    start: Longs,
    end: Longs,
    mentioned: Longs,
    now: int,
    *,
    function: str = "linear",
    window_days: float = 365.0,
    halflife_days: float = 90.0,
) -> Doubles:
    """How recent each memory is, in [0, 1]; 0.5 where no date is known or function is "none".

    The date is the start of the event, else when it was mentioned, else its end. A memory about a
    whole calendar month or year ("in 2015") is dated from the end of the period and never counts
    as more than neutral: its start would invent staleness, an ongoing period novelty.
    """
    n = len(start)
    if function == "none" or (function == "exponential" and halflife_days <= 0):
        return np.full(n, NEUTRAL)
    date = np.where(start != NO_TIME, start, np.where(mentioned != NO_TIME, mentioned, end))
    coarse = whole_periods(start, end)
    date = np.where(coarse, end, date)
    days = (now - np.where(date == NO_TIME, now, date)) / DAY_US
    if function == "exponential":
        signal = np.minimum(1.0, 0.5 ** (np.maximum(days, 0.0) / halflife_days))
    else:
        window = window_days if window_days > 0 else 365.0
        signal = np.clip(1.0 - days / window, 0.1, 1.0)
    signal = np.where(coarse, np.minimum(signal, NEUTRAL), signal)
    return np.where(date == NO_TIME, NEUTRAL, signal)


def whole_periods(start: Longs, end: Longs) -> Bools:
    """Which spans are one complete calendar month or year, within a day at the end."""
    known = (start != NO_TIME) & (end != NO_TIME)
    safe = np.where(known, start, 0)
    day = (safe // DAY_US).astype("datetime64[D]")
    month = day.astype("datetime64[M]")
    first = known & (day == month.astype("datetime64[D]"))
    year = month.astype("datetime64[Y]")

    def ends_with(period_end: np.ndarray[tuple[int], np.dtype[np.datetime64]]) -> Bools:
        limit = period_end.astype("datetime64[D]").astype(np.int64) * DAY_US
        return np.abs(np.where(known, end, 0) - limit) <= DAY_US

    of_month = first & ends_with(month + 1)
    of_year = first & (month == year.astype("datetime64[M]")) & ends_with(year + 1)
    whole: Bools = of_month | of_year
    return whole


def proof(count: Ints) -> Doubles:
    """clamp(0.5 + ln(count) / 10, 0, 1) where count >= 1, else 0.5."""
    known = count >= 1
    return np.where(
        known, np.clip(0.5 + np.log(np.where(known, count, 1)) / 10.0, 0.0, 1.0), NEUTRAL
    )


def boost(signal: Doubles, alpha: float) -> Doubles:
    return 1.0 + alpha * (signal - NEUTRAL)


def steps(
    reranker: Doubles, recent: Doubles, near: Doubles, proven: Doubles
) -> list[tuple[str, Doubles]]:
    """The product of the module's head after each factor, by name; the last is the whole."""
    running = [("base", reranker)]
    for name, signal, alpha in (
        ("recency", recent, ALPHA_RECENCY),
        ("time", near, ALPHA_TEMPORAL),
        ("proof", proven, ALPHA_PROOF),
    ):
        running.append((name, running[-1][1] * boost(signal, alpha)))
    return running
