-- Sends messages to channels. ⚑ It waits for no disk: NOTIFY holds a lock of the whole cluster until its
-- transaction has ended.
CREATE FUNCTION {schema}.notify_v1(p_channels text[], p_messages text[]) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  PERFORM set_config('synchronous_commit', 'off', true);
  PERFORM pg_notify(c, m) FROM unnest(p_channels, p_messages) AS q (c, m);
END $$;

-- Shows what has become of owners that wait: owner i waits for the name with the elements i.
--
-- ahead     waiters before the owner, at most 20; NULL: the owner is not in the queue
-- granted   the owner, if it holds the name
--
-- It decides nothing, and changes nothing. ⚑ A standby may lack the grant: the owner has to claim it.
CREATE FUNCTION {schema}.poll_v1(p_namespaces text[], p_keys text[], p_owners text[])
RETURNS TABLE (ahead bigint, granted text)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
  SET enable_seqscan = off SET enable_bitmapscan = off
  SET enable_hashjoin = off SET enable_mergejoin = off AS $$
#variable_conflict use_column
DECLARE
  now bigint := {schema}.clock_v1();
BEGIN
  RETURN QUERY
    SELECT CASE WHEN w.owner IS NOT NULL THEN (
        SELECT count(*) FROM (
          SELECT FROM {schema}.waiter b
          WHERE b.namespace = q.n AND b.key = q.k AND b.ticket < w.ticket AND b.alive_until > now
          LIMIT 20
        ) before
      ) END,
      l.owner
    FROM unnest(p_namespaces, p_keys, p_owners) AS q (n, k, o)
    LEFT JOIN {schema}.waiter w ON w.owner = q.o AND w.namespace = q.n AND w.key = q.k
    LEFT JOIN {schema}.lease l ON l.namespace = q.n AND l.key = q.k AND l.owner = q.o
      AND NOT l.released AND l.expires_at > now;
END $$;
