-- Reads exchanges from a place on, or back from it, or the one of an ID, or the pinned ones. With a first
-- access of a lease, it shows the token before. Reply: rows that begin with the outcome, the mark (of a
-- read its token), the revision, the oldest place, whether the ID is known, and on the first page the
-- places of the pinned exchanges. Each has an exchange. Without one, there is one row, whose place is 0.
--
-- ⚑ One query reads all: it sees one moment.
CREATE FUNCTION {schema}.read_v1(
  p_namespace text, p_name text, p_shows boolean, p_fence bigint, p_accepted bigint, p_awaited bigint, p_since bigint,
  p_idle interval, p_limits bigint[],                    -- null: no IdleTTL; see session_trim_v1
  p_backward boolean, p_from bigint[], p_limit bigint,   -- token, n and sub
  p_id bytea, p_hash uuid,                               -- p_id is null: no ID
  p_next boolean, p_pins boolean)                        -- a later page; the pinned ones alone
RETURNS TABLE (outcome integer, mark_fence bigint, mark_n bigint, revision bigint, oldest_fence bigint,
  oldest_n bigint, oldest_sub bigint, known boolean, pin_fences bigint[], pin_ns bigint[], pin_subs bigint[],
  fence bigint, n bigint, sub bigint, ids bytea[], messages bytea[], pinned boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '500ms'
SET enable_seqscan = off SET enable_bitmapscan = off AS $$
#variable_conflict use_column
DECLARE
  s       {schema}.session;
  refusal integer;
  zero    bigint := 0;
BEGIN
  IF p_shows THEN
    PERFORM {schema}.durable_v1(true, current_setting('synchronous_commit'));
    s := {schema}.session_lock_v1(p_namespace, p_name);
    refusal := {schema}.session_barred_v1(s, p_fence, p_accepted, p_awaited, p_since);
    IF refusal = 0 AND p_fence < s.fence THEN
      refusal := 4;
    END IF;
    IF refusal > 0 THEN
      RETURN QUERY SELECT refusal, s.fence, s.n, zero, zero, zero, zero, false, NULL::bigint[],
        NULL::bigint[], NULL::bigint[], zero, zero, zero, NULL::bytea[], NULL::bytea[], false;
      RETURN;
    END IF;
    PERFORM {schema}.session_keep_v1({schema}.session_raise_v1(s, p_fence, true, p_limits), p_idle, true);
  ELSIF pg_is_in_recovery() THEN
    RAISE 'the server is a standby: it may lack acknowledged exchanges' USING ERRCODE = 'read_only_sql_transaction';
  ELSIF p_id IS NOT NULL THEN
    -- ⚑ Who finds an ID repeats nothing. So the answer waits until a synchronous standby has the exchange:
    -- a wait that was cancelled has made it visible before. Without a write, a commit waits for nothing.
    PERFORM {schema}.durable_v1(true, current_setting('synchronous_commit')), pg_logical_emit_message(true, 'belugalock', '');
  END IF;
  RETURN QUERY
    WITH header AS MATERIALIZED (
      SELECT s.id, coalesce(s.fence, 0) AS fence, coalesce(s.revision, 0) AS revision, k.fence AS known_fence,
        k.n AS known_n,
        o.fence AS oldest_fence, o.n AS oldest_n, o.sub AS oldest_sub, pins.*,
        s.kept_until > clock_timestamp() AS lives
      FROM (VALUES (1)) AS one
      LEFT JOIN {schema}.session AS s ON s.namespace = p_namespace AND s.name = p_name
      LEFT JOIN {schema}.known AS k ON k.session = s.id AND k.id = p_hash AND k.until > clock_timestamp()
      LEFT JOIN LATERAL (SELECT fence, n, sub FROM {schema}.exchange
        WHERE session = s.id AND NOT pinned AND s.kept_until > clock_timestamp()
        ORDER BY fence, n, sub LIMIT 1) AS o ON true
      LEFT JOIN LATERAL (SELECT array_agg(fence ORDER BY fence, n, sub) AS fences,
          array_agg(n ORDER BY fence, n, sub) AS ns, array_agg(sub ORDER BY fence, n, sub) AS subs
        FROM {schema}.exchange
        WHERE session = s.id AND pinned AND NOT p_next AND s.kept_until > clock_timestamp()) AS pins ON true)
    SELECT (CASE WHEN h.known_n = 0 THEN h.known_fence ELSE 0 END)::integer, h.fence, zero, h.revision,
      coalesce(h.oldest_fence, 9223372036854775807), coalesce(h.oldest_n, 0), coalesce(h.oldest_sub, 0),
      coalesce(h.known_n, 0) > 0, h.fences, h.ns, h.subs,
      coalesce(e.fence, 0), coalesce(e.n, 0), coalesce(e.sub, 0), e.ids, e.messages, coalesce(e.pinned, false)
    FROM header AS h
    LEFT JOIN LATERAL (
      (SELECT * FROM {schema}.exchange
        WHERE p_id IS NULL AND NOT p_pins AND NOT p_backward AND h.lives AND session = h.id
        AND (fence, n, sub) > (p_from[1], p_from[2], p_from[3]) ORDER BY fence, n, sub LIMIT p_limit)
      UNION ALL
      (SELECT * FROM {schema}.exchange
        WHERE p_id IS NULL AND NOT p_pins AND p_backward AND h.lives AND session = h.id
        AND (fence, n, sub) < (p_from[1], p_from[2], p_from[3]) ORDER BY fence DESC, n DESC, sub DESC LIMIT p_limit)
      UNION ALL
      (SELECT * FROM {schema}.exchange WHERE p_pins AND h.lives AND session = h.id AND pinned)
      UNION ALL
      (SELECT * FROM {schema}.exchange
        WHERE h.lives AND session = h.id AND fence = h.known_fence AND n = h.known_n
        AND p_id = ANY (ids))) AS e ON true;
END $$;
