"""Every error has words in every dialect."""

from collections.abc import Iterator

import pytest

import courier.console
import courier.console.guard
import courier.console.troubles
import courier.ops
import courier.ops.journal
import courier.web
from courier.core import errors
from courier.dialects.anypoint import errors as anypoint
from courier.dialects.cloudflare import errors as cloudflare
from courier.dialects.discue import errors as discue

# One way to build each, and a class that is never raised itself needs none.
EXAMPLES: dict[type[errors.BrokerError], errors.BrokerError] = {
    type(example): example
    for example in (
        errors.InvalidRequest("field", "reason"),
        errors.Unauthenticated("unknown"),
        errors.Forbidden("queues:read"),
        errors.NotFound("queue", "ref"),
        errors.Conflict("queue", "ref"),
        errors.RowsChanged("key", 3),
        errors.InUse("queue", "ref", "others"),
        errors.OverLimit("queue bytes", limit=1, actual=2),
        errors.SchemaBroken([("/n", "must be of type number")]),
        errors.Paused("queue"),
        errors.Frozen("queue"),
        errors.NotPullable("queue"),
        errors.ClaimLost("claim"),
        errors.RateLimited("publishing", retry_after_ms=1),
        errors.StoreUnavailable("reason"),
        errors.OutOfSpace(free=1, limit=2),
        errors.AnswersFull(),
        errors.StoreDamaged("block", 1),
        errors.ShuttingDown(),
        courier.web.NoRoute("/path"),
        courier.web.WrongMethod("POST", ["GET"]),
        courier.web.NotJson("reason"),
        courier.web.BodyTooLong(limit=1, actual=2),
        courier.web.BodyLate(wait_ms=1),
        courier.web.BodiesFull(limit=1),
        courier.ops.journal.OffsetTrimmed(1, 2),
        courier.console.Guessing("signing in", retry_after_ms=1),
        courier.console.guard.ForeignForm("another site sent it"),
        courier.console.troubles.PlanConflict("another plan runs on this queue"),
        courier.console.troubles.LifeTrimmed("message", 0),
        courier.console.troubles.Unmatched("queue", "ordrs", [("orders", "/console/queues/1")]),
    )
}
# What clients of Anypoint and of Discue are told, and after how many seconds they may come again.
TOLD: dict[type[errors.BrokerError], tuple[tuple[int, int | None], tuple[int, int | None]]] = {
    errors.InvalidRequest: ((400, None), (422, None)),
    errors.Unauthenticated: ((401, None), (401, None)),
    errors.Forbidden: ((403, None), (403, None)),
    errors.NotFound: ((404, None), (404, None)),
    errors.Conflict: ((400, None), (422, None)),
    errors.RowsChanged: ((400, None), (422, None)),
    errors.InUse: ((400, None), (422, None)),
    errors.OverLimit: ((429, 60), (402, None)),
    errors.SchemaBroken: ((400, None), (422, None)),
    errors.Paused: ((503, 60), (423, 60)),
    errors.Frozen: ((503, 60), (423, 60)),
    errors.NotPullable: ((503, 60), (423, 60)),
    errors.ClaimLost: ((400, None), (409, None)),
    errors.RateLimited: ((429, 1), (429, 1)),
    errors.StoreUnavailable: ((503, 1), (503, 1)),
    errors.OutOfSpace: ((503, 30), (503, 30)),
    errors.AnswersFull: ((503, 1), (503, 1)),
    errors.StoreDamaged: ((503, 1), (503, 1)),
    errors.ShuttingDown: ((503, 1), (503, 1)),
    courier.web.NoRoute: ((404, None), (404, None)),
    courier.web.WrongMethod: ((405, None), (405, None)),
    courier.web.NotJson: ((400, None), (400, None)),
    courier.web.BodyTooLong: ((413, None), (413, None)),
    courier.web.BodyLate: ((408, None), (408, None)),
    courier.web.BodiesFull: ((503, 1), (503, 1)),
}
ABSTRACT = {errors.BrokerError, errors.Rejected, errors.Unavailable}
# Nobody is answered: the connection is closed.
NEVER_RENDERED = {errors.OutcomeUnknown}
OF_ONE_SITE = {
    courier.ops.journal.OffsetTrimmed,
    courier.console.Guessing,
    courier.console.guard.ForeignForm,
    courier.console.troubles.LifeTrimmed,
    courier.console.troubles.PlanConflict,
    courier.console.troubles.Unmatched,
}


def subclasses(kind: type[errors.BrokerError]) -> Iterator[type[errors.BrokerError]]:
    for each in kind.__subclasses__():
        yield each
        yield from subclasses(each)


def of_a_dialect(kind: type[errors.BrokerError]) -> bool:
    """Raised and refused by the same dialect, whose own tests see to it."""
    return kind.__module__.startswith("courier.dialects.")


def test_every_error_is_among_the_examples() -> None:
    found = set(subclasses(errors.BrokerError)) - ABSTRACT - NEVER_RENDERED
    assert {kind for kind in found if not of_a_dialect(kind)} == set(EXAMPLES)


@pytest.mark.parametrize(
    "kind", [kind for kind in EXAMPLES if kind not in OF_ONE_SITE], ids=lambda kind: kind.__name__
)
def test_cloudflare_has_a_refusal_for_every_error(kind: type[errors.BrokerError]) -> None:
    refused = cloudflare.REFUSALS.of(EXAMPLES[kind])
    assert 400 <= refused.status <= 503 and refused.status != 500
    assert refused.message


def test_anypoint_and_discue_refuse_every_error_as_the_table_says() -> None:
    assert set(TOLD) == set(EXAMPLES) - OF_ONE_SITE
    for kind, told in TOLD.items():
        for refusals, wanted in zip((anypoint.REFUSALS, discue.REFUSALS), told, strict=True):
            refused = refusals.of(EXAMPLES[kind])
            assert (refused.status, refused.retry_after_s) == wanted, kind
            assert refused.message, kind


@pytest.mark.parametrize(
    ("what", "status"),
    [("message bytes", 413), ("message headers", 413), ("queue bytes", 429), ("queues", 400),
     ("exchanges", 400), ("bindings of an exchange", 400)],
)  # fmt: skip
def test_anypoint_tells_what_is_too_large_from_what_is_too_many(what: str, status: int) -> None:
    refused = anypoint.REFUSALS.of(errors.OverLimit(what, limit=1, actual=2))
    assert refused.status == status
    assert "1" in refused.message and "2" in refused.message


@pytest.mark.parametrize(
    ("kind", "message"),
    [("queue", "queue not found"), ("exchange", "exchange not found"),
     ("destination", "Destination not found"), ("region", "region not found")],
)  # fmt: skip
def test_anypoint_says_what_was_not_found_in_the_contracts_words(kind: str, message: str) -> None:
    assert anypoint.REFUSALS.of(errors.NotFound(kind, "ref")).message == message


@pytest.mark.parametrize("kind", EXAMPLES, ids=lambda kind: kind.__name__)
def test_the_console_has_a_refusal_for_every_error(kind: type[errors.BrokerError]) -> None:
    status, code = courier.console.troubles.refusal(EXAMPLES[kind])
    assert 400 <= status <= 503 and status != 500
    assert code


@pytest.mark.parametrize("kind", EXAMPLES, ids=lambda kind: kind.__name__)
def test_our_own_routes_have_a_refusal_for_every_error(kind: type[errors.BrokerError]) -> None:
    refused = courier.ops.Ops.refusals.of(EXAMPLES[kind])
    assert 400 <= refused.status <= 503 and refused.status != 500
    assert str(refused.code).isidentifier()
