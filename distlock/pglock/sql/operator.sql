-- Shows one name. It decides nothing, and changes nothing. Without a row or a holder held is false.
CREATE FUNCTION {schema}.inspect_v1(
  p_namespace text, p_key text,
  OUT held boolean, OUT fence bigint, OUT waiters integer, OUT age bigint, OUT remaining bigint, OUT holder bytea
) LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
  SET enable_seqscan = off SET enable_bitmapscan = off AS $$
#variable_conflict use_column
DECLARE
  now bigint := {schema}.clock_v1();
BEGIN
  SELECT true, greatest(token, asked), waiting, now - granted_at, expires_at - now, payload
    INTO held, fence, waiters, age, remaining, holder
    FROM {schema}.lease
    WHERE namespace = p_namespace AND key = p_key AND NOT released AND expires_at > now;
  held := FOUND;
END $$;

-- Shows the names of a namespace from p_from to p_to that are held or have waiters, in the order of their
-- keys, and of each the first p_waiters live waiters.
CREATE FUNCTION {schema}.list_v1(p_namespace text, p_from text, p_to text, p_limit integer, p_waiters integer)
RETURNS TABLE (
  key text, held boolean, fence bigint, waiters integer, age bigint, remaining bigint, holder bytea,
  tickets bigint[], alive bigint[], holders bytea[]
) LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
  SET enable_seqscan = off SET enable_bitmapscan = off AS $$
#variable_conflict use_column
DECLARE
  now bigint := {schema}.clock_v1();
BEGIN
  RETURN QUERY
    SELECT l.key, NOT l.released AND l.expires_at > now, greatest(l.token, l.asked), l.waiting, now - l.granted_at,
      l.expires_at - now, l.payload, q.tickets, q.alive, q.holders
    FROM {schema}.lease l CROSS JOIN LATERAL (
      SELECT array_agg(w.ticket ORDER BY w.ticket) AS tickets, array_agg(w.alive_until - now ORDER BY w.ticket) AS alive,
        array_agg(w.payload ORDER BY w.ticket) AS holders
      FROM (
        SELECT * FROM {schema}.waiter
        WHERE namespace = l.namespace AND key = l.key AND alive_until > now
        ORDER BY ticket LIMIT p_waiters
      ) w
    ) q
    WHERE l.namespace = p_namespace AND l.key BETWEEN p_from AND p_to AND (NOT l.released AND l.expires_at > now OR l.waiting > 0)
    ORDER BY l.namespace, l.key LIMIT p_limit;
END $$;

-- Deletes what no caller needs of up to 1,000 names after a place, in the order of the primary key:
-- tombstones that have ended, waiters without a promise for a minute, and free names whose last token is
-- older than 24 h (driver.FenceKeep). It skips locked rows of lease, and waits for no disk. It waits at
-- most 200 ms for other locks, because it has locked rows of lease.
--
-- to_namespace, to_key   the next place; empty: the beginning
-- deleted                names
CREATE FUNCTION {schema}.sweep_v1(
  p_namespace text, p_key text, OUT to_namespace text, OUT to_key text, OUT deleted integer
) LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
  SET enable_seqscan = off SET enable_bitmapscan = off SET lock_timeout = '200ms' AS $$
#variable_conflict use_column
DECLARE
  now  bigint := {schema}.clock_v1();
  dead integer;
  r    record;
BEGIN
  PERFORM {schema}.durable_v1(false, '');
  SELECT namespace, key INTO to_namespace, to_key FROM {schema}.lease
    WHERE (namespace, key) > (p_namespace, p_key) ORDER BY namespace, key OFFSET 999 LIMIT 1;
  FOR r IN SELECT namespace, key FROM {schema}.lease
    WHERE (namespace, key) > (p_namespace, p_key) AND (to_key IS NULL OR (namespace, key) <= (to_namespace, to_key))
      AND (waiting > 0 OR flagged_until > 0) AND flagged_until <= now AND block_end < now - 60000000
    ORDER BY namespace, key FOR UPDATE SKIP LOCKED
  LOOP
    DELETE FROM {schema}.tomb WHERE namespace = r.namespace AND key = r.key AND until <= now;
    DELETE FROM {schema}.waiter WHERE namespace = r.namespace AND key = r.key AND alive_until <= now - 60000000;
    GET DIAGNOSTICS dead = ROW_COUNT;
    UPDATE {schema}.lease SET waiting = waiting - dead, flagged_until = 0 WHERE namespace = r.namespace AND key = r.key;
  END LOOP;
  WITH old AS (
    SELECT namespace, key FROM {schema}.lease
    WHERE (namespace, key) > (p_namespace, p_key) AND (to_key IS NULL OR (namespace, key) <= (to_namespace, to_key))
      AND (released OR expires_at <= now) AND waiting = 0 AND flagged_until = 0 AND block_end < now - 86400000000
    ORDER BY namespace, key FOR UPDATE SKIP LOCKED
  )
  DELETE FROM {schema}.lease l USING old WHERE l.namespace = old.namespace AND l.key = old.key;
  GET DIAGNOSTICS deleted = ROW_COUNT;
  to_namespace := coalesce(to_namespace, '');
  to_key := coalesce(to_key, '');
END $$;
