-- p99 and maximum of each device and minute of host.latmon.jsonl.gz, and the buckets in buckets.parquet: duckdb < docs/p99.sql
CREATE VIEW windows AS
SELECT * FROM read_ndjson('host.latmon.jsonl.gz', columns = {
  type: 'VARCHAR', t: 'DOUBLE', dt: 'BIGINT',
  h: 'STRUCT(rows VARCHAR[][], b BIGINT[], n BIGINT[], max BIGINT[])'})
WHERE type = 'window';

CREATE MACRO bucket_end(i) AS
  CASE WHEN i < 8 THEN i + 1 ELSE ((8 + (i & 7)) + 1) << ((i >> 3) - 1) END;

CREATE VIEW buckets AS
SELECT t, dt, h.rows[slot // 256 + 1][1] AS device, h.rows[slot // 256 + 1][2] AS op,
       nullif(h.max[slot // 256 + 1], -1) AS max, slot % 256 AS bucket, n
FROM (SELECT t, dt, h, h.n[k] AS n, sum(h.b[k]) OVER (PARTITION BY t ORDER BY k)::BIGINT AS slot
      FROM windows, LATERAL unnest(range(1, len(h.b) + 1)) AS u(k));

WITH summed AS (
  SELECT device, time_bucket(INTERVAL 1 minute, to_timestamp(t - dt / 1e6)) AS minute, bucket,
         sum(n) AS n, max(max) AS max
  FROM buckets GROUP BY ALL),
ranked AS (
  SELECT *, sum(n) OVER w AS below, sum(n) OVER (PARTITION BY device, minute) AS ios,
         max(max) OVER (PARTITION BY device, minute) AS longest
  FROM summed WINDOW w AS (PARTITION BY device, minute ORDER BY bucket))
SELECT device, strftime(minute, '%H:%M') AS minute, any_value(ios)::BIGINT AS ios,
       least(min(bucket_end(bucket)) FILTER (below >= 0.99 * ios), any_value(longest)) AS p99_us,
       any_value(longest) AS max_us
FROM ranked GROUP BY device, minute ORDER BY device, minute;

COPY buckets TO 'buckets.parquet' (FORMAT parquet, COMPRESSION zstd);
