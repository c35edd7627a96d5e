-- Locks the row of a name. It makes a missing row, which is free. The waiters and the tombstones stay
-- if an operator has deleted the row.
CREATE FUNCTION {schema}.lease_lock_v1(p_namespace text, p_key text) RETURNS {schema}.lease
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  r {schema}.lease;
BEGIN
  LOOP
    SELECT * INTO r FROM {schema}.lease l WHERE l.namespace = p_namespace AND l.key = p_key FOR UPDATE;
    EXIT WHEN FOUND;
    INSERT INTO {schema}.lease (namespace, key, waiting, flagged_until) VALUES (p_namespace, p_key,
        (SELECT count(*) FROM {schema}.waiter w WHERE w.namespace = p_namespace AND w.key = p_key),
        (SELECT coalesce(max(t.until), 0) FROM {schema}.tomb t WHERE t.namespace = p_namespace AND t.key = p_key))
      ON CONFLICT DO NOTHING;
  END LOOP;
  RETURN r;
END $$;

-- Hands a free name to its first live waiter whose ticket is below p_below, and deletes the dead
-- waiters before it. The caller has locked the row in lease.
--
-- p_ends: the holder releases the name. p_gone: so many rows of waiter were deleted before.
-- p_flagged: a tombstone was written that stands until then; 0: none.
--
-- to_channel, to_message: for notify_v1; the channel is empty if the waiter polls. The message is
-- <owner>:<seq>:<ttl, µs>:<waiters>:<token>:<last token>. Both are NULL if no
-- waiter is there. The row in lease is then as before, and dead counts the deleted waiters.
CREATE FUNCTION {schema}.hand_off_v1(
  p_namespace text, p_key text, p_now bigint, p_below bigint, p_ends boolean, p_gone integer, p_flagged bigint,
  p_setting text, OUT dead integer, OUT to_channel text, OUT to_message text
) LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
  w {schema}.waiter;
BEGIN
  SELECT * INTO w FROM {schema}.waiter
    WHERE namespace = p_namespace AND key = p_key AND ticket < p_below AND alive_until > p_now
    ORDER BY ticket LIMIT 1;
  DELETE FROM {schema}.waiter
    WHERE namespace = p_namespace AND key = p_key AND ticket <= coalesce(w.ticket, p_below - 1);
  GET DIAGNOSTICS dead = ROW_COUNT;
  IF w.owner IS NULL THEN
    RETURN;
  END IF;
  to_channel := w.channel;
  UPDATE {schema}.lease l SET
      previous = owner, previous_released = l.released OR p_ends, owner = w.owner, released = false,
      token = greatest(block_end + 1, p_now), block_end = greatest(block_end + 1, p_now + 20000), -- driver.FenceBlock
      granted_at = p_now, expires_at = greatest(w.alive_until, p_now + 1000000), -- driver.MinHandoff
      waiting = waiting - dead - p_gone, asked = 0,
      flagged_until = greatest(flagged_until, p_flagged), payload = w.payload
    WHERE namespace = p_namespace AND key = p_key
    RETURNING format('%s:%s:%s:%s:%s:%s', owner, w.seq, expires_at - granted_at, waiting, token, block_end)
    INTO to_message;
  PERFORM {schema}.durable_v1(true, p_setting); -- ⚑ other processes see the handoff
END $$;
