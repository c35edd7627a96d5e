-- Keeps a question without a lease, see storedriver.Put.
-- Reply: the outcome, the token of the last Delete, and 0.
CREATE FUNCTION {schema}.put_v1(
  p_namespace text, p_name text, p_deleted bigint, p_id bytea, p_hash uuid, p_question bytea,
  p_life interval, p_most bigint, p_bytes bigint,        -- the bounds of an inbox
  OUT outcome integer, OUT mark_fence bigint, OUT mark_n bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '500ms'
SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
  s     {schema}.session;
  now   timestamptz;
  inbox record;
BEGIN
  PERFORM {schema}.durable_v1(true, current_setting('synchronous_commit'));
  s := {schema}.session_lock_v1(p_namespace, p_name);
  now := clock_timestamp(); -- ⚑ after the lock
  mark_fence := s.deleted;
  mark_n := 0;
  outcome := CASE WHEN p_deleted <> s.deleted THEN 9 ELSE coalesce({schema}.session_fate_v1(s, p_hash), 0) END;
  IF outcome > 0 THEN
    RETURN;
  END IF;
  DELETE FROM {schema}.pending WHERE namespace = p_namespace AND name = p_name
    AND NOT {schema}.session_pends_v1(s, id, arrived, p_life);
  SELECT count(*) AS questions, sum(length(message_id) + length(question)) AS bytes, max(arrived) AS newest,
      bool_or(id = p_hash) AS has_it
    INTO inbox FROM {schema}.pending WHERE namespace = p_namespace AND name = p_name;
  IF inbox.has_it THEN
    RETURN;
  ELSIF inbox.questions >= p_most OR inbox.bytes + length(p_id) + length(p_question) > p_bytes THEN -- null: it is empty
    outcome := 8; -- full
    RETURN;
  END IF;
  INSERT INTO {schema}.pending VALUES
    (p_namespace, p_name, p_hash, greatest(now, inbox.newest + interval '1 microsecond'), p_id, p_question);
  -- ⚑ At a stricter isolation, a Delete that has waited would not see the question. The session counts as unused.
  UPDATE {schema}.session SET newest = newest WHERE namespace = p_namespace AND name = p_name;
  -- ⚑ As session_sweep_v1: it waits for no row, and not at another isolation level.
  IF current_setting('transaction_isolation') = 'read committed' THEN
    DELETE FROM {schema}.pending WHERE ctid = ANY (ARRAY(SELECT ctid FROM {schema}.pending
      WHERE arrived <= now - p_life ORDER BY arrived LIMIT 4 FOR UPDATE SKIP LOCKED));
  END IF;
END $$;

-- Lists what is pending, by arrival, and removes the rest. With p_first, it shows the token before.
-- Reply: the outcome, the mark's token and n, and of each question its ID, text and age in microseconds.
CREATE FUNCTION {schema}.pending_v1(
  p_namespace text, p_name text, p_fence bigint, p_accepted bigint, p_awaited bigint, p_since bigint, p_first boolean,
  p_idle interval, p_limits bigint[],                    -- null: no IdleTTL; see session_trim_v1
  p_life interval,
  OUT outcome integer, OUT mark_fence bigint, OUT mark_n bigint, OUT ids bytea[], OUT questions bytea[], OUT ages bigint[])
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '500ms'
SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
  s   {schema}.session;
  now timestamptz;
BEGIN
  SELECT r.outcome, r.mark_fence, r.mark_n INTO outcome, mark_fence, mark_n FROM {schema}.read_v1( -- of no exchange
    p_namespace, p_name, p_first, p_fence, p_accepted, p_awaited, p_since, p_idle, p_limits,
    false, '{0,0,0}', 0, NULL, NULL, true, false) AS r;
  IF outcome > 0 THEN
    RETURN;
  END IF;
  SELECT * INTO s FROM {schema}.session WHERE namespace = p_namespace AND name = p_name;
  DELETE FROM {schema}.pending WHERE namespace = p_namespace AND name = p_name
    AND NOT {schema}.session_pends_v1(s, id, arrived, p_life);
  now := clock_timestamp();
  SELECT array_agg(message_id ORDER BY arrived), array_agg(question ORDER BY arrived),
      array_agg(greatest(0, extract(epoch FROM now - arrived) * 1e6)::bigint ORDER BY arrived)
    INTO ids, questions, ages FROM {schema}.pending WHERE namespace = p_namespace AND name = p_name;
END $$;

-- Lists the sessions that have a question that is pending, after a name: those among the next 1,000 names.
-- Reply: as that of sessions_v1.
CREATE FUNCTION {schema}.inboxes_v1(p_namespace text, p_after text, p_life interval, OUT names text[], OUT next text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off AS $$
BEGIN
  IF pg_is_in_recovery() THEN
    RAISE 'the server is a standby: it may lack questions' USING ERRCODE = 'read_only_sql_transaction';
  END IF;
  names := '{}';
  next := p_after;
  FOR looked IN 1..1000 LOOP
    next := (SELECT name FROM {schema}.pending WHERE namespace = p_namespace AND name > next ORDER BY name LIMIT 1);
    IF next IS NULL THEN
      next := '';
      RETURN;
    END IF;
    IF EXISTS (SELECT FROM {schema}.pending AS p LEFT JOIN {schema}.session AS s USING (namespace, name)
        WHERE namespace = p_namespace AND name = next AND {schema}.session_pends_v1(s, p.id, arrived, p_life)) THEN
      names := names || next;
    END IF;
  END LOOP;
END $$;
