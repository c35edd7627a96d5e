-- Shows one name. It decides nothing, and changes nothing. Without a row or a holder held is false.
CREATE FUNCTION {schema}.inspect_v1(
  p_namespace text, p_key text,
  OUT held boolean, OUT fence bigint, OUT waiters integer, OUT age bigint, OUT remaining bigint, OUT holder bytea
) LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
  now bigint := {schema}.clock_v1();
BEGIN
  SELECT true, token, waiting, now - granted_at, expires_at - now, payload
    INTO held, fence, waiters, age, remaining, holder
    FROM {schema}.lease
    WHERE namespace = p_namespace AND key = p_key AND NOT released AND expires_at > now;
  held := FOUND;
END $$;

-- Shows the names of a namespace after p_after that are held or have waiters, in the order of their
-- keys, and of each the first p_waiters live waiters.
CREATE FUNCTION {schema}.list_v1(p_namespace text, p_after text, p_limit integer, p_waiters integer)
RETURNS TABLE (
  key text, held boolean, fence bigint, waiters integer, age bigint, remaining bigint, holder bytea,
  tickets bigint[], alive bigint[], holders bytea[]
) LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
  now bigint := {schema}.clock_v1();
BEGIN
  RETURN QUERY
    SELECT l.key, NOT l.released AND l.expires_at > now, l.token, l.waiting, now - l.granted_at,
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
    WHERE l.namespace = p_namespace AND l.key > p_after AND (NOT l.released AND l.expires_at > now OR l.waiting > 0)
    ORDER BY l.namespace, l.key LIMIT p_limit;
END $$;
