"""Every error has words in every dialect."""

from collections.abc import Iterator

import pytest

import courier.ops
import courier.ops.journal
import courier.web
from courier.core import errors
from courier.dialects.cloudflare.errors import refusal

# One way to build each, and a class that is never raised itself needs none.
EXAMPLES: dict[type[errors.BrokerError], errors.BrokerError] = {
    type(example): example
    for example in (
        errors.InvalidRequest("field", "reason"),
        errors.Unauthenticated("unknown"),
        errors.Forbidden("queues:read"),
        errors.NotFound("queue", "ref"),
        errors.Conflict("queue", "ref"),
        errors.InUse("queue", "ref", "others"),
        errors.OverLimit("queue bytes", limit=1, actual=2),
        errors.Paused("queue"),
        errors.Frozen("queue"),
        errors.NotPullable("queue"),
        errors.RateLimited("publishing", retry_after_ms=1),
        errors.StoreUnavailable("reason"),
        errors.ShuttingDown(),
        courier.web.NoRoute("/path"),
        courier.web.WrongMethod("POST", ["GET"]),
        courier.web.NotJson("reason"),
        courier.web.BodyTooLong(limit=1, actual=2),
        courier.ops.journal.OffsetTrimmed(1, 2),
    )
}
ABSTRACT = {errors.BrokerError, errors.Rejected, errors.Unavailable}
OF_ONE_SITE = {courier.ops.journal.OffsetTrimmed}


def subclasses(kind: type[errors.BrokerError]) -> Iterator[type[errors.BrokerError]]:
    for each in kind.__subclasses__():
        yield each
        yield from subclasses(each)


def test_every_error_is_among_the_examples() -> None:
    assert set(subclasses(errors.BrokerError)) - ABSTRACT == set(EXAMPLES)


@pytest.mark.parametrize("kind", set(EXAMPLES) - OF_ONE_SITE, ids=lambda kind: kind.__name__)
def test_cloudflare_has_a_refusal_for_every_error(kind: type[errors.BrokerError]) -> None:
    refused = refusal(EXAMPLES[kind], None)
    assert 400 <= refused.status <= 503 and refused.status != 500
    assert refused.message


@pytest.mark.parametrize("kind", EXAMPLES, ids=lambda kind: kind.__name__)
def test_our_own_routes_have_a_refusal_for_every_error(kind: type[errors.BrokerError]) -> None:
    status, code = courier.ops.refusal(EXAMPLES[kind])
    assert 400 <= status <= 503 and status != 500
    assert code.isidentifier()
