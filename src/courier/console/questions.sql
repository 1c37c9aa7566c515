-- How did messages end?
SELECT queue, outcome, count(*) AS messages, round(avg(attempts), 2) AS attempts
FROM messages GROUP BY ALL ORDER BY ALL

-- What happened to the message that took the longest, event by event?
SELECT "offset", "at", kind, attempt, lease_ms
FROM events JOIN (SELECT queue_id, seq FROM messages ORDER BY total_ms DESC NULLS LAST LIMIT 1) USING (queue_id, seq)
ORDER BY "offset"

-- How long do messages wait, and how long until they are done? Median, 95th and 99th percentile.
SELECT queue, quantile_disc(wait_ms, [0.5, 0.95, 0.99]) AS wait_ms, quantile_disc(total_ms, [0.5, 0.95, 0.99]) AS total_ms
FROM messages WHERE outcome = 'acked' GROUP BY queue ORDER BY queue

-- Which orders were buried? The body says where they came from.
SELECT body->>'country' AS country, count(*) AS buried, max((body->>'total')::int) AS dearest
FROM messages WHERE queue = 'orders' AND outcome = 'buried' GROUP BY ALL ORDER BY buried DESC, country

-- Who wastes attempts?
SELECT queue, actor, sum(attempts) AS attempts, sum(wasted) AS wasted, round(100 * sum(wasted) / sum(attempts), 1) AS percent
FROM consumers_hours GROUP BY ALL HAVING sum(attempts) > 0 ORDER BY percent DESC

-- What does a second attempt cost?
SELECT attempts, count(*) AS messages, round(median(total_ms)) AS median_ms
FROM messages WHERE outcome = 'acked' GROUP BY ALL ORDER BY ALL

-- How much was published through each API?
SELECT queue, dialect, count(*) AS published, sum(size) AS bytes
FROM events WHERE kind = 'published' GROUP BY ALL ORDER BY published DESC

-- How many attempts does a push need?
SELECT attempt, count(*) AS pushes, count(*) FILTER (kind = 'push_failed') AS failed
FROM events WHERE kind IN ('pushed', 'push_failed') GROUP BY ALL ORDER BY ALL

-- What became of replayed messages?
SELECT again.headers->>'courier-replay-id' AS replay, once.outcome AS first_time, again.outcome AS this_time, count(*) AS messages
FROM messages AS again JOIN messages AS once ON again.headers->>'courier-replay-message' = once.message_id
GROUP BY ALL

-- Does everything add up?
SELECT queue, accepted, acked, buried, live_lake AS live, difference, gaps, double_leases
FROM audit QUALIFY row_number() OVER (PARTITION BY queue_id ORDER BY batch DESC) = 1 ORDER BY queue
