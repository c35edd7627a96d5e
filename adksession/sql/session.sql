-- Outcomes are those of the store: 0 done, 1 missing, 2 stale, 3 ahead, 4 exists. p_token is 0 without a lease, and p_idle
-- is null without IdleTTL.
--
-- ⚑ A connection keeps its plans. Those that it has made for small tables would read all rows when the tables have
-- grown. So the functions that a store calls demand the indexes.

-- Locks the row of a session, also of one that has expired, and judges an access.
-- ⚑ The row is locked before the clock is read: the call may have waited for the row.
CREATE FUNCTION {schema}.adk_lock_v1(p_namespace text, p_app text, p_usr text, p_name text, p_token bigint)
RETURNS {schema}.adk_reply LANGUAGE plpgsql AS $$
DECLARE s {schema}.adk_session; r {schema}.adk_reply;
BEGIN
  PERFORM {schema}.durable_v1(true, current_setting('synchronous_commit'));
  SELECT * INTO s FROM {schema}.adk_session
    WHERE (namespace, app, usr, name) = (p_namespace, p_app, p_usr, p_name) FOR UPDATE;
  SELECT CASE WHEN s.id IS NULL OR s.expires <= clock_timestamp() THEN 1
    WHEN p_token > 0 AND p_token < s.mark THEN 2 ELSE 0 END,
    s.mark, s.id, s.app, s.usr, s.name, s.op, s.n, s.updated INTO r;
  RETURN r;
END $$;

-- Writes keys of states. ⚑ In the order of the call, which all calls share: otherwise two calls may wait for each other.
CREATE FUNCTION {schema}.adk_put_v1(p_namespace text, p_app text, p_usr text, p_id bigint, p_scopes text[], p_keys text[],
  p_contents text[]) RETURNS void LANGUAGE sql AS $$
  INSERT INTO {schema}.adk_state
    SELECT p_namespace, p_app, d.scope || CASE d.scope WHEN 'u' THEN p_usr WHEN 's' THEN p_id::text ELSE '' END, d.key, d.content
    FROM unnest(p_scopes, p_keys, p_contents) WITH ORDINALITY AS d (scope, key, content, i) ORDER BY d.i
    ON CONFLICT (namespace, app, scope, key) DO UPDATE SET value = excluded.value
$$;

-- Returns a session with its p_recent last events.
CREATE FUNCTION {schema}.adk_read_v1(s {schema}.adk_session, p_recent bigint)
RETURNS SETOF {schema}.adk_reply LANGUAGE sql STABLE AS $$
  SELECT 0, s.mark, s.id, s.app, s.usr, s.name, s.op, s.n, s.updated, k.*,
    (SELECT array_agg(e.event ORDER BY e.n) FROM {schema}.adk_event AS e WHERE e.session = s.id AND e.n >= s.n - p_recent)
  FROM (SELECT array_agg(left(d.scope, 1)), array_agg(d.key), array_agg(d.value)
    FROM unnest(ARRAY['a', 'u' || s.usr, 's' || s.id]) AS own (scope), -- ⚑ OFFSET keeps it a look-up in the index
    LATERAL (SELECT * FROM {schema}.adk_state AS d WHERE d.namespace = s.namespace AND d.app = s.app AND d.scope = own.scope
      OFFSET 0) AS d) AS k
$$;

-- Removes the session with an id. ⚑ The caller has locked its row: an append has that row before the others.
CREATE FUNCTION {schema}.adk_remove_v1(p_namespace text, p_app text, p_usr text, p_name text, p_id bigint)
RETURNS void LANGUAGE sql AS $$
  DELETE FROM {schema}.adk_state WHERE namespace = p_namespace AND app = p_app AND scope = 's' || p_id;
  DELETE FROM {schema}.adk_event WHERE session = p_id;
  DELETE FROM {schema}.adk_session WHERE (namespace, app, usr, name) = (p_namespace, p_app, p_usr, p_name) AND id = p_id;
$$;

-- Creates a session, and removes up to 4 that have expired: of each at most 1,000 events, and the rest later.
-- ⚑ In this order: a sweep that came first could have the name that another create waits for, which has the name that this
-- one waits for. One after the states would keep rows of the app for long.
CREATE FUNCTION {schema}.adk_create_v1(p_namespace text, p_app text, p_usr text, p_name text, p_token bigint, p_idle interval,
  p_op text, p_scopes text[], p_keys text[], p_contents text[]) RETURNS SETOF {schema}.adk_reply
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '500ms'
SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
  s {schema}.adk_session; x {schema}.adk_session;
  r {schema}.adk_reply := {schema}.adk_lock_v1(p_namespace, p_app, p_usr, p_name, p_token);
BEGIN
  IF r.outcome = 1 THEN
    PERFORM {schema}.adk_remove_v1(p_namespace, p_app, p_usr, p_name, r.id);
    INSERT INTO {schema}.adk_session (namespace, app, usr, name, op, mark, expires)
      VALUES (p_namespace, p_app, p_usr, p_name, p_op, p_token, coalesce(clock_timestamp() + p_idle, 'infinity'))
      ON CONFLICT DO NOTHING RETURNING * INTO s;
  END IF;
  IF s.id IS NULL THEN r.outcome := CASE r.outcome WHEN 2 THEN 2 ELSE 4 END; RETURN NEXT r; RETURN; END IF;
  FOR x IN SELECT * FROM {schema}.adk_session WHERE expires < 'infinity' AND expires <= clock_timestamp()
      ORDER BY expires LIMIT 4 FOR UPDATE SKIP LOCKED LOOP
    IF x.n > 1000 THEN
      DELETE FROM {schema}.adk_event WHERE session = x.id AND n >= x.n - 1000;
      UPDATE {schema}.adk_session SET n = n - 1000 WHERE (namespace, app, usr, name) = (x.namespace, x.app, x.usr, x.name);
    ELSE
      PERFORM {schema}.adk_remove_v1(x.namespace, x.app, x.usr, x.name, x.id);
    END IF;
  END LOOP;
  PERFORM {schema}.adk_put_v1(p_namespace, p_app, p_usr, s.id, p_scopes, p_keys, p_contents);
  RETURN QUERY SELECT * FROM {schema}.adk_read_v1(s, 0);
END $$;

-- Reads a session, see adk_read_v1. With a token, it raises the mark. Without a name, it reads those of a user, and
-- without a user, those of the app.
CREATE FUNCTION {schema}.adk_get_v1(p_namespace text, p_app text, p_usr text, p_name text, p_token bigint,
  p_idle interval, p_recent bigint) RETURNS SETOF {schema}.adk_reply
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '500ms'
SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE r {schema}.adk_reply;
BEGIN
  IF p_token > 0 THEN
    r := {schema}.adk_lock_v1(p_namespace, p_app, p_usr, p_name, p_token);
    IF r.outcome > 0 THEN RETURN NEXT r; RETURN; END IF;
    UPDATE {schema}.adk_session SET mark = p_token, expires = coalesce(clock_timestamp() + p_idle, 'infinity')
      WHERE (namespace, app, usr, name) = (p_namespace, p_app, p_usr, p_name);
  ELSIF pg_is_in_recovery() THEN
    RAISE 'the server is a standby: it may lack acknowledged events' USING ERRCODE = 'read_only_sql_transaction';
  END IF;
  -- ⚑ After the raise: a snapshot from before may lack the event of the older lease that the call has waited for.
  RETURN QUERY SELECT found.* FROM (
      SELECT x AS s FROM {schema}.adk_session AS x WHERE (namespace, app, usr, name) = (p_namespace, p_app, p_usr, p_name)
      UNION ALL SELECT x FROM {schema}.adk_session AS x WHERE p_name = '' AND namespace = p_namespace AND app = p_app
        AND usr BETWEEN p_usr AND coalesce(nullif(p_usr, ''), repeat(chr(1114111), 33))) AS own, -- after all users
    {schema}.adk_read_v1(own.s, p_recent) AS found WHERE (own.s).expires > clock_timestamp();
END $$;

-- Appends an event with its keys of states.
CREATE FUNCTION {schema}.adk_append_v1(p_namespace text, p_app text, p_usr text, p_name text, p_token bigint,
  p_idle interval, p_op text, p_last text, p_event text, p_scopes text[], p_keys text[], p_contents text[]) RETURNS SETOF {schema}.adk_reply
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '500ms'
SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE r {schema}.adk_reply := {schema}.adk_lock_v1(p_namespace, p_app, p_usr, p_name, p_token);
BEGIN
  IF r.outcome <> 1 AND r.op = p_op THEN
    r.outcome := 0; -- ⚑ first of all: an earlier copy has stored the event
  ELSIF r.outcome = 0 AND r.op <> p_last THEN
    r.outcome := 3; -- ⚑ not equal, whatever the number
  ELSIF r.outcome = 0 THEN
    INSERT INTO {schema}.adk_event VALUES (r.id, r.n, p_event);
    PERFORM {schema}.adk_put_v1(p_namespace, p_app, p_usr, r.id, p_scopes, p_keys, p_contents);
    UPDATE {schema}.adk_session SET op = p_op, n = n + 1, mark = greatest(mark, p_token), updated = clock_timestamp(),
        expires = coalesce(clock_timestamp() + p_idle, 'infinity')
      WHERE (namespace, app, usr, name) = (p_namespace, p_app, p_usr, p_name) RETURNING updated INTO r.updated;
  END IF;
  RETURN NEXT r;
END $$;

-- Deletes a session. It is no error if there is none.
CREATE FUNCTION {schema}.adk_delete_v1(p_namespace text, p_app text, p_usr text, p_name text) RETURNS SETOF {schema}.adk_reply
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '500ms'
SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE r {schema}.adk_reply := {schema}.adk_lock_v1(p_namespace, p_app, p_usr, p_name, 0);
BEGIN
  PERFORM {schema}.adk_remove_v1(p_namespace, p_app, p_usr, p_name, r.id);
  r.outcome := 0;
  RETURN NEXT r;
END $$;

-- The application needs EXECUTE on the functions, and no right to a table.
REVOKE ALL ON FUNCTION {schema}.adk_append_v1, {schema}.adk_create_v1, {schema}.adk_delete_v1, {schema}.adk_get_v1,
  {schema}.adk_lock_v1, {schema}.adk_put_v1, {schema}.adk_read_v1, {schema}.adk_remove_v1 FROM PUBLIC;
