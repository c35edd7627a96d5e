-- Changes the history in one transaction. A replace puts exchanges in the place of a range. A clear removes
-- all exchanges, and a delete the IDs, too. A fork puts exchanges into a session without one. Reply: the
-- outcome, and the mark's token and n.
CREATE FUNCTION {schema}.replace_v1(
  p_namespace text, p_name text, p_fence bigint, p_accepted bigint, p_awaited bigint, p_since bigint, p_first boolean,
  p_idle interval, p_limits bigint[],                    -- null: no IdleTTL; see session_trim_v1
  p_n bigint, p_op uuid, p_kind text,                    -- replace, clear, delete or fork
  p_history bigint[], p_from bigint[], p_to bigint[],    -- token, n and sub
  p_fences bigint[], p_ns bigint[], p_pinned boolean[],  -- of the new ones
  p_subs bigint[],                                       -- of those of a Fork
  p_of bigint[], p_messages bytea[],                     -- of each message: which of them has it, from 1
  p_ids_of bigint[], p_ids bytea[], p_max_sub bigint,    -- of each ID, in the same way
  OUT outcome integer, OUT mark_fence bigint, OUT mark_n bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '500ms'
SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
  s      {schema}.session;
  added  bigint := cardinality(p_fences);
  moved  bigint;
  before bigint;
BEGIN
  PERFORM {schema}.durable_v1(true, current_setting('synchronous_commit'));
  s := {schema}.session_lock_v1(p_namespace, p_name);
  mark_fence := s.fence;
  mark_n := s.n;
  outcome := {schema}.session_barred_v1(s, p_fence, p_accepted, p_awaited, p_since);
  IF outcome = 0 AND p_kind = 'replace' AND {schema}.session_gone_v1(s, p_fence, p_history) THEN
    outcome := 6; -- gone
  ELSIF outcome = 0 THEN
    outcome := {schema}.session_judged_v1(s, p_fence, p_n, p_op);
  END IF;
  IF outcome <> 0 THEN
    outcome := greatest(outcome, 0);
    RETURN;
  END IF;
  s := {schema}.session_raise_v1(s, p_fence, p_first, p_limits);
  s.n := p_n;
  s.op := p_op;
  IF p_kind = 'fork' THEN
    IF s.exchanges > 0 THEN
      outcome := 10; -- not empty
      s.op := NULL; -- the place stays taken
    ELSE
      before := s.revision;
      s := {schema}.session_put_v1(s, p_from, p_to, p_fences, p_ns, p_subs, p_pinned, p_of, p_messages, p_ids_of, p_ids);
      s.revision := greatest(before + 1, (SELECT max(sub) FROM unnest(p_subs) AS sub));
      s.state := 'begun';
    END IF;
  ELSIF p_kind IN ('clear', 'delete') THEN
    DELETE FROM {schema}.exchange WHERE session = s.id;
    s.exchanges := 0;
    s.revision := (s.revision + 1) % (p_max_sub / 2); -- half of the sub-places are free then
    s.state := 'cleared';
    IF p_kind = 'delete' THEN
      DELETE FROM {schema}.known WHERE session = s.id;
      DELETE FROM {schema}.pending WHERE namespace = p_namespace AND name = p_name;
      s.deleted := p_fence;
    END IF;
  ELSE
    SELECT count(*) INTO moved FROM {schema}.exchange
      WHERE session = s.id AND fence = p_fences[added] AND n = p_ns[added]
        AND (fence, n, sub) > (p_to[1], p_to[2], p_to[3]);
    IF NOT EXISTS (SELECT FROM {schema}.exchange
        WHERE session = s.id AND fence = p_from[1] AND n = p_from[2] AND sub = p_from[3])
      OR NOT EXISTS (SELECT FROM {schema}.exchange
        WHERE session = s.id AND fence = p_to[1] AND n = p_to[2] AND sub = p_to[3]) THEN
      outcome := 7; -- range
    ELSIF s.revision + added + moved > p_max_sub THEN
      outcome := 8; -- full
    END IF;
    IF outcome > 0 THEN
      s.op := NULL; -- the place stays taken
    ELSE
      s := {schema}.session_put_v1(s, p_from, p_to, p_fences, p_ns, '{}', p_pinned, p_of, p_messages, p_ids_of, p_ids);
    END IF;
  END IF;
  PERFORM {schema}.session_keep_v1(s, p_idle, p_first);
END $$;

-- Carries out a Replace of a range. Each new exchange has a new sub-place, and so has each exchange
-- behind the range that the new ones have overtaken. Of a Fork, the new ones have the sub-places p_subs.
CREATE FUNCTION {schema}.session_put_v1(s {schema}.session, p_from bigint[], p_to bigint[],
  p_fences bigint[], p_ns bigint[], p_subs bigint[], p_pinned boolean[],
  p_of bigint[], p_messages bytea[], p_ids_of bigint[], p_ids bytea[]) RETURNS {schema}.session
LANGUAGE plpgsql AS $$
DECLARE
  added bigint := cardinality(p_fences);
  moved bigint;
BEGIN
  WITH gone AS (DELETE FROM {schema}.exchange WHERE session = s.id
      AND (fence, n, sub) >= (p_from[1], p_from[2], p_from[3]) AND (fence, n, sub) <= (p_to[1], p_to[2], p_to[3])
      RETURNING 1)
    SELECT s.exchanges - count(*) INTO s.exchanges FROM gone;
  WITH behind AS (SELECT sub AS old, row_number() OVER (ORDER BY sub) AS nth FROM {schema}.exchange
      WHERE session = s.id AND fence = p_fences[added] AND n = p_ns[added]
        AND (fence, n, sub) > (p_to[1], p_to[2], p_to[3]))
    UPDATE {schema}.exchange SET sub = s.revision + added + nth FROM behind
      WHERE session = s.id AND fence = p_fences[added] AND n = p_ns[added] AND sub = old;
  GET DIAGNOSTICS moved = ROW_COUNT;
  INSERT INTO {schema}.exchange
    SELECT s.id, e.fence, e.n, coalesce(e.sub, s.revision + e.nth), NULL, i.ids, coalesce(m.messages, '{}'), e.pinned
    FROM unnest(p_fences, p_ns, p_subs, p_pinned) WITH ORDINALITY AS e (fence, n, sub, pinned, nth)
    LEFT JOIN (SELECT nth, array_agg(message ORDER BY at) AS messages
      FROM unnest(p_of, p_messages) WITH ORDINALITY AS each (nth, message, at) GROUP BY nth) AS m USING (nth)
    LEFT JOIN (SELECT nth, array_agg(id ORDER BY at) AS ids
      FROM unnest(p_ids_of, p_ids) WITH ORDINALITY AS each (nth, id, at) GROUP BY nth) AS i USING (nth);
  s.exchanges := s.exchanges + added;
  s.revision := s.revision + greatest(added + moved, 1);
  IF s.exchanges = 0 THEN
    s.state := 'cleared';
  END IF;
  RETURN s;
END $$;
