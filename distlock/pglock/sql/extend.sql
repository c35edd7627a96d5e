-- Prolongs grants, and shortens none. Request i is element i of each array. p_ttls: µs.
--
-- ⚑ It locks the rows in the order of the primary key, and skips rows that others lock: one locked row
-- would delay all other requests. With p_wait, in ms, it waits for them, at most for so long each.
--
-- ⚑ Each call is planned anew: a plan from a time when the table was tiny would read all of it.
--
-- outcome of request i   held      its owner holds the name, for the TTL at least
--                        asked     the same, and was asked to end, see ask_v1
--                        not held  final
--                        skipped   another transaction locks the row
CREATE FUNCTION {schema}.extend_v1(
  p_namespaces text[], p_keys text[], p_owners text[], p_ttls bigint[], p_wait integer
) RETURNS TABLE (i bigint, outcome text)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
  SET plan_cache_mode = force_custom_plan SET lock_timeout = '200ms' AS $$
#variable_conflict use_column
DECLARE
  setting text := current_setting('synchronous_commit');
  locked  bigint[];
  now     bigint;
BEGIN
  IF p_wait > 0 THEN
    PERFORM set_config('lock_timeout', p_wait::text, true);
    locked := ARRAY(SELECT i
      FROM unnest(p_namespaces, p_keys) WITH ORDINALITY AS q (n, k, i)
      JOIN {schema}.lease l ON l.namespace = q.n AND l.key = q.k
      ORDER BY l.namespace, l.key FOR UPDATE OF l);
  ELSE
    locked := ARRAY(SELECT i
      FROM unnest(p_namespaces, p_keys) WITH ORDINALITY AS q (n, k, i)
      JOIN {schema}.lease l ON l.namespace = q.n AND l.key = q.k
      ORDER BY l.namespace, l.key FOR UPDATE OF l SKIP LOCKED);
  END IF;
  now := {schema}.clock_v1();
  PERFORM {schema}.durable_v1(true, setting);
  RETURN QUERY
    WITH request AS (
      SELECT q.*, q.i = ANY (locked) AS has_lock
      FROM unnest(p_namespaces, p_keys, p_owners, p_ttls) WITH ORDINALITY AS q (n, k, o, ttl, i)
    ), extended AS (
      UPDATE {schema}.lease l SET expires_at = greatest(l.expires_at, now + q.ttl)
        FROM request q
        WHERE q.has_lock AND l.namespace = q.n AND l.key = q.k AND l.owner = q.o
          AND NOT l.released AND l.expires_at > now
        RETURNING l.namespace, l.key, l.owner, l.asked
    )
    SELECT q.i, CASE
        WHEN e.asked > 0 THEN 'asked'
        WHEN e.owner IS NOT NULL THEN 'held'
        WHEN q.has_lock THEN 'not held'
        WHEN EXISTS (SELECT FROM {schema}.lease l WHERE l.namespace = q.n AND l.key = q.k) THEN 'skipped'
        ELSE 'not held'
      END
      FROM request q LEFT JOIN extended e ON e.namespace = q.n AND e.key = q.k AND e.owner = q.o;
END $$;

-- Raises the token of a holder to at least a floor. A floor more than a year ahead is the error BL001.
--
-- May be repeated: a token that reaches the floor stays. The remaining time never changes.
CREATE FUNCTION {schema}.raise_v1(
  p_namespace text, p_key text, p_owner text, p_floor bigint, p_wait integer DEFAULT 200,
  OUT held boolean, OUT fence bigint, OUT fence_end bigint
) LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
  SET enable_seqscan = off SET enable_bitmapscan = off AS $$
#variable_conflict use_column
DECLARE
  setting text := current_setting('synchronous_commit');
  now     bigint;
  r       {schema}.lease;
BEGIN
  PERFORM set_config('lock_timeout', p_wait::text, true);
  SELECT * INTO r FROM {schema}.lease WHERE namespace = p_namespace AND key = p_key FOR UPDATE;
  now := {schema}.clock_v1(); -- ⚑ after the wait for the row
  IF p_floor > now + 31536000000000 THEN -- driver.FloorAhead
    RAISE EXCEPTION USING ERRCODE = 'BL001', MESSAGE = 'the floor is more than a year ahead of the clock of the server';
  END IF;
  held := r.owner = p_owner AND NOT r.released AND r.expires_at > now;
  IF held IS NOT true THEN -- also without a row
    held := false;
    RETURN;
  END IF;
  fence := r.token;
  fence_end := r.block_end;
  IF r.token < p_floor THEN
    fence := greatest(r.block_end + 1, now, p_floor);
    fence_end := greatest(fence, now + 20000); -- driver.FenceBlock
    UPDATE {schema}.lease SET token = fence, block_end = fence_end
      WHERE namespace = p_namespace AND key = p_key;
  END IF;
  PERFORM {schema}.durable_v1(true, setting);
END $$;

-- Asks the holder of a name to end its work, if the grant shows the token p_fence, or is for the work p_work,
-- a hash. The grant then shows the token of the ask. An Ask of a free name reserves a token. Any other one
-- changes nothing. A floor more than a year ahead is the error BL001.
--
-- fence    the token of the ask, the reserved token, or the shown one
-- own      the token that the owner has
-- owner    of a grant that was asked
-- held, …  the name before the call, see inspect_v1
CREATE FUNCTION {schema}.ask_v1(
  p_namespace text, p_key text, p_fence bigint, p_work text, p_floor bigint, p_wait integer DEFAULT 200,
  OUT asks boolean, OUT fence bigint, OUT own bigint, OUT owner text, OUT held boolean, OUT shown bigint,
  OUT waiters integer, OUT age bigint, OUT remaining bigint, OUT holder bytea
) LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
  SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
  r {schema}.lease;
BEGIN
  PERFORM set_config('lock_timeout', p_wait::text, true);
  PERFORM {schema}.durable_v1(true, current_setting('synchronous_commit'));
  r := {schema}.lease_lock_v1(p_namespace, p_key);
  IF p_floor > {schema}.clock_v1() + 31536000000000 THEN -- driver.FloorAhead
    RAISE EXCEPTION USING ERRCODE = 'BL001', MESSAGE = 'the floor is more than a year ahead of the clock of the server';
  END IF;
  SELECT * INTO held, shown, waiters, age, remaining, holder FROM {schema}.inspect_v1(p_namespace, p_key);
  -- In a string of the payload, a quote has a backslash. So these bytes are its work.
  asks := held AND (shown = p_fence
    OR p_work <> '' AND position(convert_to(format('"work":%s', to_json(p_work)), 'UTF8') IN holder) > 0);
  fence := shown;
  own := r.token;
  owner := CASE WHEN asks THEN r.owner END;
  IF asks OR NOT held THEN
    -- ⚑ With the clock: after a failover, block_end + 1 could be the token of an earlier ask.
    fence := greatest(r.block_end + 1, {schema}.clock_v1(), p_floor);
    UPDATE {schema}.lease SET block_end = fence, asked = fence WHERE namespace = p_namespace AND key = p_key;
  END IF;
END $$;
