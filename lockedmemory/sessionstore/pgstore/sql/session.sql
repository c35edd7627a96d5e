-- The common part of the functions of a session. docs/design/pgstore.md states the rules.
--
-- ⚑ A connection keeps its plans. Those that it has made for small tables would read all rows when the
-- tables have grown. So the functions that a driver calls demand the indexes.
--
-- Outcomes are those of storedriver.Outcome: 0 done, 1 known, 2 conflict, 3 taken, 4 stale, 5 unowned, 6
-- gone, 7 range, 8 full, 9 deleted, 10 not empty, 11 stopped, 12 superseded, 13 ended.

-- Locks the row of a session, and removes what has expired.
-- ⚑ The row is locked before the clock is read: the call may have waited for the row.
CREATE FUNCTION {schema}.session_lock_v1(p_namespace text, p_name text) RETURNS {schema}.session
LANGUAGE plpgsql AS $$
DECLARE
  s {schema}.session;
  now timestamptz;
BEGIN
  LOOP
    SELECT * INTO s FROM {schema}.session WHERE namespace = p_namespace AND name = p_name FOR UPDATE;
    EXIT WHEN FOUND;
    INSERT INTO {schema}.session (namespace, name) VALUES (p_namespace, p_name)
      ON CONFLICT DO NOTHING RETURNING * INTO s;
    EXIT WHEN FOUND;
  END LOOP;
  now := clock_timestamp();
  IF s.exchanges > 0 AND s.kept_until <= now THEN
    DELETE FROM {schema}.exchange WHERE session = s.id;
    UPDATE {schema}.session SET exchanges = 0
      WHERE namespace = p_namespace AND name = p_name RETURNING * INTO s;
  END IF;
  IF s.exchanges = 0 AND s.fence > 0 AND s.kept_until <= now - interval '24 hours' THEN
    UPDATE {schema}.session SET fence = 0, n = 0, op = NULL, state = 'empty', deleted = 0, stopped = 0
      WHERE namespace = p_namespace AND name = p_name RETURNING * INTO s;
  END IF;
  RETURN s;
END $$;

-- Refuses a lease that waited through a stop or a Delete, or that was overtaken, or that is too old for an
-- unknown session, see storedriver.OldToken.
CREATE FUNCTION {schema}.session_barred_v1(s {schema}.session, p_fence bigint, p_accepted bigint,
  p_awaited bigint, p_since bigint) RETURNS integer
LANGUAGE plpgsql AS $$
BEGIN
  RETURN CASE
    WHEN p_since > 0 AND p_since < s.stopped THEN 13
    WHEN p_accepted > 0 AND p_accepted < s.fence AND s.fence < p_fence THEN 4
    WHEN p_awaited > 0 AND p_awaited < s.deleted AND s.deleted < p_fence THEN 9
    WHEN s.exchanges = 0 AND s.fence = 0
      AND to_timestamp(p_fence / 1e6) < clock_timestamp() - interval '23 hours' THEN 5
    ELSE 0
  END;
END $$;

-- Returns what became of an ID: 1 known, 11 stopped, 12 superseded, or 0 if it is open and has arrived.
CREATE FUNCTION {schema}.session_fate_v1(s {schema}.session, p_id uuid) RETURNS bigint LANGUAGE sql
  RETURN (SELECT CASE WHEN n > 0 THEN 1 ELSE fence END FROM {schema}.known
    WHERE session = s.id AND id = p_id AND until > clock_timestamp());

-- Reports whether a question that has arrived at a time is pending.
CREATE FUNCTION {schema}.session_pends_v1(s {schema}.session, p_id uuid, p_arrived timestamptz, p_life interval)
RETURNS boolean LANGUAGE sql
  RETURN p_arrived > clock_timestamp() - p_life AND coalesce({schema}.session_fate_v1(s, p_id), 0) = 0;

-- Remembers an ID, see known. Returns p_fence.
CREATE FUNCTION {schema}.session_know_v1(s {schema}.session, p_id uuid, p_digest uuid, p_fence bigint, p_n bigint,
  p_remember interval) RETURNS bigint
LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO {schema}.known VALUES (s.id, p_id, clock_timestamp() + p_remember, p_digest, p_fence, p_n)
    ON CONFLICT (session, id) DO UPDATE
      SET until = excluded.until, digest = excluded.digest, fence = excluded.fence, n = excluded.n;
  -- A new ID looks at the 4 after it: so at most a quarter of them has expired.
  -- ⚑ By ctid: a plan for a small table would read all IDs of the session.
  DELETE FROM {schema}.known WHERE until <= clock_timestamp() AND ctid = ANY
    (ARRAY(SELECT ctid FROM {schema}.known WHERE session = s.id AND id > p_id ORDER BY id LIMIT 4));
  RETURN p_fence;
END $$;

-- ⚑ Reports whether the exchanges that a lease has read or stored have disappeared, and no Clear says why.
-- Another store may share the lease: it has seen what this one has not.
CREATE FUNCTION {schema}.session_gone_v1(s {schema}.session, p_fence bigint, p_history bigint[]) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
  RETURN s.exchanges = 0 AND p_fence >= s.fence
    AND (p_history[1] > 0 OR s.state = 'begun' AND p_fence = s.fence)
    AND NOT (s.state = 'cleared' AND (s.fence, s.n, 0) > (p_history[1], p_history[2], p_history[3]));
END $$;

-- Judges a write at a place: -1 is a copy of a write that took effect before.
CREATE FUNCTION {schema}.session_judged_v1(s {schema}.session, p_fence bigint, p_n bigint, p_op uuid)
RETURNS integer
LANGUAGE plpgsql AS $$
BEGIN
  IF (p_fence, p_n) > (s.fence, s.n) THEN
    RETURN 0;
  ELSIF (p_fence, p_n, p_op) = (s.fence, s.n, s.op) OR EXISTS (SELECT FROM {schema}.exchange
      WHERE session = s.id AND fence = p_fence AND n = p_n AND sub = 0 AND op = p_op) THEN
    RETURN -1;
  END IF;
  RETURN CASE WHEN p_fence < s.fence THEN 4 ELSE 3 END;
END $$;

-- Raises a session to a token. The first access of a lease trims. session_keep_v1 follows.
CREATE FUNCTION {schema}.session_raise_v1(s {schema}.session, p_fence bigint, p_first boolean,
  p_limits bigint[]) RETURNS {schema}.session
LANGUAGE plpgsql AS $$
BEGIN
  IF p_fence > s.fence THEN
    s.fence := p_fence;
    s.n := 0;
    s.op := NULL;
    s.state := CASE WHEN s.exchanges > 0 THEN 'begun' ELSE 'empty' END;
  END IF;
  IF p_first AND s.exchanges > 0 AND p_limits <> '{0,0}' THEN
    s := {schema}.session_trim_v1(s, p_limits);
  END IF;
  RETURN s;
END $$;

-- Removes the oldest turns beyond the limits: MaxExchanges, and MaxAge in microseconds. 0 is no limit. It
-- ends after 100 exchanges and the rest of a turn. The newest turn and pinned exchanges stay.
-- ⚑ The age counts from the token of the access. No clock of a process has a part.
CREATE FUNCTION {schema}.session_trim_v1(s {schema}.session, p_limits bigint[]) RETURNS {schema}.session
LANGUAGE plpgsql AS $$
DECLARE
  too_many  bigint := CASE WHEN p_limits[1] > 0 THEN s.exchanges - p_limits[1]
    - (SELECT count(*) FROM {schema}.exchange WHERE session = s.id AND pinned) ELSE 0 END;
  since     bigint := CASE WHEN p_limits[2] > 0 THEN s.fence - p_limits[2] ELSE 0 END;
  newest    bigint := (SELECT fence FROM {schema}.exchange WHERE session = s.id AND NOT pinned
    ORDER BY fence DESC, n DESC, sub DESC LIMIT 1);
  removed   bigint := 0;
  last      bigint; -- the token of the last exchange that goes
  each      bigint;
BEGIN
  FOR each IN SELECT fence FROM {schema}.exchange
    WHERE session = s.id AND fence < newest AND NOT pinned ORDER BY fence, n, sub LIMIT 100
  LOOP
    EXIT WHEN removed >= too_many AND each >= since;
    removed := removed + 1;
    last := each;
  END LOOP;
  IF last IS NOT NULL THEN
    WITH gone AS (DELETE FROM {schema}.exchange WHERE session = s.id AND fence <= last AND NOT pinned
        RETURNING 1)
      SELECT s.exchanges - count(*) INTO s.exchanges FROM gone;
  END IF;
  RETURN s;
END $$;

-- Writes the row of a session. That counts as a use. The first access of a lease also sweeps.
CREATE FUNCTION {schema}.session_keep_v1(s {schema}.session, p_idle interval, p_first boolean) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
  now timestamptz := clock_timestamp();
BEGIN
  s.kept_until := CASE WHEN s.exchanges = 0 THEN now WHEN p_idle IS NULL THEN 'infinity' ELSE now + p_idle END;
  UPDATE {schema}.session SET fence = s.fence, n = s.n, op = s.op, state = s.state, deleted = s.deleted,
      stopped = s.stopped, newest = s.newest, revision = s.revision, exchanges = s.exchanges, kept_until = s.kept_until,
      sweep_at = least(s.sweep_at,
        s.kept_until + CASE WHEN s.exchanges = 0 THEN interval '24 hours' ELSE interval '0' END)
    WHERE namespace = s.namespace AND name = s.name;
  -- ⚑ At another isolation level, sessions that are swept at once fail with 40001.
  IF p_first AND current_setting('transaction_isolation') = 'read committed' THEN
    PERFORM {schema}.session_sweep_v1();
  END IF;
END $$;

-- Looks at 4 sessions whose time has come, and removes what has expired: of each at most 100 exchanges
-- and 100 IDs. A session without both is removed 24 hours after its last use.
-- ⚑ It waits for no row: the caller has one already.
CREATE FUNCTION {schema}.session_sweep_v1() RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
  s     {schema}.session;
  now   timestamptz := clock_timestamp();
  count bigint;
BEGIN
  FOR s IN SELECT * FROM {schema}.session WHERE sweep_at <= now ORDER BY sweep_at LIMIT 4 FOR UPDATE SKIP LOCKED LOOP
    IF s.exchanges > 0 AND s.kept_until > now THEN
      UPDATE {schema}.session SET sweep_at = s.kept_until WHERE namespace = s.namespace AND name = s.name;
      CONTINUE;
    END IF;
    DELETE FROM {schema}.exchange WHERE session = s.id AND (fence, n, sub) IN (SELECT fence, n, sub
      FROM {schema}.exchange WHERE session = s.id ORDER BY fence, n, sub LIMIT 100);
    GET DIAGNOSTICS count = ROW_COUNT;
    s.exchanges := s.exchanges - count;
    DELETE FROM {schema}.known WHERE session = s.id AND id IN (SELECT id FROM {schema}.known
      WHERE session = s.id AND until <= now LIMIT 100);
    GET DIAGNOSTICS count = ROW_COUNT;
    IF s.exchanges = 0 AND count < 100 THEN -- otherwise there may be more
      s.sweep_at := greatest(s.kept_until + interval '24 hours',
        (SELECT max(until) FROM {schema}.known WHERE session = s.id));
      IF s.sweep_at <= now THEN
        DELETE FROM {schema}.session WHERE namespace = s.namespace AND name = s.name;
        CONTINUE;
      END IF;
    END IF;
    UPDATE {schema}.session SET exchanges = s.exchanges, sweep_at = s.sweep_at
      WHERE namespace = s.namespace AND name = s.name;
  END LOOP;
END $$;
