-- p99 and maximum of each device and minute of host.latmon.jsonl.gz, and all buckets as Parquet: duckdb < docs/p99.sql
CREATE VIEW windows AS
SELECT * FROM read_ndjson('host.latmon.jsonl.gz', columns = {
  type: 'VARCHAR', t: 'DOUBLE', dt: 'BIGINT',
  h: 'STRUCT(m VARCHAR, l VARCHAR[], n BIGINT, sum BIGINT, max BIGINT, b BIGINT[])[]'})
WHERE type = 'window';

CREATE MACRO bucket_end(i) AS
  CASE WHEN i < 8 THEN i + 1 ELSE ((8 + (i & 7)) + 1) << ((i >> 3) - 1) END;

CREATE VIEW buckets AS
SELECT t, dt, s.l[1] AS device, s.l[2] AS op, s.m AS stage, s.max, s.b[2 * k - 1] AS bucket, s.b[2 * k] AS n
FROM (SELECT t, dt, unnest(h) AS s FROM windows), LATERAL unnest(range(1, len(s.b) // 2 + 1)) AS u(k);

WITH summed AS (
  SELECT device, time_bucket(INTERVAL 1 minute, to_timestamp(t - dt / 1e6)) AS minute, bucket,
         sum(n) AS n, max(max) AS max
  FROM buckets WHERE stage = 'total' GROUP BY ALL),
ranked AS (
  SELECT *, sum(n) OVER w AS below, sum(n) OVER (PARTITION BY device, minute) AS ios,
         max(max) OVER (PARTITION BY device, minute) AS longest
  FROM summed WINDOW w AS (PARTITION BY device, minute ORDER BY bucket))
SELECT device, strftime(minute, '%H:%M') AS minute, any_value(ios)::BIGINT AS ios,
       least(min(bucket_end(bucket)) FILTER (below >= 0.99 * ios), any_value(longest)) AS p99_us,
       any_value(longest) AS max_us
FROM ranked GROUP BY device, minute ORDER BY device, minute;

COPY buckets TO 'host.parquet' (FORMAT parquet, COMPRESSION zstd);
