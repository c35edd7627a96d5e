-- Appends an exchange that answers several messages, see storedriver.AppendAll. The IDs are keys, as in known.
-- Reply: that of append_v1, which judges the first of them.
CREATE FUNCTION {schema}.append_all_v1(
  p_namespace text, p_name text, p_fence bigint, p_accepted bigint, p_awaited bigint, p_since bigint, p_first boolean,
  p_idle interval, p_limits bigint[],                    -- null: no IdleTTL; see session_trim_v1
  p_n bigint, p_op uuid, p_history_fence bigint, p_history_n bigint, p_history_sub bigint,
  p_messages bytea[], p_id bytea, p_also bytea,          -- of the exchange
  p_ids uuid[], p_superseded uuid[], p_digest uuid, p_remember interval,
  OUT outcome integer, OUT mark_fence bigint, OUT mark_n bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '500ms'
SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
  s       {schema}.session;
  decided bigint;
  same    bigint;
BEGIN
  PERFORM {schema}.durable_v1(true, current_setting('synchronous_commit'));
  s := {schema}.session_lock_v1(p_namespace, p_name);
  SELECT count(*), count(*) FILTER (WHERE n > 0 AND digest = p_digest) INTO decided, same FROM {schema}.known
    WHERE session = s.id AND id = ANY (p_ids) AND until > clock_timestamp() AND (n > 0 OR fence > 0);
  IF decided > 0 AND same < cardinality(p_ids) THEN
    outcome := {schema}.session_barred_v1(s, p_fence, p_accepted, p_awaited, p_since);
    outcome := CASE WHEN outcome > 0 THEN outcome ELSE 2 END; -- conflict
    mark_fence := s.fence;
    mark_n := s.n;
    RETURN;
  END IF;
  SELECT * INTO outcome, mark_fence, mark_n FROM {schema}.append_v1(
      p_namespace, p_name, p_fence, p_accepted, p_awaited, p_since, p_first, p_idle, p_limits, p_n, p_op,
      p_history_fence, p_history_n, p_history_sub, p_messages, p_id, p_ids[1], p_digest, p_remember);
  IF outcome = 0 THEN
    UPDATE {schema}.exchange SET also = p_also WHERE session = s.id AND fence = p_fence AND n = p_n AND sub = 0;
    PERFORM {schema}.session_know_v1(s, id, p_digest, p_fence, p_n, p_remember) FROM unnest(p_ids[2:]) AS id;
    PERFORM {schema}.session_know_v1(s, id, id, 12, 0, p_remember) FROM unnest(p_superseded) AS id
      WHERE coalesce({schema}.session_fate_v1(s, id), 0) = 0;
    DELETE FROM {schema}.pending WHERE namespace = p_namespace AND name = p_name AND id = ANY (p_ids || p_superseded);
  END IF;
END $$;
