"""The faults: what stands in the source, what is planted instead, and the test that notices."""

from typing import NamedTuple


class Fault(NamedTuple):
    """`file` is below `src/courier`; `old` stands in it once."""

    file: str
    old: str
    new: str
    test: str


FAULTS = (
    Fault(
        "core/lifecycle.py",
        "attempt >= queue.attempts_max",
        "attempt > queue.attempts_max",
        "tests/core/test_lifecycle.py::test_the_last_attempt_buries[3-True]",
    ),
    Fault(
        "core/lifecycle.py",
        "queue.retry_delay_ms if delay_ms is None else delay_ms",
        "queue.retry_delay_ms if not delay_ms else delay_ms",
        "tests/core/test_lifecycle.py::test_a_delay_of_its_own_overrides_the_queues[0-1000]",
    ),
    Fault(
        "core/lifecycle.py",
        "published_ms + queue.retention_ms if own_ms is None else own_ms",
        "published_ms + queue.retention_ms",
        "tests/core/test_lifecycle.py::test_a_messages_own_expiry_wins_over_the_queues[599-599]",
    ),
    Fault(
        "core/routing.py",
        "return bool(found) is rule.value",
        "return bool(found)",
        "tests/core/test_routing.py::test_whether_a_name_exists_does_not_depend_on_its_value[text]",
    ),
    Fault(
        "core/routing.py",
        "and not isinstance(value, bool)",
        "",
        "tests/core/test_routing.py::test_a_rule_about_numbers_holds_for_numbers_only[lt]",
    ),
    Fault(
        "core/routing.py",
        "bool(low <= value <= high)",
        "bool(low <= value < high)",
        "tests/core/test_routing.py::test_a_rule_judges_a_value[rule25-5-True]",
    ),
    Fault(
        "core/retry.py",
        "if attempt >= attempts_max:",
        "if attempt > attempts_max:",
        "tests/delivery/test_retry.py::test_eleven_attempts_take_about_28_"
        "hours_and_then_it_is_over",
    ),
    Fault(
        "core/retry.py",
        "max(spread_ms, min(asked_ms, ASKED_MS_MAX))",
        "spread_ms",
        "tests/delivery/test_retry.py::test_the_wait_is_at_least_what_was_"
        "asked_for_but_never_more_than_an_hour_of_it[60000-60000]",
    ),
    Fault(
        "core/keys.py",
        "if self.targets is not None and self.targets.isdisjoint(targets):",
        "if targets and self.targets is not None and self.targets.isdisjoint(targets):",
        "tests/core/test_reach.py::test_a_limited_grant_passes_only_for_a_"
        "target_that_was_named[targets0-False]",
    ),
    Fault(
        "core/keys.py",
        "if not all(held):",
        "if not any(held):",
        "tests/core/test_reach.py::test_grants_of_one_scope_add_up",
    ),
    Fault(
        "core/keys.py",
        "if key.expires_ms is not None and key.expires_ms <= now_ms:",
        "if False:",
        "tests/core/test_rotation.py::test_a_disabled_or_expired_key_has_no_good_secret",
    ),
    Fault(
        "core/keys.py",
        "if own is not None and not (grant.targets and own.issuperset(grant.targets)):",
        "if own is not None and not own.issuperset(grant.targets):",
        "tests/core/test_reach.py::test_a_limited_key_hands_out_no_more_than_it_has[wanted2-False]",
    ),
    Fault(
        "core/rotation.py",
        "drops = [] if overlap_ms else sessions",
        "drops: list[Session] = []",
        "tests/core/test_sessions.py::test_another_secret_at_once_ends_the_"
        "tokens_under_the_old_one[app]",
    ),
    Fault(
        "core/sessions.py",
        "key=self._store.secret,",
        "key=b'',",
        "tests/core/test_sessions.py::test_a_token_of_one_store_is_none_of_another",
    ),
    Fault(
        "core/broker.py",
        "        if queue.frozen:\n            raise Frozen(queue.name)\n",
        "",
        "tests/core/test_bulk.py::test_nothing_is_stored_of_what_is_too_much",
    ),
    Fault(
        "core/broker.py",
        "known = min(max(0, stored - first), len(drafts))",
        "known = 0",
        "tests/core/test_bulk.py::test_only_what_is_new_is_checked_and_counted",
    ),
    Fault(
        "core/broker.py",
        "if queue.encrypted or exchange.encrypted:",
        "if queue.encrypted:",
        "tests/wire/anypoint/test_encryption.py::test_copies_are_encrypted_for_"
        "the_exchange_or_for_the_queue[True-False]",
    ),
    Fault(
        "core/broker.py",
        "            self._store.wake(queue.id)  # this hint",
        "            pass  # this hint",
        "tests/core/test_await_pull.py::test_a_wait_that_is_cancelled_passes_the_news_on[1]",
    ),
    Fault(
        "core/announcer.py",
        '        if queue.frozen:\n            return [], "frozen"\n',
        "",
        "tests/wire/cloudflare/test_event_delivery.py::test_a_queue_that_"
        "refuses_messages_keeps_no_news_from_the_others",
    ),
    Fault(
        "core/news.py",
        "and announcement.offset > max(each.since, begun.get(each.id, 0))",
        "and announcement.offset > each.since",
        "tests/core/test_follower.py::test_events_between_asking_for_a_"
        "subscription_and_its_creation_are_not_its_own[memory]",
    ),
    Fault(
        "core/watch.py",
        "count * 100 < threshold * LOW_PERCENT",
        "count < threshold",
        "tests/wire/cloudflare/test_own_events.py::test_a_backlog_over_the_"
        "threshold_is_told_once_until_it_has_shrunk",
    ),
    Fault(
        "core/sweeper.py",
        "read = min((pipeline.offset for pipeline in pipelines), default=head.last)",
        "read = head.last",
        "tests/ops/test_trim.py::test_old_events_stay_until_every_pipeline_has_them",
    ),
    Fault(
        "store/engine/leases.py",
        "if leased_max is not None and count > leased_max - line.leased:",
        "if False:",
        "tests/conformance/store/test_fifo.py::test_no_more_is_handed_out_than_"
        "may_be_leased[engine]",
    ),
    Fault(
        "store/engine/leases.py",
        "                if item.attempt != 1:\n",
        "                if False:\n",
        "tests/conformance/store/test_claims.py::test_settlements_of_other_"
        "leases_leave_a_claim_alone[engine]",
    ),
    Fault(
        "delivery/verdict.py",
        "rest_acked = ok and not answer.retry_all",
        "rest_acked = ok",
        "tests/delivery/workers/test_answers.py::test_a_message_of_its_own_"
        "word_is_not_retried_with_all",
    ),
    Fault(
        "delivery/targets.py",
        "inner = address.ipv4_mapped if isinstance(address, IPv6Address) else None",
        "inner = None",
        "tests/delivery/test_targets.py::test_the_operator_may_allow_a_network["
        "127.0.0.0/8-::ffff:127.0.0.1]",
    ),
    Fault(
        "delivery/targets.py",
        '            self.check(ip_address(address.partition("%")[0]))\n            found',
        "            found",
        "tests/delivery/test_targets.py::test_a_name_that_stands_for_both_"
        "kinds_is_refused[addresses1]",
    ),
    Fault(
        "delivery/hosts.py",
        "if not _NUMBER.fullmatch(parts[-1]):",
        "if not parts[-1].isdigit():",
        "tests/delivery/test_hosts.py::test_every_spelling_is_read_as_the_address_that_it_is",
    ),
    Fault(
        "delivery/signing.py",
        'signed = b"%s.%d.%s" % (id.encode(), seconds, body)',
        'signed = b"%s.%d." % (id.encode(), seconds)',
        "tests/delivery/test_signing.py::test_a_stock_library_verifies_a_push[1]",
    ),
    Fault(
        "delivery/signing.py",
        "seconds = at_ms // 1000",
        "seconds = at_ms",
        "tests/delivery/test_signing.py::test_a_stock_library_verifies_a_push[0]",
    ),
    Fault(
        "delivery/liveness.py",
        "in_row >= FAILURES_MAX",
        "in_row > FAILURES_MAX",
        "tests/delivery/test_liveness.py::test_the_state_follows_from_how_"
        "probes_and_pushes_went[----inactive]",
    ),
)
