-- Decides IDs, and raises the mark, without a lease, see storedriver.CloseRequest. An ID is its key, or null.
-- Reply: the outcome, and the mark's token and n before.
CREATE FUNCTION {schema}.close_v1(
  p_namespace text, p_name text, p_idle interval,        -- null: no IdleTTL
  p_id uuid, p_by uuid, p_below bigint, p_mark bigint, p_stop bigint, p_remember interval,
  OUT outcome integer, OUT mark_fence bigint, OUT mark_n bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '500ms'
SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
  s    {schema}.session;
  fate bigint;
BEGIN
  PERFORM {schema}.durable_v1(true, current_setting('synchronous_commit'));
  s := {schema}.session_lock_v1(p_namespace, p_name);
  fate := {schema}.session_fate_v1(s, p_by);
  mark_fence := s.fence;
  mark_n := s.n;
  outcome := coalesce(fate, 0);
  -- ⚑ A decided message interrupts nothing. ⚑ A late copy closes a message that runs.
  IF outcome > 0 OR p_below > 0 AND s.fence >= p_below THEN
    RETURN;
  END IF;
  IF p_below = 0 AND fate IS NULL AND p_by IS NOT NULL THEN -- ⚑ once: else a copy becomes the newest
    s.newest := p_by;
    fate := {schema}.session_know_v1(s, p_by, p_by, 0, 0, p_remember);
  END IF;
  -- ⚑ An older message ends none. ⚑ Without a bound it is not judged: it may run.
  IF p_below > 0 AND fate = 0 AND s.newest <> p_by
    AND coalesce({schema}.session_fate_v1(s, s.newest), 0) NOT IN (11, 12) THEN
    outcome := {schema}.session_know_v1(s, p_by, p_by, 12, 0, p_remember);
    RETURN;
  END IF;
  s := {schema}.session_raise_v1(s, p_mark, false, '{0,0}');
  s.stopped := greatest(s.stopped, p_stop);
  PERFORM {schema}.session_keep_v1(s, p_idle, false);
  IF p_id IS NOT NULL THEN
    fate := coalesce(nullif({schema}.session_fate_v1(s, p_id), 0),
      {schema}.session_know_v1(s, p_id, p_id, CASE WHEN p_below > 0 THEN 12 ELSE 11 END, 0, p_remember));
    DELETE FROM {schema}.pending WHERE namespace = p_namespace AND name = p_name AND id = p_id;
    outcome := CASE WHEN p_below = 0 THEN fate ELSE 0 END;
  END IF;
END $$;
