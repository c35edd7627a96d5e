-- Lists the sessions that have an exchange, after a name: those among the next 1,000 names.
-- Reply: the names, and the last name looked at, or '' after the last session.
CREATE FUNCTION {schema}.sessions_v1(p_namespace text, p_after text, OUT names text[], OUT next text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
  looked bigint;
BEGIN
  IF pg_is_in_recovery() THEN
    RAISE 'the server is a standby: it may lack sessions' USING ERRCODE = 'read_only_sql_transaction';
  END IF;
  SELECT max(name), count(*),
      coalesce(array_agg(name ORDER BY name) FILTER (WHERE exchanges > 0 AND kept_until > clock_timestamp()), '{}')
    INTO next, looked, names
    FROM (SELECT * FROM {schema}.session WHERE namespace = p_namespace AND name > p_after
      ORDER BY name LIMIT 1000) AS page;
  IF looked < 1000 THEN
    next := '';
  END IF;
END $$;
