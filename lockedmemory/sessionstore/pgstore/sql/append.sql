-- Appends an exchange. The keys are those of the IDs, as in known.
-- Reply: the outcome, and the mark's token and n.
CREATE FUNCTION {schema}.append_v1(
  p_namespace text, p_name text, p_fence bigint, p_accepted bigint, p_awaited bigint, p_since bigint, p_first boolean,
  p_idle interval, p_limits bigint[],                    -- null: no IdleTTL; see session_trim_v1
  p_n bigint, p_op uuid, p_history_fence bigint, p_history_n bigint, p_history_sub bigint,
  p_messages bytea[], p_ids bytea[],
  p_keys uuid[], p_superseded uuid[], p_digest uuid, p_remember interval,
  OUT outcome integer, OUT mark_fence bigint, OUT mark_n bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '500ms'
SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
  s       {schema}.session;
  known   {schema}.known;
  key     uuid;
  decided bigint := 0; -- 1 known, 11 stopped, 12 superseded
  same    bigint := 0;
BEGIN
  PERFORM {schema}.durable_v1(true, current_setting('synchronous_commit'));
  -- Most Saves of a turn end here: all their conditions are facts of the row.
  IF NOT p_first AND p_ids = '{}' THEN
    UPDATE {schema}.session SET n = p_n, op = p_op, exchanges = exchanges + 1,
        kept_until = CASE WHEN p_idle IS NULL THEN 'infinity' ELSE clock_timestamp() + p_idle END
      WHERE namespace = p_namespace AND name = p_name AND fence = p_fence AND n < p_n
        AND exchanges > 0 AND kept_until > clock_timestamp()
      RETURNING id, 0, fence, n INTO s.id, outcome, mark_fence, mark_n;
    IF FOUND THEN
      INSERT INTO {schema}.exchange VALUES (s.id, p_fence, p_n, 0, p_op, NULL, p_messages);
      RETURN;
    END IF;
  END IF;
  s := {schema}.session_lock_v1(p_namespace, p_name);
  mark_fence := s.fence;
  mark_n := s.n;
  outcome := {schema}.session_barred_v1(s, p_fence, p_accepted, p_awaited, p_since);
  IF outcome > 0 THEN
    RETURN;
  END IF;
  -- ⚑ One by one: a plan for an array would be made for each call.
  FOREACH key IN ARRAY p_keys LOOP
    SELECT * INTO known FROM {schema}.known WHERE session = s.id AND id = key;
    IF known.until > clock_timestamp() AND (known.n > 0 OR known.fence > 0) THEN
      decided := CASE WHEN known.n > 0 THEN 1 ELSE known.fence END;
      same := same + (known.n > 0 AND known.digest = p_digest)::integer;
    END IF;
  END LOOP;
  IF decided > 0 THEN
    IF same < cardinality(p_keys) AND (decided = 1 OR cardinality(p_keys) > 1) THEN
      outcome := 2; -- conflict
      RETURN;
    END IF;
    IF p_fence >= s.fence THEN -- refused or not: the IDs are decided
      PERFORM {schema}.session_keep_v1({schema}.session_raise_v1(s, p_fence, p_first, p_limits), p_idle, p_first);
    END IF;
    outcome := decided;
    RETURN;
  END IF;
  IF {schema}.session_gone_v1(s, p_fence, ARRAY[p_history_fence, p_history_n, p_history_sub]) THEN
    outcome := 6; -- gone
    RETURN;
  END IF;
  outcome := {schema}.session_judged_v1(s, p_fence, p_n, p_op);
  IF outcome > 0 THEN
    RETURN;
  ELSIF outcome = 0 THEN
    s := {schema}.session_raise_v1(s, p_fence, p_first, p_limits);
    s.n := p_n;
    s.op := p_op;
    s.state := 'begun';
    s.exchanges := s.exchanges + 1;
    INSERT INTO {schema}.exchange VALUES (s.id, p_fence, p_n, 0, p_op, p_ids, p_messages);
    PERFORM {schema}.session_keep_v1(s, p_idle, p_first);
  END IF;
  outcome := 0;
  FOREACH key IN ARRAY p_keys || p_superseded LOOP
    IF key = ANY (p_keys) THEN
      PERFORM {schema}.session_know_v1(s, key, p_digest, p_fence, p_n, p_remember);
    ELSIF coalesce({schema}.session_fate_v1(s, key), 0) = 0 THEN
      PERFORM {schema}.session_know_v1(s, key, key, 12, 0, p_remember);
    END IF;
    DELETE FROM {schema}.pending WHERE namespace = p_namespace AND name = p_name AND id = key;
  END LOOP;
END $$;
