-- Appends an exchange, and then releases the lock of the session for its owner.
-- Reply: that of append_v1, and that of release_v1.
--
-- ⚑ It waits for no lease. If another transaction has the lease, the lock is left alone.
-- ⚑ No error of the release changes the reply of the append.
CREATE FUNCTION {schema}.append_release_v1(
  p_lock_namespace text, p_owner text,
  p_namespace text, p_name text, p_fence bigint, p_accepted bigint, p_awaited bigint, p_since bigint, p_first boolean,
  p_idle interval, p_limits bigint[],                    -- null: no IdleTTL; see session_trim_v1
  p_n bigint, p_op uuid, p_history_fence bigint, p_history_n bigint, p_history_sub bigint,
  p_messages bytea[], p_ids bytea[],
  p_keys uuid[], p_superseded uuid[], p_digest uuid, p_remember interval,
  OUT outcome integer, OUT mark_fence bigint, OUT mark_n bigint,
  OUT released boolean, OUT to_channel text, OUT to_message text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  setting text;
BEGIN
  SELECT * INTO outcome, mark_fence, mark_n FROM {schema}.append_v1(
      p_namespace, p_name, p_fence, p_accepted, p_awaited, p_since, p_first, p_idle, p_limits, p_n, p_op,
      p_history_fence, p_history_n, p_history_sub, p_messages, p_ids, p_keys, p_superseded, p_digest, p_remember);
  released := false;
  IF outcome NOT IN (0, 1) THEN
    RETURN;
  END IF;
  setting := current_setting('synchronous_commit');
  BEGIN
    PERFORM FROM {schema}.lease WHERE namespace = p_lock_namespace AND key = p_name FOR UPDATE SKIP LOCKED;
    IF FOUND THEN
      SELECT * INTO released, to_channel, to_message
        FROM {schema}.release_v1(p_lock_namespace, p_name, p_owner, 0, false);
    END IF;
  EXCEPTION WHEN OTHERS THEN
    released := false;
  END;
  PERFORM set_config('synchronous_commit', setting, true);
END $$;
