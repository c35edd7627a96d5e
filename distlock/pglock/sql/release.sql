-- Ends the grant of an owner, and hands the name to the first live waiter.
--
-- p_tombstone: for how many µs to leave a tombstone, or 0. It takes the owner out of the queue, too.
-- p_leave: the owner leaves the queue. p_wait: see acquire_v1.
--
-- released    the owner held the name, or had released it before
-- to_…        a handoff, see hand_off_v1; the caller notifies after the commit
--
-- May be repeated: the answer is the same until two other owners were granted the name. A release
-- without a handoff and without a tombstone is not durable: a function that calls this one and has to
-- be durable calls durable_v1 after it.
CREATE FUNCTION {schema}.release_v1(
  p_namespace text, p_key text, p_owner text, p_tombstone bigint, p_leave boolean, p_wait integer DEFAULT 200,
  OUT released boolean, OUT to_channel text, OUT to_message text
) LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
  SET enable_seqscan = off SET enable_bitmapscan = off AS $$
#variable_conflict use_column
DECLARE
  setting text := current_setting('synchronous_commit');
  now     bigint := {schema}.clock_v1();
  gone    integer := 0;
  dead    integer;
  flagged bigint := 0;
  ends    boolean;
  held    boolean;
  r       {schema}.lease;
BEGIN
  PERFORM set_config('lock_timeout', p_wait::text, true);
  IF p_tombstone = 0 AND NOT p_leave THEN -- ⚑ the fast path: every condition stands in the row
    UPDATE {schema}.lease l SET released = true, payload = ''
      WHERE namespace = p_namespace AND key = p_key AND owner = p_owner AND NOT l.released AND expires_at > now
        AND waiting = 0;
    IF FOUND THEN
      released := true;
      PERFORM {schema}.durable_v1(false, setting);
      RETURN;
    END IF;
  END IF;

  SELECT * INTO r FROM {schema}.lease WHERE namespace = p_namespace AND key = p_key FOR UPDATE;
  IF NOT FOUND THEN
    IF p_tombstone = 0 AND NOT EXISTS (SELECT FROM {schema}.waiter WHERE namespace = p_namespace AND key = p_key) THEN
      released := false;
      RETURN;
    END IF;
    r := {schema}.lease_lock_v1(p_namespace, p_key);
  END IF;
  now := {schema}.clock_v1(); -- ⚑ after the wait for the row
  held := NOT r.released AND r.expires_at > now;
  ends := held AND r.owner = p_owner;
  released := ends OR r.owner = p_owner AND r.released OR r.previous = p_owner AND r.previous_released;

  IF (p_leave OR p_tombstone > 0) AND r.waiting > 0 THEN
    DELETE FROM {schema}.waiter WHERE owner = p_owner AND namespace = p_namespace AND key = p_key;
    GET DIAGNOSTICS gone = ROW_COUNT;
  END IF;
  IF p_tombstone > 0 THEN
    flagged := now + p_tombstone;
    DELETE FROM {schema}.tomb WHERE namespace = p_namespace AND key = p_key AND until <= now;
    INSERT INTO {schema}.tomb AS t (namespace, key, owner, until) VALUES (p_namespace, p_key, p_owner, flagged)
      ON CONFLICT (namespace, key, owner) DO UPDATE SET until = greatest(t.until, excluded.until);
    DELETE FROM {schema}.tomb WHERE namespace = p_namespace AND key = p_key AND owner IN (
      SELECT owner FROM {schema}.tomb WHERE namespace = p_namespace AND key = p_key AND owner <> p_owner
      ORDER BY until DESC OFFSET 999);
  END IF;
  PERFORM {schema}.durable_v1(p_tombstone > 0, setting);
  IF (ends OR NOT held) AND r.waiting > gone THEN
    SELECT * INTO dead, to_channel, to_message
      FROM {schema}.hand_off_v1(p_namespace, p_key, now, 9223372036854775807, ends, gone, flagged, setting);
    IF to_message IS NOT NULL THEN
      RETURN;
    END IF;
    gone := gone + dead;
  END IF;
  IF ends OR gone > 0 OR flagged > 0 THEN
    UPDATE {schema}.lease l SET
        released = l.released OR ends, waiting = waiting - gone, flagged_until = greatest(flagged_until, flagged),
        payload = CASE WHEN ends THEN '' ELSE payload END
      WHERE namespace = p_namespace AND key = p_key;
  END IF;
END $$;

-- Ends the grant that shows a token, for an operator. The answer is that of release_v1.
CREATE FUNCTION {schema}.break_v1(
  p_namespace text, p_key text, p_token bigint, p_wait integer DEFAULT 200,
  OUT released boolean, OUT to_channel text, OUT to_message text
) LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
  SET enable_seqscan = off SET enable_bitmapscan = off AS $$
#variable_conflict use_column
DECLARE
  setting text := current_setting('synchronous_commit');
  r       {schema}.lease;
BEGIN
  PERFORM set_config('lock_timeout', p_wait::text, true);
  SELECT * INTO r FROM {schema}.lease WHERE namespace = p_namespace AND key = p_key FOR UPDATE;
  released := FOUND AND NOT r.released AND r.expires_at > {schema}.clock_v1()
    AND p_token = greatest(r.token, r.asked);
  IF released THEN
    SELECT * INTO released, to_channel, to_message
      FROM {schema}.release_v1(p_namespace, p_key, r.owner, 0, false, p_wait);
    PERFORM {schema}.durable_v1(true, setting);
  END IF;
END $$;
