-- Grants a name, keeps a grant, or puts an owner into the queue.
--
-- p_ttl, p_alive: µs. p_alive 0: the request does not wait. p_ticket 0: the end of the queue. p_wait: for
-- how many ms to wait for a row that another transaction locks.
--
-- outcome     granted    fence, fence_end, waiters
--             busy       the present grant: fence, waiters, age and remaining in µs, holder; and place
--             full       the same, and the queue is full
--             cancelled  the owner has ended, or has a tombstone
-- to_…        a handoff, see hand_off_v1; the caller notifies after the commit
--
-- May be repeated: a holder gets its stored grant, and a waiter keeps its place.
CREATE FUNCTION {schema}.acquire_v1(
  p_namespace text, p_key text, p_owner text, p_ttl bigint, p_payload bytea,
  p_alive bigint, p_seq bigint, p_ticket bigint, p_channel text, p_wait integer DEFAULT 200,
  OUT outcome text, OUT fence bigint, OUT fence_end bigint, OUT waiters integer,
  OUT age bigint, OUT remaining bigint, OUT holder bytea, OUT place bigint,
  OUT to_channel text, OUT to_message text
) LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
  SET enable_seqscan = off SET enable_bitmapscan = off AS $$
#variable_conflict use_column
DECLARE
  setting text := current_setting('synchronous_commit');
  now     bigint := {schema}.clock_v1();
  gone    integer := 0;
  r       {schema}.lease;
BEGIN
  PERFORM set_config('lock_timeout', p_wait::text, true);
  -- ⚑ The fast path: every condition stands in the row, so it holds after a wait for the row, too.
  -- The clock was read before: the grant ends early rather than late.
  UPDATE {schema}.lease SET
      previous = owner, previous_released = released, owner = p_owner, released = false,
      token = greatest(block_end + 1, now), block_end = greatest(block_end + 1, now + 20000), -- driver.FenceBlock
      granted_at = now, expires_at = now + p_ttl, asked = 0, payload = p_payload
    WHERE namespace = p_namespace AND key = p_key AND (released OR expires_at <= now)
      AND waiting = 0 AND flagged_until <= now AND owner <> p_owner AND previous <> p_owner
    RETURNING token, block_end INTO fence, fence_end;
  IF FOUND THEN
    outcome := 'granted';
    PERFORM {schema}.durable_v1(true, setting);
    RETURN;
  END IF;

  r := {schema}.lease_lock_v1(p_namespace, p_key);
  now := {schema}.clock_v1(); -- ⚑ after the wait for the row

  IF NOT r.released AND r.expires_at > now AND r.owner = p_owner THEN
    -- ⚑ A write, also if nothing changes: the answer then waits until a synchronous standby has the grant.
    UPDATE {schema}.lease SET expires_at = greatest(expires_at, now + p_ttl)
      WHERE namespace = p_namespace AND key = p_key;
    outcome := 'granted';
    fence := r.token;
    fence_end := r.block_end;
    waiters := r.waiting;
    PERFORM {schema}.durable_v1(true, setting);
    RETURN;
  END IF;
  PERFORM {schema}.durable_v1(false, setting);
  IF r.owner = p_owner OR r.previous = p_owner OR r.flagged_until > now AND EXISTS (
    SELECT FROM {schema}.tomb WHERE namespace = p_namespace AND key = p_key AND owner = p_owner AND until > now
  ) THEN
    outcome := 'cancelled';
    RETURN;
  END IF;

  IF r.waiting > 0 THEN
    SELECT ticket INTO place FROM {schema}.waiter
      WHERE owner = p_owner AND namespace = p_namespace AND key = p_key;
  END IF;
  IF r.released OR r.expires_at <= now THEN
    IF r.waiting > 0 THEN -- no request overtakes the queue
      SELECT * INTO gone, to_channel, to_message
        FROM {schema}.hand_off_v1(p_namespace, p_key, now, coalesce(place, nullif(p_ticket, 0), 9223372036854775807),
          false, 0, 0, setting);
    END IF;
    IF to_message IS NULL THEN
      IF place IS NOT NULL THEN
        DELETE FROM {schema}.waiter WHERE namespace = p_namespace AND key = p_key AND ticket = place;
        gone := gone + 1;
        place := NULL;
      END IF;
      UPDATE {schema}.lease SET
          previous = owner, previous_released = released, owner = p_owner, released = false,
          token = greatest(block_end + 1, now), block_end = greatest(block_end + 1, now + 20000),
          granted_at = now, expires_at = now + p_ttl, asked = 0, waiting = waiting - gone, payload = p_payload
        WHERE namespace = p_namespace AND key = p_key
        RETURNING token, block_end, waiting INTO fence, fence_end, waiters;
      outcome := 'granted';
      PERFORM {schema}.durable_v1(true, setting);
      RETURN;
    END IF;
    SELECT * INTO r FROM {schema}.lease WHERE namespace = p_namespace AND key = p_key;
  END IF;

  outcome := 'busy';
  IF p_alive > 0 AND place IS NOT NULL THEN
    UPDATE {schema}.waiter
      SET alive_until = greatest(alive_until, now + p_alive), seq = p_seq, channel = p_channel, payload = p_payload
      WHERE namespace = p_namespace AND key = p_key AND ticket = place;
  ELSIF p_alive > 0 THEN
    IF r.waiting >= 1000 THEN -- driver.MaxQueue
      DELETE FROM {schema}.waiter WHERE namespace = p_namespace AND key = p_key AND alive_until <= now;
      GET DIAGNOSTICS gone = ROW_COUNT;
      r.waiting := r.waiting - gone;
    END IF;
    IF r.waiting >= 1000 THEN
      outcome := 'full';
    ELSE
      place := nullif(p_ticket, 0);
      r.waiting := r.waiting + 1;
      r.tickets := greatest(r.tickets + 1, now);
      LOOP
        place := coalesce(place, r.tickets);
        INSERT INTO {schema}.waiter (namespace, key, ticket, owner, alive_until, seq, channel, payload)
          VALUES (p_namespace, p_key, place, p_owner, now + p_alive, p_seq, p_channel, p_payload)
          ON CONFLICT (namespace, key, ticket) DO NOTHING;
        EXIT WHEN FOUND;
        place := NULL; -- another owner has this ticket
      END LOOP;
    END IF;
    UPDATE {schema}.lease SET waiting = r.waiting, tickets = r.tickets
      WHERE namespace = p_namespace AND key = p_key;
  END IF;
  fence := greatest(r.token, r.asked);
  waiters := r.waiting;
  age := now - r.granted_at;
  remaining := r.expires_at - now;
  holder := r.payload;
END $$;
