# %% [markdown]
# # The life of messages
#
# Questions to the lake in Spark SQL. Open this file in an editor that knows `# %%` cells, or run
# it from top to bottom: `python life_of_messages.py courier-data/lake`

# %%
import os
import sys

from pyspark.sql import SparkSession

from courier.lake.catalog import Lake

LAKE = sys.argv[1]
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
spark = (
    SparkSession.builder.appName("life of messages")
    .config("spark.sql.session.timeZone", "UTC")
    .getOrCreate()
)
for table in Lake(LAKE).tables:
    table.read(spark).createOrReplaceTempView(table.name)

# %% How did messages end, and how long did that take?
spark.sql("""
    SELECT queue, outcome, count(*) AS messages, round(avg(attempts), 2) AS attempts,
           percentile(total_ms, 0.5) AS p50_ms, percentile(total_ms, 0.95) AS p95_ms
    FROM messages
    GROUP BY queue, outcome ORDER BY queue, outcome
""").show()

# %% The whole life of the message that took the longest, event by event
spark.sql("""
    SELECT offset, at, kind, attempt, lease_ms, actor
    FROM events
    JOIN (SELECT queue_id, seq FROM messages ORDER BY total_ms DESC NULLS LAST, seq LIMIT 1)
    USING (queue_id, seq)
    ORDER BY offset
""").show(truncate=False)

# %% Which dead letters are there, and what do their bodies have in common?
spark.sql("""
    SELECT queue, try_parse_json(CAST(body AS STRING)):region::string AS region,
           count(*) AS buried, max(attempts) AS attempts
    FROM messages WHERE outcome = 'buried'
    GROUP BY ALL ORDER BY buried DESC
""").show()

# %% Does a message that is tried again wait longer than its first attempt took?
spark.sql("""
    SELECT attempts, count(*) AS messages, percentile(wait_ms, 0.5) AS wait_ms,
           percentile(work_ms, 0.5) AS work_ms, percentile(total_ms, 0.5) AS total_ms
    FROM messages WHERE outcome = 'acked'
    GROUP BY attempts ORDER BY attempts
""").show()

# %% Who wastes attempts?
spark.sql("""
    SELECT queue, actor, sum(attempts) AS attempts, sum(wasted) AS wasted,
           round(sum(wasted) / sum(attempts), 3) AS share
    FROM consumers_hours
    GROUP BY queue, actor HAVING sum(attempts) > 0 ORDER BY share DESC, queue
""").show(truncate=False)

# %% Does everything add up?
spark.sql("""
    SELECT queue, accepted, acked, buried, expired, purged, deleted, live_lake, difference
    FROM audit QUALIFY row_number() OVER (PARTITION BY queue_id ORDER BY batch DESC) = 1
    ORDER BY queue
""").show()
