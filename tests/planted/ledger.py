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
        "delivery/pace.py",
        "if attempt >= attempts_max:",
        "if attempt > attempts_max:",
        "tests/delivery/test_retry.py::test_eleven_attempts_take_about_28_"
        "hours_and_then_it_is_over",
    ),
    Fault(
        "delivery/pace.py",
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
        "core/keys.py",
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
        "core/admission.py",
        "        if queue.frozen:\n            raise Frozen(queue.name)\n",
        "        pass\n",
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
        "encrypted = queue.encrypted or exchange.encrypted",
        "encrypted = queue.encrypted",
        "tests/wire/anypoint/test_encryption.py::test_copies_are_encrypted_for_"
        "the_exchange_or_for_the_queue[True-False]",
    ),
    Fault(
        "core/broker.py",
        "            self._waiters.wake(queue.id)  # this hint",
        "            pass  # this hint",
        "tests/core/test_await_pull.py::test_a_wait_that_is_cancelled_passes_the_news_on[1]",
    ),
    Fault(
        "core/announcer.py",
        '        except Frozen:\n            return [], "frozen"\n',
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
        "store/engine/reading.py",
        "        self._leases.note_puller(line)\n",
        "",
        "tests/conformance/store/test_pushes_delivered.py::test_a_queue_that_is_pulled_from_"
        "keeps_its_messages_for_pullers[engine-peek]",
    ),
    Fault(
        "store/engine/reading.py",
        "        return await self._ready(line, count, now_ms, bodies=bodies",
        "        self._leases.note_puller(line)\n"
        "        return await self._ready(line, count, now_ms, bodies=bodies",
        "tests/conformance/store/test_pushes_delivered.py::test_who_only_looks_is_no_puller"
        "[engine]",
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
        "    if item.attempt != 1:\n",
        "    if False:\n",
        "tests/conformance/store/test_claims.py::test_settlements_of_other_"
        "leases_leave_a_claim_alone[engine]",
    ),
    Fault(
        "delivery/calls.py",
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
        "tests/delivery/test_targets.py::test_every_address_of_a_name_is_checked_before_it_is_"
        "called",
    ),
    Fault(
        "delivery/targets.py",
        "if not _NUMBER.fullmatch(parts[-1]):",
        "if not parts[-1].isdigit():",
        "tests/delivery/test_hosts.py::test_every_spelling_is_read_as_the_address_that_it_is",
    ),
    Fault(
        "delivery/secrets.py",
        'signed = b"%s.%d.%s" % (id.encode(), seconds, body)',
        'signed = b"%s.%d." % (id.encode(), seconds)',
        "tests/delivery/test_signing.py::test_a_stock_library_verifies_a_push[1]",
    ),
    Fault(
        "delivery/secrets.py",
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
    Fault(
        "drawing.py",
        "            if share == last:\n                continue\n",
        "",
        "tests/core/test_drawing.py::test_a_path_has_a_step_for_each_change_and_a_gap_for_"
        "none[shares1--]",
    ),
    Fault(
        "drawing.py",
        "        return self.floor - share * (self.floor - self.top)",
        "        return self.floor - share * self.height",
        "tests/core/test_drawing.py::test_moments_and_shares_lie_inside_the_margins",
    ),
    Fault(
        "drawing.py",
        "        while at_ms <= self.until_ms and len(found) <= most:",
        "        while at_ms <= self.until_ms:",
        "tests/core/test_drawing.py::test_a_time_axis_never_has_more_than_its_limit",
    ),
    Fault(
        "store/engine/blocks.py",
        "    if row.data is not None and checksum(row.key, row.data) != row.data_sum:\n        "
        'raise StoreDamaged("block", row.key)\n',
        "",
        "tests/store/test_engine.py::test_a_damaged_block_is_an_error_and_never_a_wrong_body[data]",
    ),
    Fault(
        "store/engine/book.py",
        "            if line.minute < self.minute and self.lines",
        "            if self.lines",
        "tests/conformance/store/test_levels.py::test_changes_within_the_minute_of_creation_"
        "leave_no_level[engine]",
    ),
    Fault(
        "store/engine/book.py",
        "        if now_ms > self._runs_ms:\n            self._runs_ms = now_ms\n",
        "        self._runs_ms = now_ms\n",
        "tests/conformance/store/test_journal.py::test_times_of_events_never_step_back[engine]",
    ),
    Fault(
        "store/engine/book.py",
        "        held = [line for line in self.dropped.values() if line.count]\n",
        "        held: list[QueueLine] = []\n",
        "tests/conformance/store/test_backlogs.py::test_a_dropped_queue_counts_until_it_is_"
        "swept[engine]",
    ),
    Fault(
        "store/engine/book.py",
        "        if line.pulled or line.id in self.consumed:",
        "        if line.pulled:",
        "tests/conformance/store/test_pushes_delivered.py::test_a_queue_that_is_pulled_from_"
        "keeps_its_messages_for_pullers[engine-pull]",
    ),
    Fault(
        "store/engine/book.py",
        "        if min(gone.times) <= line.oldest_ms:\n",
        "        if min(gone.times) < line.oldest_ms:\n",
        "tests/conformance/store/test_publish.py::test_the_oldest_message_is_the_oldest_that_is_"
        "left[engine]",
    ),
    Fault(
        "store/engine/claims.py",
        "        lost = count + len(rows) != claim.total",
        "        lost = False",
        "tests/conformance/store/test_claims.py::test_an_acknowledged_claim_has_nothing_to_read_"
        "or_extend[engine]",
    ),
    Fault(
        "store/engine/claims.py",
        "            if min(each.due_ms, expires_ms) <= now_ms:",
        "            if each.due_ms <= now_ms:",
        "tests/conformance/store/test_claims.py::test_a_claim_is_lost_with_its_expired_messages_"
        "though_the_sweep_is_not_through[engine]",
    ),
    Fault(
        "store/engine/claims.py",
        "            if before is not None and before.acked:",
        "            if before is not None:",
        "tests/conformance/store/test_claims.py::test_a_claim_that_was_not_acknowledged_is_not_"
        "forgotten_with_the_next[engine]",
    ),
    Fault(
        "store/engine/claims.py",
        "now_ms + lease_ms + DAY_MS)",
        "now_ms + DAY_MS)",
        "tests/conformance/store/test_claims.py::test_a_claim_is_forgotten_a_day_after_its_"
        "end[engine-loss]",
    ),
    Fault(
        "store/engine/claims.py",
        "            known_ms = DAY_MS if after is None else CLAIM_KNOWN_MS",
        "            known_ms = DAY_MS",
        "tests/conformance/store/test_claims.py::test_a_claim_of_a_row_is_known_until_the_next_"
        "is_acknowledged[engine]",
    ),
    Fault(
        "store/engine/claims.py",
        "        for row in members.rows:\n            self._deliveries.put(line, row, LEASED, "
        "until_ms)\n",
        "",
        "tests/conformance/store/test_claims.py::test_a_claim_of_what_was_handed_out_before_can_"
        "be_extended[engine]",
    ),
    Fault(
        "store/engine/claims.py",
        "            first -= size\n",
        "",
        "tests/conformance/store/test_claims.py::test_a_claim_begins_with_what_was_handed_out_"
        "before[engine]",
    ),
    Fault(
        "store/engine/deliveries.py",
        "            elif delivery.seq == line.cursor + 1:\n",
        "            elif delivery.seq > line.cursor:\n",
        "tests/conformance/store/test_purge.py::test_a_removal_deletes_the_named_messages_"
        "whatever_their_state[engine]",
    ),
    Fault(
        "store/engine/deliveries.py",
        "        if expires_ms is not None and expires_ms <= now_ms:\n            return place - "
        "at",
        "        if expires_ms is not None and expires_ms < now_ms:\n            return place - at",
        "tests/conformance/store/test_ttl.py::test_however_many_expire_at_once_none_of_them_is_"
        "handed_out[engine-own-standard]",
    ),
    Fault(
        "store/engine/deliveries.py",
        "(last.until_ms, last.at_ms, last.claim) == (until_ms, now_ms, claim)",
        "(last.until_ms, last.at_ms) == (until_ms, now_ms)",
        "tests/conformance/store/test_claims.py::test_nobody_else_gets_a_message_of_a_"
        "claim[engine]",
    ),
    Fault(
        "store/engine/deliveries.py",
        "        leased.until_ms = until_ms\n        self._book.range_ends(line, leased)\n",
        "        leased.until_ms = until_ms\n",
        "tests/conformance/store/test_claims.py::test_a_claim_that_is_extended_lasts_as_long_as_"
        "was_said_last[engine]",
    ),
    Fault(
        "store/engine/deliveries.py",
        "            if row.first_ms is None:\n                row.first_ms = now_ms\n",
        "            row.first_ms = now_ms\n",
        "tests/conformance/store/test_journal.py::test_the_life_of_an_acked_message[engine]",
    ),
    Fault(
        "store/engine/deliveries.py",
        "            row.claim = claim\n",
        "",
        "tests/conformance/store/test_claims.py::test_a_claim_begins_with_what_was_handed_out_"
        "before[engine]",
    ),
    Fault(
        "store/engine/deliveries.py",
        "            _shift_group(line, delivery, (state == LEASED) - (delivery.state == "
        "LEASED))\n",
        "",
        "tests/conformance/store/test_fifo.py::test_a_retried_message_comes_before_its_"
        "successors[engine]",
    ),
    Fault(
        "store/engine/deliveries.py",
        "            and last.first + len(last.done) == first\n",
        "",
        "tests/conformance/store/test_lease.py::test_neighbours_of_a_removed_message_are_leased_"
        "and_settled[engine]",
    ),
    Fault(
        "store/engine/deliveries.py",
        "                if after < seq <= upto:",
        "                if seq <= upto:",
        "tests/conformance/store/test_lease.py::test_leased_messages_are_browsed_from_any_"
        "place[engine]",
    ),
    Fault(
        "store/engine/deliveries.py",
        "        last = min(owner.tail, line.tail, upto)",
        "        last = min(owner.tail, upto)",
        "tests/conformance/store/test_pushes_journal.py::test_a_deleted_listener_is_owed_nothing_"
        "that_is_published_later[engine]",
    ),
    Fault(
        "store/engine/endings.py",
        "            if delivery is None or delivery.state == LEASED:",
        "            if delivery is None:",
        "tests/conformance/store/test_redrive.py::test_a_leased_dead_letter_stays[engine-99-False]",
    ),
    Fault(
        "store/engine/endings.py",
        "            owed = await self.owed(line, seqs) if aged else set()",
        "            owed: set[int] = set()",
        "tests/conformance/store/test_pushes_kept.py::test_retention_ends_no_push_that_is_"
        "open[engine-standard-on the queue]",
    ),
    Fault(
        "store/engine/endings.py",
        '        if message.origin is None or message.origin.reason != "attempts":',
        "        if message.origin is None:",
        "tests/conformance/store/test_redrive.py::test_a_redriven_message_is_no_dead_letter_on_"
        "its_source[engine]",
    ),
    Fault(
        "store/engine/endings.py",
        "        if kind not in _DONE and line.pushes:",
        "        if line.pushes:",
        "tests/conformance/store/test_pushes_kept.py::test_a_buried_message_is_kept_until_it_has_"
        "arrived[engine-retry]",
    ),
    Fault(
        "store/engine/endings.py",
        '        elif reason == "expired":\n            pushes.expired',
        "        else:\n            pushes.expired",
        "tests/conformance/store/test_pushes_kept.py::test_a_kept_message_can_be_removed_and_"
        "purged[engine-deleted]",
    ),
    Fault(
        "store/engine/endings.py",
        "        opened = [each for each in ended if each.state != EXHAUSTED]",
        "        opened = list(ended)",
        "tests/conformance/store/test_pushes_journal.py::test_the_end_of_a_message_is_followed_"
        "by_that_of_its_open_pushes[engine-deleted]",
    ),
    Fault(
        "store/engine/endings.py",
        "        pushes.missed -= sum([each.report is not None for each in ended])\n",
        "",
        "tests/conformance/store/test_pushes_settle.py::test_the_numbers_count_what_is_there_but_"
        "for_what_arrived[engine]",
    ),
    Fault(
        "store/engine/endings.py",
        "sorted(left if arrived else left & acknowledged)",
        "sorted(left)",
        "tests/conformance/store/test_pushes_delivered.py::test_what_only_a_deleted_listener_was_"
        "owed_was_not_delivered[engine]",
    ),
    Fault(
        "store/engine/endings.py",
        "            pushes.passed = min(pushes.passed, each.seq - 1)\n",
        "",
        "tests/conformance/store/test_pushes_kept.py::test_a_push_given_up_under_a_longer_"
        "retention_ends_with_that[engine]",
    ),
    Fault(
        "store/engine/endings.py",
        "            there = {seq for seq, each in held.items() if each.state != LEASED}",
        "            there = set(held)",
        "tests/conformance/store/test_purge.py::test_a_removal_can_leave_leased_messages_"
        "alone[engine]",
    ),
    Fault(
        "store/engine/endings.py",
        "            there -= {seq}\n",
        "",
        "tests/conformance/store/test_purge.py::test_a_removal_deletes_the_named_messages_"
        "whatever_their_state[engine]",
    ),
    Fault(
        "store/engine/engine.py",
        "            answers.append(Leased(mine, leased.until_ms, leased.stats))\n            at "
        "+= count",
        "            answers.append(Leased(mine, leased.until_ms, leased.stats))\n            at "
        "+= len(mine) and 1",
        "tests/conformance/store/test_races.py::test_no_message_is_leased_twice[engine]",
    ),
    Fault(
        "store/engine/engine.py",
        "answers.append(mine if mine or not call else LATER)",
        "answers.append(mine)",
        "tests/conformance/store/test_bury.py::test_long_messages_are_buried_a_few_at_a_"
        "time[engine-retried at once]",
    ),
    Fault(
        "store/engine/fifo.py",
        "        if not left and others:\n            passed = row.group\n",
        "        if not left and others:\n",
        "tests/conformance/store/test_fifo.py::test_callers_of_one_moment_get_messages_of_"
        "different_groups[engine-several of each]",
    ),
    Fault(
        "store/engine/facts.py",
        "        return [fact for fact in facts.values() if now_ms < fact.until_ms]",
        "        return list(facts.values())",
        "tests/conformance/store/test_rows.py::test_rows_below_a_key_are_those_that_are_"
        "known[engine]",
    ),
    Fault(
        "store/engine/fifo.py",
        "            if head.state == WAITING:\n",
        "            if head.state != READY:\n",
        "tests/conformance/store/test_fifo.py::test_a_delayed_message_holds_back_those_behind_"
        "it[engine]",
    ),
    Fault(
        "store/engine/fifo.py",
        "                if row.follows and not row.attempt:",
        "                if not row.attempt:",
        "tests/conformance/store/test_fifo.py::test_a_changed_delay_does_not_reach_a_delay_of_"
        "its_own[engine]",
    ),
    Fault(
        "store/engine/fifo.py",
        "        if row.state == DELAYED:\n            passed = row.group\n            continue\n",
        "        if row.state == DELAYED:\n            continue\n",
        "tests/conformance/store/test_fifo.py::test_a_delayed_message_holds_back_those_behind_"
        "it[engine]",
    ),
    Fault(
        "store/engine/fifo.py",
        "                if row.state == DELAYED:\n                    break\n",
        "                if row.state == DELAYED:\n                    continue\n",
        "tests/conformance/store/test_fifo.py::test_a_delayed_message_holds_back_those_behind_"
        "it[engine]",
    ),
    Fault(
        "store/engine/fifo.py",
        "n is not None and n not in leased]",
        "n is not None]",
        "tests/conformance/store/test_fifo.py::test_a_retried_message_waits_for_those_of_its_"
        "group_that_are_still_leased[engine]",
    ),
    Fault(
        "store/engine/journal.py",
        '                columns["seq"] = list(range(seq[0], seq[0] + count))',
        '                columns["seq"] = [seq[0]] * count',
        "tests/conformance/store/test_journal.py::test_the_end_of_a_message_tells_its_life_even_"
        "when_it_was_never_leased[engine-expired]",
    ),
    Fault(
        "store/engine/leases.py",
        "        leased.done[item.seq - leased.first] = 1\n        acks",
        "        acks",
        "tests/conformance/store/test_settle.py::test_items_of_one_batch_take_effect_one_after_"
        "the_other[engine]",
    ),
    Fault(
        "store/engine/lines.py",
        " and self.due_ms > now_ms and self.attempt == attempt",
        " and self.due_ms > now_ms",
        "tests/conformance/store/test_settle.py::test_an_old_lease_has_no_power_over_the_next_"
        "one[engine]",
    ),
    Fault(
        "store/engine/lines.py",
        " and self.due_ms > now_ms and self.attempt == attempt",
        " and self.due_ms > now_ms",
        "tests/conformance/store/test_settle.py::test_a_late_ack_that_may_be_late_removes_a_"
        "message_leased_by_another[engine]",
    ),
    Fault(
        "store/engine/leases.py",
        "            line.pulled = True\n",
        "            pass\n",
        "tests/conformance/store/test_pushes_kept.py::test_a_message_that_has_arrived_everywhere_"
        "is_not_kept[engine]",
    ),
    Fault(
        "store/engine/journal.py",
        "        self.attempts = [row.attempt for row in rows]",
        "        self.attempts = [1 for row in rows]",
        "tests/conformance/store/test_journal.py::test_the_life_of_an_acked_message[engine]",
    ),
    Fault(
        "store/engine/leases.py",
        "-(-size // UNIT_BYTES) - 1",
        "size // UNIT_BYTES",
        "tests/conformance/store/test_tallies.py::test_sealed_messages_count_as_long_as_they_are_"
        "in_clear[engine]",
    ),
    Fault(
        "store/engine/publishing.py",
        "message.id, row.attempt, reason)",
        "message.id, 1, reason)",
        "tests/conformance/store/test_bury.py::test_a_dead_letter_starts_over_on_its_queue[engine]",
    ),
    Fault(
        "store/engine/leases.py",
        "            if delivery is None or not 1 <= item.attempt <= delivery.attempt:\n         "
        "       outcomes.append(Outcome.GONE)\n            elif",
        "            if delivery is None:\n                outcomes.append(Outcome.GONE)\n       "
        "     elif",
        "tests/conformance/store/test_settle.py::test_a_lease_that_was_never_given_finds_"
        "nothing[engine-Retry(seq=1, attempt=2, delay_ms=None)]",
    ),
    Fault(
        "store/engine/leases.py",
        "attempt=delivery.attempt, delay_ms=delay_ms, ended_ms=ended_ms",
        "attempt=delivery.attempt, delay_ms=delay_ms, ended_ms=now_ms",
        "tests/conformance/store/test_delay.py::test_after_an_expiry_the_delay_counts_from_the_"
        "end_of_the_lease[engine-130]",
    ),
    Fault(
        "store/engine/publishing.py",
        "    delay_ms = None if target.queue.fifo else 0\n",
        "    delay_ms = None\n",
        "tests/conformance/store/test_bury.py::test_a_dead_letter_is_not_delayed_whatever_its_"
        "queue_says[engine-retry]",
    ),
    Fault(
        "store/engine/leases.py",
        "            line.full = True\n",
        "            pass\n",
        "tests/conformance/store/test_wait.py::test_room_for_another_lease_gives_a_hint_to_who_"
        "found_none[engine-ack]",
    ),
    Fault(
        "store/engine/leases.py",
        "        if line.expiry_ms <= now_ms and not await self._endings.keep_up(line, now_ms):",
        "        if False:",
        "tests/conformance/store/test_ttl.py::test_however_many_expire_at_once_none_of_them_is_"
        "handed_out[engine-retention-standard]",
    ),
    Fault(
        "store/engine/leases.py",
        "left = alive(rows, now_ms)",
        "left = rows",
        "tests/conformance/store/test_ttl.py::test_however_many_expire_at_once_none_of_them_is_"
        "handed_out[engine-own-fifo]",
    ),
    Fault(
        "store/engine/lines.py",
        "        return bool(block.flags & HELD) or block.only not in (0, self.no)",
        "        return bool(block.flags & HELD)",
        "tests/conformance/store/test_rows.py::test_drafts_for_one_listener_are_pushed_to_it_"
        "alone[engine]",
    ),
    Fault(
        "store/engine/lines.py",
        "            if pushes.exhausted:\n",
        "            if False:\n",
        "tests/conformance/store/test_pushes_kept.py::test_a_changed_retention_applies_to_kept_"
        "messages_at_once[engine]",
    ),
    Fault(
        "store/engine/lines.py",
        "        return bool(block.flags & (HELD | ROWS) or block.only)",
        "        return bool(block.flags & (HELD | ROWS))",
        "tests/conformance/store/test_rows.py::test_drafts_for_one_listener_are_pushed_to_it_"
        "alone[engine]",
    ),
    Fault(
        "store/engine/lines.py",
        "        self.aging_ms = 0 if self.count else NEVER_MS",
        "        self.aging_ms = NEVER_MS",
        "tests/conformance/store/test_ttl.py::test_every_end_is_told_when_it_comes[engine"
        "-reopened]",
    ),
    Fault(
        "store/engine/lines.py",
        "bool(row[19]), bool(row[20])",
        "bool(row[19]), False",
        "tests/conformance/store/test_pushes_delivered.py::test_a_queue_that_is_pulled_fr"
        "om_keeps_its_messages_for_pullers[engine-reopened-lease]",
    ),
    Fault(
        "store/engine/lines.py",
        "        self.aging_ms = 0 if self.exhausted else NEVER_MS",
        "        self.aging_ms = NEVER_MS",
        "tests/conformance/store/test_pushes_kept.py::test_a_sweep_counts_the_kept_messag"
        "es_that_expired[engine-reopened]",
    ),
    Fault(
        "store/engine/layout.py",
        ":0{count}b}",
        ":b}",
        "tests/conformance/store/test_order.py::test_retried_messages_go_ahead_of_new_one"
        "s[engine-reopened]",
    ),
    Fault(
        "store/engine/reading.py",
        '        if not await self._facts.known(line, "name", [key]):\n            '
        "line.renamed += 1\n            self._book.touch(line)\n",
        "",
        "tests/conformance/store/test_rename.py::test_a_name_is_one_of_the_headers[engine-none]",
    ),
    Fault(
        "store/engine/reading.py",
        "            if message in (made, found.id):\n                return found",
        "            return found",
        "tests/conformance/store/test_publish.py::test_an_own_id_that_looks_generated_is_still_"
        "its_own[engine]",
    ),
    Fault(
        "store/engine/numbered.py",
        "        if first > count:",
        "        if first > count + 1:",
        "tests/conformance/store/test_rows.py::test_drafts_may_not_be_left_out[engine]",
    ),
    Fault(
        "store/engine/numbered.py",
        " and marks[count - first] != mark:",
        " and False:",
        "tests/conformance/store/test_rows.py::test_other_drafts_than_before_are_refused_and_"
        "nothing_is_stored[engine-changed]",
    ),
    Fault(
        "store/engine/numbered.py",
        "max(fact.until_ms if fact else 0, numbering.until_ms)",
        "numbering.until_ms",
        "tests/conformance/store/test_rows.py::test_every_call_lets_the_key_be_known_for_longer_"
        "and_none_for_less[engine]",
    ),
    Fault(
        "store/engine/numbered.py",
        "if marks is not None and (mark or not count) else None",
        "if marks is not None else None",
        "tests/conformance/store/test_rows.py::test_drafts_without_marks_are_not_compared_nor_is_"
        "their_key_later[engine]",
    ),
    Fault(
        "store/engine/publishing.py",
        "in facts.items() if now_ms < fact.until_ms}",
        "in facts.items() if now_ms <= fact.until_ms}",
        "tests/conformance/store/test_once.py::test_a_key_is_forgotten_exactly_when_its_time_"
        "ends[engine]",
    ),
    Fault(
        "store/engine/publishing.py",
        "    actual = line.bytes + sizes_of(drafts)",
        "    actual = line.bytes + sizes_of(drafts) + 1",
        "tests/conformance/store/test_publish.py::test_a_sealed_message_counts_as_long_as_it_is_"
        "in_clear[engine]",
    ),
    Fault(
        "store/engine/publishing.py",
        "(key in known or key in first)",
        "key in known",
        "tests/conformance/store/test_once.py::test_a_repeat_inside_one_batch_counts[engine]",
    ),
    Fault(
        "store/engine/publishing.py",
        "expires_ms = now_ms + ttl_ms + doubt_ms",
        "expires_ms = now_ms + ttl_ms",
        "tests/conformance/store/test_ttl.py::test_what_is_stored_while_the_time_is_in_doubt_"
        "lives_longer_by_as_much[engine-standard]",
    ),
    Fault(
        "store/engine/publishing.py",
        "            if name not in heads and row.state == WAITING:",
        "            if row.state == WAITING:",
        "tests/conformance/store/test_fifo.py::test_nothing_of_a_group_is_handed_out_while_"
        "anything_of_it_is_leased[engine]",
    ),
    Fault(
        "store/engine/publishing.py",
        "(block.at_ms, block.flags, block.only) != (now_ms, flags, only)",
        "(block.at_ms, block.flags) != (now_ms, flags)",
        "tests/conformance/store/test_rows.py::test_drafts_for_one_listener_and_for_all_may_come_"
        "at_one_moment[engine]",
    ),
    Fault(
        "store/engine/publishing.py",
        "                while stop < count and (delays[stop] > 0) == held:",
        "                while stop < count:",
        "tests/conformance/store/test_delay.py::test_a_delayed_message_can_be_published_among_"
        "others[engine]",
    ),
    Fault(
        "store/engine/publishing.py",
        "            if not repeated\n        ]",
        "        ]",
        "tests/conformance/store/test_via.py::test_a_repeated_copy_is_not_counted[engine]",
    ),
    Fault(
        "store/engine/publishing.py",
        "                queue.delay_ms if draft.delay_ms is None else draft.delay_ms for draft "
        "in drafts",
        "                draft.delay_ms or queue.delay_ms for draft in drafts",
        "tests/conformance/store/test_delay.py::test_the_queues_delay_applies_when_the_draft_"
        "names_none[engine]",
    ),
    Fault(
        "store/engine/publishing.py",
        "            sizes = [len(draft.body) if draft.sealed is None else draft.size for draft in "
        "drafts]\n",
        "            sizes = [len(draft.body) for draft in drafts]\n",
        "tests/conformance/store/test_tallies.py::test_sealed_messages_count_as_long_as_they_are_"
        "in_clear[engine]",
    ),
    Fault(
        "store/engine/publishing.py",
        "(block.at_ms, block.flags, block.only) != (now_ms, flags, only)",
        "(block.at_ms, block.only) != (now_ms, only)",
        "tests/conformance/store/test_delay.py::test_a_delayed_message_can_be_published_among_"
        "others[engine]",
    ),
    Fault(
        "store/engine/publishing.py",
        "            over -= row.size\n",
        "",
        "tests/conformance/store/test_pushes_delivered.py::test_delivered_messages_make_room_"
        "oldest_first[engine]",
    ),
    Fault(
        "store/engine/publishing.py",
        "        sealed=message.sealed,\n",
        "",
        "tests/conformance/store/test_bury.py::test_a_dead_letter_keeps_the_name_of_the_key_it_"
        "is_sealed_with[engine]",
    ),
    Fault(
        "store/engine/publishing.py",
        "        group=message.group,\n",
        "",
        "tests/conformance/store/test_bury.py::test_a_dead_letter_starts_over_on_its_queue[engine]",
    ),
    Fault(
        "store/engine/publishing.py",
        "        actual = held + sizes_of(drafts)",
        "        actual = held + sizes_of(drafts) + 1",
        "tests/conformance/store/test_races.py::test_concurrent_publishes_fill_a_queue_to_its_"
        "last_byte[engine]",
    ),
    Fault(
        "store/engine/publishing.py",
        "            if pushes.dropped:\n                continue\n            if block.flags",
        "            if block.flags",
        "tests/conformance/store/test_pushes_journal.py::test_a_deleted_listener_is_owed_nothing_"
        "that_is_published_later[engine]",
    ),
    Fault(
        "store/engine/lines.py",
        " and self.due_ms > now_ms and self.attempt == attempt",
        " and self.due_ms > now_ms",
        "tests/conformance/store/test_pushes_settle.py::test_only_the_attempt_in_flight_can_be_"
        "settled[engine]",
    ),
    Fault(
        "store/engine/pushes.py",
        "if since_ms <= ms < until_ms][:limit]",
        "if since_ms <= ms <= until_ms][:limit]",
        "tests/conformance/store/test_backfill.py::test_only_what_was_published_in_that_time_is_"
        "bound[engine]",
    ),
    Fault(
        "store/engine/pushes.py",
        "if seq not in standing and seq not in rows]",
        "if seq not in standing]",
        "tests/conformance/store/test_backfill.py::test_nothing_is_bound_twice[engine]",
    ),
    Fault(
        "store/engine/pushes.py",
        "        if settled and pushes.listener.ordered:\n            self._book.wake_"
        "pushes(pushes, 1)\n",
        "",
        "tests/conformance/store/test_pushes_wait.py::test_the_end_of_what_holds_up_an_ordered_"
        "listener_gives_a_hint[engine-arrived]",
    ),
    Fault(
        "store/engine/pushes.py",
        "                if not row.attempt:\n                    row.first_ms = row.last_ms = "
        "None\n",
        "",
        "tests/conformance/store/test_pushes_settle.py::test_a_push_that_is_given_back_was_never_"
        "tried[engine]",
    ),
    Fault(
        "store/engine/pushes.py",
        "            pushes.missed -= row.report is not None\n",
        "",
        "tests/conformance/store/test_pushes_settle.py::test_the_numbers_of_a_listener[engine]",
    ),
    Fault(
        "store/engine/pushes.py",
        "            rows = [first] if first is not None and first.state == READY else []",
        "            rows = [first] if first is not None and first.state != FRESH else []",
        "tests/conformance/store/test_pushes.py::test_an_ordered_listener_takes_one_at_a_"
        "time[engine]",
    ),
    Fault(
        "store/engine/pushes.py",
        "            pushes.missed += row.report is None\n",
        "            pushes.missed += 1\n",
        "tests/conformance/store/test_pushes_settle.py::test_a_push_that_failed_twice_is_missed_"
        "once[engine]",
    ),
    Fault(
        "store/engine/pushes.py",
        "row.report is None or row.state < 0 or row.state == LEASED:",
        "row.report is None or row.state < 0:",
        "tests/conformance/store/test_pushes_settle.py::test_a_push_that_is_on_its_way_again_"
        "cannot_be_retried[engine]",
    ),
    Fault(
        "store/engine/pushes.py",
        "            rows = [row for row in rows if row.seq <= last]\n",
        "",
        "tests/conformance/store/test_pushes.py::test_what_was_delayed_is_taken_after_what_was_"
        "published_before_it[engine]",
    ),
    Fault(
        "store/engine/endings.py",
        "                if each.published_ms > old_ms or over:",
        "                if each.published_ms >= old_ms or over:",
        "tests/conformance/store/test_sweep.py::test_a_message_expires_exactly_when_its_"
        "retention_ends[engine]",
    ),
    Fault(
        "store/engine/endings.py",
        "            if each.expires_ms is None:\n                # A lease",
        "            if True:\n                # A lease",
        "tests/conformance/store/test_ttl.py::test_an_expiry_of_its_own_wins_over_the_"
        "queues[engine-standard]",
    ),
    Fault(
        "store/engine/endings.py",
        "                over = each.state == LEASED and each.due_ms <= now_ms",
        "                over = False",
        "tests/conformance/store/test_bury.py::test_leases_that_ended_before_retention_are_"
        "buried_however_many_there_are[engine]",
    ),
    Fault(
        "store/engine/settings.py",
        "        pushes.cursor = line.tail if line else 0\n",
        "        pushes.cursor = 0\n",
        "tests/conformance/store/test_pushes.py::test_what_is_published_before_a_listener_is_"
        "there_is_not_for_it[engine]",
    ),
    Fault(
        "store/engine/settings.py",
        "            if queue.fifo and queue.delay_ms != delay_ms:",
        "            if False:",
        "tests/conformance/store/test_fifo.py::test_a_shorter_delay_applies_to_waiting_messages_"
        "at_once[engine]",
    ),
    Fault(
        "store/engine/settings.py",
        "                if name in names or (holder and (kind, holder.id) not in changed):",
        "                if holder and (kind, holder.id) not in changed:",
        "tests/conformance/store/test_records.py::test_two_new_records_of_one_call_cannot_share_"
        "a_name[engine]",
    ),
    Fault(
        "store/engine/settings.py",
        "            book.next_retention_ms = 0\n            book.retention_stale = True\n",
        "",
        "tests/conformance/store/test_sweep.py::test_a_shorter_retention_applies_to_stored_"
        "messages_at_once[engine]",
    ),
    Fault(
        "store/engine/deliveries.py",
        "        if line.count > line.fresh + line.ranged:",
        "        if False:",
        "tests/conformance/store/test_settle.py::test_items_of_one_batch_take_effect_one_after_"
        "the_other[engine]",
    ),
    Fault(
        "store/engine/sweep.py",
        "            heapq.heappush(heap, entry)",
        "            pass",
        "tests/conformance/store/test_sweep.py::test_a_limited_sweep_returns_every_lease_in_the_"
        "end[engine]",
    ),
    Fault(
        "store/engine/sweep.py",
        "            next_ms <= now_ms or bool(dropping)",
        "            bool(dropping)",
        "tests/conformance/store/test_sweep.py::test_a_sweep_stays_within_its_limit_and_says_"
        "that_there_is_more[engine]",
    ),
    Fault(
        "store/engine/sweep.py",
        "            (now_ms - MINUTES_KEPT_MS) // MINUTE_MS,",
        "            now_ms // MINUTE_MS,",
        "tests/conformance/store/test_tallies.py::test_old_minutes_are_summed_up_by_the_"
        "hour[engine]",
    ),
    Fault(
        "store/engine/sweep.py",
        "            (now_ms - LEVELS_KEPT_MS) // MINUTE_MS,",
        "            now_ms // MINUTE_MS,",
        "tests/conformance/store/test_levels.py::test_what_time_does_counts_when_it_is_"
        "noticed[engine]",
    ),
    Fault(
        "store/engine/sweep.py",
        "        if len(over) <= limit:\n",
        "        if True:\n",
        "tests/conformance/store/test_ttl.py::test_however_many_expire_at_once_none_of_them_is_"
        "handed_out[engine-own-standard]",
    ),
    Fault(
        "store/engine/sweep.py",
        "            elif expires_ms <= delivery.due_ms:",
        "            elif expires_ms < delivery.due_ms:",
        "tests/conformance/store/test_bury.py::test_a_message_expires_rather_than_being_buried_"
        "at_the_same_moment[engine]",
    ),
    Fault(
        "store/engine/sweep.py",
        "row.expires_ms > row.due_ms]",
        "row.expires_ms >= row.due_ms]",
        "tests/conformance/store/test_pushes_journal.py::test_a_lease_that_ended_before_its_"
        "message_is_told_first[engine-with-waiting]",
    ),
    Fault(
        "store/engine/sweep.py",
        "pushes.base | first - 1))",
        "pushes.base | first))",
        "tests/conformance/store/test_pushes_time.py::test_an_acknowledged_push_is_known_as_long_"
        "as_its_message_is_there[engine]",
    ),
    Fault(
        "store/engine/verbs.py",
        "            elif SPARSE * len(alive) < loose.length:",
        "            elif False:",
        "tests/store/test_engine.py::test_the_dead_of_an_old_block_take_no_space",
    ),
    Fault(
        "store/disk_sqlite/__init__.py",
        "(loose_after, first - 1, limit)",
        "(loose_after, 1 << 60, limit)",
        "tests/conformance/store/test_journal.py::test_a_trim_leaves_the_bodies_of_later_"
        "events[engine]",
    ),
    Fault(
        "store/engine/verbs.py",
        "        for each in line.all_lines:\n            standing",
        "        for each in [line]:\n            standing",
        "tests/conformance/store/test_pushes_kept.py::test_a_kept_message_outlives_its_"
        "events[engine]",
    ),
    Fault(
        "store/engine/calls.py",
        "        call.error.__dict__.update(error.__dict__)\n",
        "",
        "tests/conformance/store/test_races.py::test_each_of_several_refused_callers_gets_an_"
        "error_of_its_own[engine]",
    ),
    Fault(
        "store/disk_sqlite/__init__.py",
        "        if 0 < summed < limit:",
        "        if 0 < summed:",
        "tests/conformance/store/test_tallies.py::test_many_old_minutes_are_summed_up_by_and_"
        "by[engine]",
    ),
    Fault(
        "store/disk_sqlite/__init__.py",
        "                mask = packed_mask(ended.done) if ended.left < len(ended.done) else None",
        "                mask = None",
        "tests/conformance/store/test_settle.py::test_numbers_follow_every_settlement[eng"
        "ine-reopened]",
    ),
    Fault(
        "store/disk_sqlite/past.py",
        "        if then_ms < at_ms:",
        "        if then_ms <= at_ms:",
        "tests/conformance/store/test_journal.py::test_an_offset_is_looked_up_by_time[engine]",
    ),
    Fault(
        "store/disk_sqlite/past.py",
        "                count += min(packet.length, packet.last - after)",
        "                count += packet.length",
        "tests/conformance/store/test_journal.py::test_any_range_reads_the_same_events[engine]",
    ),
    Fault(
        "store/disk_sqlite/past.py",
        "if count >= limit or (bytes_max is not None and size >= bytes_max):",
        "if count >= limit:",
        "tests/conformance/store/test_journal.py::test_a_long_journal_is_read_in_parts_and_at_"
        "least_one_row_at_a_time[engine]",
    ),
    Fault(
        "store/disk_sqlite/statements.py",
        "key < ? || '0'",
        "key < ? || '~'",
        "tests/conformance/store/test_rows.py::test_rows_below_a_key_are_counted_together[engine]",
    ),
    Fault(
        "store/disk_sqlite/statements.py",
        "WHERE ?3 IS NULL OR at_ms < ?3",
        "WHERE ?3 IS NULL OR at_ms <= ?3",
        "tests/conformance/store/test_journal.py::test_a_trim_spares_what_is_not_old_"
        "enough[engine]",
    ),
    Fault(
        "store/disk_sqlite/statements.py",
        "AND last < (SELECT max(last) FROM packet)",
        "AND last <= (SELECT max(last) FROM packet)",
        "tests/conformance/store/test_journal.py::test_the_time_of_the_last_event_outlives_"
        "it[engine]",
    ),
    Fault(
        "store/disk_sqlite/statements.py",
        "WHERE state BETWEEN 1 AND 2 AND state = 1 AND grp",
        "WHERE state BETWEEN 1 AND 2 AND grp",
        "tests/conformance/store/test_fifo.py::test_a_delayed_message_holds_back_those_be"
        "hind_it[engine-reopened]",
    ),
    Fault(
        "store/disk_sqlite/statements.py",
        "SELECT minute - minute % 60, queue",
        "SELECT minute - minute % 60 + 60, queue",
        "tests/conformance/store/test_tallies.py::test_old_minutes_are_summed_up_by_the_"
        "hour[engine]",
    ),
    Fault(
        "store/disk_sqlite/statements.py",
        "WHERE report IS NOT NULL AND state >= 0 AND id > ?",
        "WHERE report IS NOT NULL AND id > ?",
        "tests/conformance/store/test_pushes_settle.py::test_a_new_listener_has_no_numbers[engine]",
    ),
    Fault(
        "store/disk_sqlite/statements.py",
        "INSERT OR IGNORE INTO level",
        "INSERT OR REPLACE INTO level",
        "tests/conformance/store/test_levels.py::test_refused_calls_change_no_level[engin"
        "e-reopened]",
    ),
    Fault(
        "store/disk_sqlite/statements.py",
        "report IS NOT NULL AND state >= 0 AND id > ? AND id < ? ORDER BY id DESC",
        "report IS NOT NULL AND state >= 0 AND id > ? AND id < ? ORDER BY id",
        "tests/conformance/store/test_pushes_settle.py::test_missed_messages_are_told_newest_"
        "first[engine]",
    ),
    Fault(
        "store/disk_sqlite/statements.py",
        "    SELECT line, kind, key FROM fact INDEXED BY fact_until WHERE until_ms <= ? LIMIT ?)",
        "    SELECT line, kind, key FROM fact INDEXED BY fact_until WHERE until_ms > ? LIMIT ?)",
        "tests/conformance/store/test_once.py::test_a_key_outlives_a_purge_and_a_sweep[engine]",
    ),
    Fault(
        "store/disk_sqlite/statements.py",
        "WHERE tenant = ? AND minute >= ? AND minute < ? ORDER BY minute, queue, kind",
        "WHERE tenant = ? AND minute >= ? AND minute <= ? ORDER BY minute, queue, kind",
        "tests/conformance/store/test_tallies.py::test_a_minute_counts_when_any_of_it_is_asked_"
        "for[engine-tenant]",
    ),
    Fault(
        "store/disk_sqlite/writer.py",
        "        if self._stale:\n            driven(self._engine.restore())\n            "
        "self._stale = False\n",
        "        self._stale = False\n",
        "tests/store/test_rollback.py::test_a_group_that_cannot_be_committed_leaves_everything_"
        "as_it_was[0-False]",
    ),
    Fault(
        "dialects/anypoint/paging.py",
        "    return rows[offset : offset + limit]",
        "    return rows[offset : limit]",
        "tests/wire/anypoint/test_admin_lists.py::test_a_list_comes_in_pages_when_"
        "asked[offset=20-expected3]",
    ),
    Fault(
        "dialects/anypoint/tokens.py",
        "    if any(getattr(proof.key, field) != value for field, value in wanted.items()):",
        "    if False:",
        "tests/wire/anypoint/test_authorize.py::test_wrong_or_missing_credentials_are_"
        "refused[change3-/api/v1/authorize]",
    ),
    Fault(
        "dialects/anypoint/tokens.py",
        '    if asked.grant_type != "client_credentials":',
        "    if False:",
        "tests/wire/anypoint/test_authorize.py::test_another_grant_type_is_refused[password]",
    ),
    Fault(
        "dialects/anypoint/wire.py",
        'once_key=f"id\\n{id}"',
        "once_key=None",
        "tests/wire/anypoint/test_fifo.py::test_a_repeated_id_is_answered_as_a_success_and_dropped",
    ),
    Fault(
        "dialects/anypoint/wire.py",
        "    if not isinstance(number, int) or isinstance(number, bool) or not low <= number <= "
        "high:",
        "    if not isinstance(number, int) or not low <= number <= high:",
        "tests/wire/anypoint/test_lock_ttl.py::test_the_seconds_are_required_and_have_limits",
    ),
    Fault(
        "dialects/anypoint/wire.py",
        "        if not headers.keys() <= _BROKER_HEADERS:",
        "        if False:",
        "tests/wire/anypoint/test_publish.py::test_headers_and_properties_come_back_as_they_were_"
        "sent",
    ),
    Fault(
        "dialects/anypoint/wire.py",
        "    if OWN_HEADERS in properties:",
        "    if False:",
        "tests/wire/anypoint/test_publish.py::test_a_name_that_is_the_brokers_own_is_no_property",
    ),
    Fault(
        "dialects/anypoint/wire.py",
        "    if made.delay_ms:\n",
        "    if False:\n",
        "tests/wire/anypoint/test_fifo.py::test_a_delay_of_a_message_is_refused[1_0]",
    ),
    Fault(
        "dialects/anypoint/wire.py",
        "        return message.size > HIDDEN_BYTES",
        "        return message.size >= HIDDEN_BYTES",
        "tests/wire/anypoint/test_get.py::test_a_body_is_hidden_when_asked_for[conditional-"
        "1048576-False]",
    ),
    Fault(
        "dialects/anypoint/wire.py",
        '        "ttl": str(ends_ms - published_ms),',
        '        "ttl": str(queue.retention_ms),',
        "tests/wire/anypoint/test_lifetimes.py::test_a_message_lives_as_long_as_it_or_its_"
        "queue_says[False]",
    ),
    Fault(
        "dialects/anypoint/wire.py",
        "    if queue.fifo and delay_ms is None:\n        delay_ms = queue.delay_ms\n",
        "",
        "tests/wire/anypoint/test_fifo.py::test_a_queues_delay_holds_a_group_back_in_order",
    ),
    Fault(
        "dialects/anypoint/wire.py",
        "    many = len(headers) + len(properties) >= RULED_HEADERS_MAX",
        "    many = False",
        "tests/wire/anypoint/test_exchanges.py::test_rules_see_nothing_of_a_message_with_500_"
        "headers[1-499-False]",
    ),
    Fault(
        "dialects/cloudflare/messages.py",
        "        if lease is UNSET:\n            lease = body.visibility_timeout\n",
        "",
        "tests/wire/cloudflare/test_pull.py::test_the_lease_may_go_by_its_other_name",
    ),
    Fault(
        "dialects/cloudflare/messages.py",
        "[Ack(place[0], place[1], True) for place in places if place]",
        "[Ack(place[0], place[1]) for place in places if place]",
        "tests/wire/cloudflare/test_settle.py::test_a_late_ack_deletes_a_message_that_waits_again",
    ),
    Fault(
        "dialects/cloudflare/messages.py",
        'once_key=f"{key} {number}")',
        "once_key=key)",
        "tests/wire/cloudflare/test_push.py::test_an_idempotency_key_covers_a_whole_batch",
    ),
    Fault(
        "dialects/cloudflare/messages.py",
        '        if consumer is None or consumer.mode != "pull":',
        "        if consumer is None:",
        "tests/wire/cloudflare/test_pull.py::test_a_queue_with_a_worker_cannot_be_pulled",
    ),
    Fault(
        "dialects/cloudflare/messages.py",
        "                elif token not in done:",
        "                else:",
        "tests/wire/cloudflare/test_settle.py::test_an_ack_wins_over_a_retry_of_the_same_lease",
    ),
    Fault(
        "dialects/cloudflare/paging.py",
        "-(-total // per_page))",
        "total // per_page)",
        "tests/wire/cloudflare/test_queue_list.py::test_with_a_page_there_are_a_hundred_to_a_page",
    ),
    Fault(
        "dialects/cloudflare/paging.py",
        "rows[(this - 1) * size : this * size]",
        "rows[this * size : (this + 1) * size]",
        "tests/wire/cloudflare/test_queue_list.py::test_with_a_page_there_are_a_hundred_to_a_page",
    ),
    Fault(
        "dialects/cloudflare/wire.py",
        "    if value != int(value):\n",
        "    if False:\n",
        "tests/wire/cloudflare/test_pull.py::test_a_pull_beyond_its_limits_is_refused[batch_size-"
        "1.5]",
    ),
    Fault(
        "dialects/cloudflare/wire.py",
        "        stored = _compact(stored, indent=-1)",
        "        pass",
        "tests/wire/cloudflare/test_push.py::test_json_is_stored_compact_with_its_numbers_and_"
        "key_order_kept",
    ),
    Fault(
        "dialects/cloudflare/wire.py",
        '[_compact(raw, indent=-1)], ["json"]',
        '[raw], ["json"]',
        "tests/wire/cloudflare/test_push.py::test_json_is_stored_compact_with_its_numbers_and_"
        "key_order_kept",
    ),
    Fault(
        "dialects/cloudflare/wire.py",
        "    if len(stored) > MESSAGE_BYTES_MAX:",
        "    if len(stored) >= MESSAGE_BYTES_MAX:",
        "tests/wire/cloudflare/test_push.py::test_the_largest_message_is_accepted[ascii]",
    ),
    Fault(
        "dialects/cloudflare/wire.py",
        "    if size > BATCH_BYTES_MAX:",
        "    if size >= BATCH_BYTES_MAX:",
        "tests/wire/cloudflare/test_batch.py::test_the_largest_batch_is_accepted[sizes0]",
    ),
    Fault(
        "dialects/cloudflare/wire.py",
        "retries = 100 if queue.attempts_max is None else queue.attempts_max - 1",
        "retries = 100 if queue.attempts_max is None else queue.attempts_max",
        "tests/wire/cloudflare/test_consumers.py::test_a_new_consumer_has_every_field_and_the_"
        "default_settings[http_pull]",
    ),
    Fault(
        "dialects/cloudflare/wire.py",
        '        self._plain = {"text", "json"} if json_encoding == "plain" else {"text"}',
        '        self._plain = {"text", "json"}',
        "tests/wire/cloudflare/test_pull.py::test_a_json_body_comes_as_padded_base64",
    ),
    Fault(
        "dialects/cloudflare/wire.py",
        '        field = f"messages[{len(made)}].{error.field}"',
        '        field = f"messages[0].{error.field}"',
        "tests/wire/cloudflare/test_batch.py::test_one_bad_message_rejects_the_whole_"
        "batch[element1-10207-1]",
    ),
    Fault(
        "dialects/cloudflare/wire.py",
        "            made.append(draft(push, delay_ms))",
        "            made.append(draft(push))",
        "tests/wire/cloudflare/test_attempts.py::test_the_delay_nearest_to_the_message_"
        "counts[600-0-None-True]",
    ),
    Fault(
        "dialects/discue/listener_wire.py",
        "        if lower in _OURS or lower.startswith(_OURS_BEGIN):",
        "        if lower in _OURS:",
        "tests/wire/discue/test_listeners.py::test_some_headers_cannot_be_chosen[webhook-id]",
    ),
    Fault(
        "dialects/discue/listener_wire.py",
        '        fields["disabled_by"] = "user"',
        '        fields["disabled_by"] = ""',
        "tests/wire/discue/test_listeners.py::test_every_option_comes_back",
    ),
    Fault(
        "dialects/discue/listener_wire.py",
        '    if ":" in auth.username:',
        "    if False:",
        "tests/wire/discue/test_listeners.py::test_what_a_listener_cannot_be_is_"
        "refused[members33-/auth/username]",
    ),
    Fault(
        "dialects/discue/listener_wire.py",
        "        if lower in seen:",
        "        if False:",
        "tests/wire/discue/test_listeners.py::test_what_a_listener_cannot_be_is_"
        "refused[members24-/headers/x-a]",
    ),
    Fault(
        "dialects/discue/lockout.py",
        "        if len(recent) >= FAILURES_MAX:",
        "        if len(recent) > FAILURES_MAX:",
        "tests/wire/discue/test_site.py::test_ten_bad_keys_refuse_further_bad_ones_of_the_"
        "address_but_no_good_one",
    ),
    Fault(
        "dialects/discue/lockout.py",
        "if at > now_ms - WINDOW_MS]",
        "if True]",
        "tests/wire/discue/test_site.py::test_failures_more_than_a_minute_apart_lock_nobody_out",
    ),
    Fault(
        "dialects/discue/message_wire.py",
        "    if not 1 <= len(data) <= DATA_BYTES_MAX:",
        "    if not 1 <= len(body.data) <= DATA_BYTES_MAX:",
        "tests/wire/discue/test_messages.py::test_other_data_is_refused[data2]",
    ),
    Fault(
        "dialects/discue/message_wire.py",
        '    return f"{key} message"',
        "    return None",
        "tests/wire/discue/test_messages.py::test_a_repeated_key_gets_the_first_answer",
    ),
    Fault(
        "dialects/discue/message_wire.py",
        '    if "exhausted" in pushes:\n        return "failed"\n',
        "",
        "tests/wire/discue/test_messages.py::test_a_delivery_that_was_given_up_makes_a_message_"
        "failed_until_it_is_retried",
    ),
    Fault(
        "dialects/discue/message_wire.py",
        "        if _TRACE.fullmatch(trace):",
        "        if trace:",
        "tests/wire/discue/test_messages.py::test_the_trace_of_the_publisher_goes_on_to_"
        "listeners[nonsense-False]",
    ),
    Fault(
        "dialects/discue/wire.py",
        "and self.name != self.alias:",
        "and False:",
        "tests/wire/discue/test_resources.py::test_name_and_alias_must_agree[domains]",
    ),
    Fault(
        "dialects/discue/wire.py",
        "    if end < len(items):",
        "    if end <= len(items):",
        "tests/wire/discue/test_site.py::test_pages_have_ten_items_or_as_many_as_asked_for[per_"
        "page=25-0-25-]",
    ),
    Fault(
        "dialects/json.py",
        "    if _may_repeat_a_key(raw, value, shape, colons):",
        "    if False:",
        "tests/wire/test_bodies.py::test_a_body_is_refused_for_a_repeated_key_just_when_there_is_"
        "one",
    ),
    Fault(
        "dialects/json.py",
        "    return any([count(b'\"%s\"' % name.encode()) > times for name, times in "
        "understood.items()])",
        "    return False",
        "tests/wire/test_bodies.py::test_a_body_is_refused_for_a_repeated_key_just_when_there_is_"
        "one",
    ),
    Fault(
        "console/rules.py",
        "    if grew < GROWING_MINUTES:",
        "    if grew <= GROWING_MINUTES:",
        "tests/console/test_rules.py::test_facts_make_the_sentence",
    ),
    Fault(
        "console/rules.py",
        "    if not hour or hour <= before:",
        "    if not hour:",
        "tests/console/test_rules.py::test_facts_make_the_sentence",
    ),
    Fault(
        "console/rules.py",
        "ended * EXPIRED_SHARE <= leased:",
        "ended * EXPIRED_SHARE < leased:",
        "tests/console/test_rules.py::test_facts_make_the_sentence",
    ),
    Fault(
        "console/rules.py",
        "    if left_ms > SOON_MS or queue.retention_ms <= 2 * SOON_MS:",
        "    if left_ms > SOON_MS:",
        "tests/console/test_rules.py::test_facts_make_the_sentence",
    ),
    Fault(
        "console/rules.py",
        "    if queue.bytes >= queue.bytes_max:",
        "    if queue.bytes > queue.bytes_max:",
        "tests/console/test_rules.py::test_facts_make_the_sentence",
    ),
    Fault(
        "console/rules.py",
        "    if listener.missed and listener.last_failure_ms > listener.last_success_ms:",
        "    if listener.missed:",
        "tests/console/test_rules.py::test_facts_make_the_sentence",
    ),
    Fault(
        "console/why.py",
        "            if last.queue != home:\n                found.dead += passed\n            "
        "elif",
        "            if",
        "tests/console/test_why.py::test_where_the_time_went[steps1-says1]",
    ),
    Fault(
        "console/why.py",
        "    said = _held(own[-1], now_ms) if own",
        "    said = _held(steps[-1], now_ms) if steps",
        "tests/console/test_why.py::test_why_it_is_late",
    ),
    Fault(
        "console/why.py",
        "                delayed = min(passed, last.delay_ms)",
        "                delayed = last.delay_ms",
        "tests/console/test_why.py::test_where_the_time_went",
    ),
    Fault(
        "cli/credentials.py",
        "    own = (read(data, args.tenant) or {}) if args.tenant else first",
        "    own = first",
        "tests/cli/test_alone.py::test_arguments_that_cannot_be_meant_are_refused_before_"
        "anything_is_sent",
    ),
    Fault(
        "cli/credentials.py",
        '        url=url.rstrip("/").removesuffix(_API),',
        "        url=url,",
        "tests/cli/test_queues.py::test_a_created_queue_has_a_pull_consumer",
    ),
    Fault(
        "cli/output.py",
        "    return words.printable(str(value))",
        "    return str(value)",
        "tests/cli/test_messages.py::test_a_table_shows_control_characters_escaped",
    ),
    Fault(
        "cli/output.py",
        "            for number in [n for n in line if columns[n] in TEXTS]:",
        "            for number in line:",
        "tests/cli/test_terminal.py::test_leases_and_ids_are_never_cut[20]",
    ),
    Fault(
        "cli/output.py",
        "    styles = stream.isatty() and config.colours_wanted()",
        "    styles = stream.isatty()",
        "tests/cli/test_terminal.py::test_colours_are_for_terminals_that_want_them",
    ),
    Fault(
        "cli/output.py",
        "        if seconds and seconds % size == 0:",
        "        if seconds >= size:",
        "tests/cli/test_terminal.py::test_a_length_of_time_is_shown_in_the_largest_unit_without_"
        "a_rest[90-90s]",
    ),
    Fault(
        "core/sweeper.py",
        "return self.holds_ms < self.retention_ms",
        "return False",
        "tests/ops/test_trim.py::test_a_journal_over_its_size_gives_up_its_oldest_events_loudly",
    ),
    Fault(
        "core/sweeper.py",
        "max(0, bytes_max - bytes) * span_ms",
        "bytes_max * span_ms",
        "tests/core/test_room.py::test_it_is_what_fits_at_the_rate_so_far[5368709120-86400000-4-3-"
        "True]",
    ),
    Fault(
        "core/sweeper.py",
        "span_ms < SPAN_MS_MIN and",
        "",
        "tests/core/test_room.py::test_it_is_what_fits_at_the_rate_so_far[1073741824-86400000-20-19-"
        "False]",
    ),
    Fault(
        "ops/health.py",
        "room.holds_ms / SECOND_MS",
        "room.holds_ms",
        "tests/ops/test_trim.py::test_a_journal_over_its_size_gives_up_its_oldest_events_loudly",
    ),
    Fault(
        "cli/pipeline.py",
        "if found.journal_days < found.retention_days:",
        "if found.journal_days < 0:",
        "tests/ops/test_trim.py::test_a_journal_over_its_size_gives_up_its_oldest_events_loudly",
    ),
    Fault(
        "lake/end.py",
        "        return number != signal.SIGTERM or now_s - self._first_s > SAME_S",
        "        return True",
        "tests/lake/test_end.py::test_a_second_signal_ends_at_once[2]",
    ),
    Fault(
        "lake/end.py",
        "        if self.again(number) or not begun:",
        "        if self.again(number):",
        "tests/lake/test_end.py::test_one_request_interrupts_once_though_it_comes_twice",
    ),
    Fault(
        "lake/figures.py",
        "    since, until = first, last + MINUTE_MS",
        "    since, until = first, last",
        "tests/lake/test_report.py::test_headline_and_tables_add_up_what_the_minutes_say",
    ),
    Fault(
        "lake/figures.py",
        "        if count <= BUCKETS_MAX:",
        "        if count <= 2 * BUCKETS_MAX:",
        "tests/lake/test_report.py::test_the_busiest_bucket_of_any_range_lies_inside_it",
    ),
    Fault(
        "lake/figures.py",
        "coalesce(upto_ms >= at_ms, true)",
        "coalesce(upto_ms > at_ms, true)",
        "tests/lake/test_report.py::test_a_short_time_is_told_in_seconds",
    ),
    Fault(
        "lake/figures.py",
        "partition by queue_id order by batch desc) = 1",
        "partition by queue_id order by batch) = 1",
        "tests/lake/test_report.py::test_the_audit_is_told_as_it_is",
    ),
    Fault(
        "core/sweeper.py",
        "        if room is not None and room.is_short:",
        "        if False:",
        "tests/ops/test_trim.py::test_a_journal_over_its_size_gives_up_its_oldest_events_loudly",
    ),
    Fault(
        "cli/pipeline.py",
        "    if found.journal_days is not None and found.retention_days is not None:",
        "    if False:",
        "tests/ops/test_trim.py::test_a_journal_over_its_size_gives_up_its_oldest_events_loudly",
    ),
    Fault(
        "lake/retention.py",
        "pc.invert(choice.meant(rows))",
        "choice.meant(rows)",
        "tests/lake/test_erasure.py::test_rows_are_dropped_by_queue_tenant_and_condition[where]",
    ),
    Fault(
        "lake/retention.py",
        "if table is not lake.audit or f.partition[by] != last",
        "",
        "tests/lake/test_erasure.py::test_rows_are_dropped_by_queue_tenant_and_condition[queue]",
    ),
    Fault(
        "lake/status.py",
        "        room = broker.room()",
        "        room = None",
        "tests/ops/test_trim.py::test_a_journal_over_its_size_gives_up_its_oldest_events_loudly",
    ),
    Fault(
        "lake/tables.py",
        "        if missing.names:",
        "        if False:",
        "tests/lake/test_tables.py::test_a_table_of_an_earlier_release_gets_the_columns_of_this_one",
    ),
    Fault(
        "lake/tables.py",
        "nullable for name, nullable in there.items() if name not in self.schema.names",
        "name in self.schema.names for name in there",
        "tests/lake/test_tables.py::test_a_table_of_an_earlier_release_gets_the_columns_of_this_one",
    ),
    Fault(
        "lake/tables.py",
        "        if int(table.metadata().configuration.get(LAYOUT, 0)) > LAYOUT_NOW:",
        "        if False:",
        "tests/lake/test_tables.py::test_a_table_of_a_newer_layout_is_left_alone",
    ),
    Fault(
        "lake/views.py",
        "({_TEXT} AS body)",
        "(body AS body)",
        "tests/cli/test_lake.py::test_a_body_is_text_json_and_bytes",
    ),
    Fault(
        "lake/views.py",
        "TRY_CAST({_TEXT} AS JSON) AS data",
        "NULL::JSON AS data",
        "tests/cli/test_lake.py::test_a_body_is_text_json_and_bytes",
    ),
    Fault(
        "lake/query.py",
        "        if word in words:",
        "        if False:",
        "tests/cli/test_lake.py::test_a_column_that_is_a_word_of_sql_is_said_to_need_quotes",
    ),
    Fault(
        "lake/filters.py",
        "            return _between(wanted, low + 1, None)",
        "            return _between(wanted, low + 2, None)",
        "tests/lake/test_source_filters.py::test_what_is_left_of_the_journal_under_"
        "filters[filters0-wanted0]",
    ),
    Fault(
        "lake/filters.py",
        "        case GreaterThan() | GreaterThanOrEqual() | EqualTo() | EqualNullSafe() | In():",
        "        case GreaterThan() | GreaterThanOrEqual() | EqualTo() | EqualNullSafe() | In() "
        "| LessThan():",
        "tests/lake/test_source_filters.py::test_what_is_left_of_the_journal_under_filters",
    ),
    Fault(
        "lake/filters.py",
        'not name or "," in name for name in names',
        "not name for name in names",
        "tests/lake/test_source_filters.py::test_what_is_left_of_the_journal_under_filters",
    ),
    Fault(
        "lake/filters.py",
        "        return tuple(name for name in known if name in names)",
        "        return tuple(dict.fromkeys(names))",
        "tests/lake/test_source_filters.py::test_what_is_left_of_the_journal_under_filters",
    ),
    Fault(
        "lake/filters.py",
        "max(at_ms(min(values)), wanted.since_ms or 0)",
        "at_ms(min(values))",
        "tests/lake/test_source_filters.py::test_what_is_left_of_the_journal_under_"
        "filters[filters19-wanted19]",
    ),
    Fault(
        "lake/filters.py",
        "    if not values or len(values) != len(_values(each)):\n        return wanted\n    low",
        "    if not values:\n        return wanted\n    low",
        "tests/lake/test_source_filters.py::test_what_is_left_of_the_journal_under_"
        "filters[filters7-wanted7]",
    ),
    Fault(
        "lake/page.py",
        '    return escape("".join(c if c.isprintable() else ascii(c)[1:-1] for c in text))',
        "    return escape(text)",
        "tests/lake/test_report.py::test_names_that_are_html_are_text",
    ),
    Fault(
        "lake/plots.py",
        "[None if value is None else value / marks[-1] for value in values]",
        "[(value or 0) / marks[-1] for value in values]",
        "tests/lake/test_report.py::test_where_nothing_waited_the_age_of_the_oldest_has_a_gap",
    ),
    Fault(
        "store/disk_postgres/__init__.py",
        'if await connection.execute(sql.APPLY, *values) != "SELECT 1":',
        "await connection.execute(sql.APPLY, *values)\n    if False:",
        "tests/store/test_postgres_turns.py::test_who_slept_in_its_turn_writes_nothing_from_what_it_"
        "knew",
    ),
    Fault(
        "store/disk_postgres/__init__.py",
        "await connection.execute(sql.CONFIRM)",
        "pass",
        "tests/store/test_postgres_standby.py::test_no_offset_is_told_before_a_standby_has_it["
        "backend ended]",
    ),
    Fault(
        "store/disk_postgres/__init__.py",
        "self.went_back = self._head.grp < self.seen or not known",
        "self.went_back = self._head.grp < self.seen",
        "tests/store/test_epochs.py::test_a_standby_that_lacks_commits_begins_a_new_epoch[1]",
    ),
    Fault(
        "store/disk_postgres/statements.py",
        "WHERE grp = $15 AND ctid =",
        "WHERE $15 > 0 AND ctid =",
        "tests/store/test_postgres_turns.py::test_who_slept_in_its_turn_writes_nothing_from_what_it_knew",
    ),
    Fault(
        "store/disk_postgres/turns.py",
        "            self._rest_until_s = self._now() + REST_S\n",
        "",
        "tests/store/test_postgres_turns.py::test_a_server_that_sleeps_in_its_turn_holds_nobody_up",
    ),
    Fault(
        "store/disk_postgres/rates.py",
        "self._writer.submit_early(",
        "self._writer.submit(",
        "tests/store/test_postgres_rates.py::test_what_is_asked_of_a_rate_is_in_the_group_of_what_it_"
        "is_asked_for",
    ),
    Fault(
        "store/disk_postgres/statements.py",
        "AND until > clock_timestamp() AND name NOT IN (SELECT name FROM mine)",
        "AND false",
        "tests/store/test_fences.py::test_servers_share_evenly_and_take_over_from_those_who_left",
    ),
    Fault(
        "credentials.py",
        "            await self._remove(tenant)\n            raise",
        "            raise",
        "tests/faults/test_space.py::test_a_tenant_that_is_refused_leaves_no_file",
    ),
    Fault(
        "heads.py",
        "return None if head.names is None or text in head.names else (head, text)",
        "return head, text",
        "tests/serving/test_known_heads.py::test_names_that_may_mean_more_are_parsed[locks]",
    ),
    Fault(
        "web.py",
        'return last if [name for name in params if name in self.site.loose] == [last] else ""',
        "return last",
        "tests/serving/test_admissions.py::test_requests_that_differ_in_a_name_alone_share_a_"
        "head_where_it_admits_nobody",
    ),
    Fault(
        "ids.py",
        "        return [(first + n, attempt) if n < count else None for n in numbers]",
        "        return [(first + n, attempt) for n in numbers]",
        "tests/core/test_ids.py::test_who_holds_bound_tokens_cannot_write_those_of_others",
    ),
)
