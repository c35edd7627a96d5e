-- Removes a session. ⚑ The caller has locked its row: an append has that row before the others.
CREATE FUNCTION {schema}.adk_remove_v1(s {schema}.adk_session) RETURNS void LANGUAGE sql AS $$
  DELETE FROM {schema}.adk_state WHERE namespace = s.namespace AND app = s.app AND scope = 's' || s.id;
  DELETE FROM {schema}.adk_event WHERE session = s.id;
  DELETE FROM {schema}.adk_session WHERE (namespace, app, usr, name) = (s.namespace, s.app, s.usr, s.name);
$$;

-- Serves a request, see store.go. p_token and p_since are 0 without a lease, and p_idle is 0 without IdleTTL. Without a
-- p_name, a get returns the sessions of a user, and without a p_usr, those of the app. A create removes up to 4 expired
-- sessions.
--
-- ⚑ A connection keeps its plans. Those that it has made for small tables would read all rows when the tables have
-- grown. So the function demands the indexes.
CREATE FUNCTION {schema}.adk_do_v1(p_operation text, p_namespace text, p_app text, p_usr text, p_name text, p_token bigint,
  p_since bigint, p_idle interval, p_op text, p_last text, p_event text, p_recent bigint, p_keys text[], p_contents text[])
RETURNS SETOF {schema}.adk_reply LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET lock_timeout = '500ms' SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
  done CONSTANT integer := 0; missing CONSTANT integer := 1; stale CONSTANT integer := 2;
  ahead CONSTANT integer := 3; present CONSTANT integer := 4; ended CONSTANT integer := 5;
  after_all CONSTANT text := repeat(chr(1114111), 33); -- after all IDs
  s {schema}.adk_session;
  r {schema}.adk_reply;
BEGIN
  IF p_operation <> 'get' OR p_token > 0 THEN
    PERFORM {schema}.durable_v1(true, current_setting('synchronous_commit'));
    SELECT * INTO s FROM {schema}.adk_session
      WHERE (namespace, app, usr, name) = (p_namespace, p_app, p_usr, p_name) FOR UPDATE;
    SELECT CASE
      WHEN p_operation = 'delete' THEN done
      -- ⚑ The clock is read after the wait for the row.
      WHEN s.id IS NULL OR s.expires <= clock_timestamp() THEN CASE p_operation WHEN 'create' THEN done ELSE missing END
      WHEN s.op = p_op THEN done -- ⚑ first of all: an earlier copy has stored the event
      WHEN p_since > 0 AND p_since < s.stopped THEN ended -- ⚑ before the others: the error says why
      WHEN p_operation = 'create' THEN present
      WHEN p_token > 0 AND p_token < s.mark THEN stale
      WHEN p_operation = 'append' AND s.op <> p_last THEN ahead -- ⚑ not equal, whatever the number
      ELSE done END, coalesce(s.mark, 0), '', '', '', '', 0, coalesce(s.updated, clock_timestamp()) INTO r;
    IF r.outcome <> done OR s.op = p_op THEN RETURN NEXT r; RETURN; END IF;

    IF p_operation IN ('create', 'delete') THEN PERFORM {schema}.adk_remove_v1(s); END IF;
    IF p_operation = 'create' THEN
      INSERT INTO {schema}.adk_session (namespace, app, usr, name, op, mark, expires)
        VALUES (p_namespace, p_app, p_usr, p_name, p_op, p_token, coalesce(clock_timestamp() + nullif(p_idle, '0'), 'infinity'))
        ON CONFLICT DO NOTHING RETURNING * INTO s;
      IF NOT FOUND THEN r.outcome := present; RETURN NEXT r; RETURN; END IF;
      -- ⚑ In this order: a sweep that came first could have the name that another create waits for, which has the name
      -- that this one waits for. One after the states would keep rows of the app for long.
      PERFORM {schema}.adk_remove_v1(gone.s) FROM (SELECT x AS s FROM {schema}.adk_session AS x WHERE expires < 'infinity'
        AND expires <= clock_timestamp() ORDER BY expires LIMIT 4 FOR UPDATE SKIP LOCKED) AS gone;
    ELSIF p_operation <> 'delete' THEN
      IF p_operation = 'append' THEN
        INSERT INTO {schema}.adk_event VALUES (s.id, s.n, p_event);
        s.op := p_op; s.n := s.n + 1; s.updated := clock_timestamp(); r.updated := s.updated;
      END IF;
      UPDATE {schema}.adk_session SET op = s.op, n = s.n, mark = greatest(mark, p_token), updated = s.updated,
          stopped = CASE p_operation WHEN 'stop' THEN p_token ELSE stopped END,
          expires = coalesce(clock_timestamp() + nullif(p_idle, '0'), 'infinity')
        WHERE (namespace, app, usr, name) = (p_namespace, p_app, p_usr, p_name);
    END IF;
    -- ⚑ In the order of the call, which all calls share: otherwise two calls may wait for each other.
    INSERT INTO {schema}.adk_state
      SELECT p_namespace, p_app, CASE WHEN starts_with(d.key, 'app:') THEN 'a' WHEN starts_with(d.key, 'user:') THEN 'u' || p_usr
        ELSE 's' || s.id END, d.key, d.content
      FROM unnest(p_keys, p_contents) WITH ORDINALITY AS d (key, content, i) ORDER BY d.i
      ON CONFLICT (namespace, app, scope, key) DO UPDATE SET value = excluded.value;
    IF p_operation IN ('append', 'delete', 'stop') THEN RETURN NEXT r; RETURN; END IF;
  ELSIF pg_is_in_recovery() THEN
    RAISE 'the server is a standby: it may lack acknowledged events' USING ERRCODE = 'read_only_sql_transaction';
  END IF;
  -- ⚑ After the raise: a snapshot from before may lack the event of the older lease that the call has waited for.
  RETURN QUERY SELECT done, x.mark, x.app, x.usr, x.name, x.op, x.n, x.updated, k.*,
      (SELECT array_agg(e.event ORDER BY e.n) FROM {schema}.adk_event AS e WHERE e.session = x.id AND e.n >= x.n - p_recent)
    FROM {schema}.adk_session AS x, LATERAL (SELECT array_agg(d.key), array_agg(d.value)
      FROM unnest(ARRAY['a', 'u' || x.usr, 's' || x.id]) AS own (scope), -- ⚑ OFFSET keeps it a look-up in the index
      LATERAL (SELECT * FROM {schema}.adk_state AS d WHERE d.namespace = x.namespace AND d.app = x.app AND d.scope = own.scope
        OFFSET 0) AS d) AS k
    WHERE (x.namespace, x.app, x.usr, x.name) BETWEEN (p_namespace, p_app, p_usr, p_name)
      AND (p_namespace, p_app, coalesce(nullif(p_usr, ''), after_all), coalesce(nullif(p_name, ''), after_all))
      AND x.expires > clock_timestamp();
END $$;

-- The application needs EXECUTE on adk_do_v1, and no right to a table.
REVOKE ALL ON FUNCTION {schema}.adk_do_v1, {schema}.adk_remove_v1 FROM PUBLIC;
