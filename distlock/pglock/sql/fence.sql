-- Version 1 of the part "fence": the marks, and the check of a fencing token inside the transaction
-- that does the work. docs/design/postgres.md explains the rules.

-- The highest token that a transaction of this database has shown, by name.
CREATE TABLE {schema}.mark (
	namespace text COLLATE "C" NOT NULL,
	key       text COLLATE "C" NOT NULL,
	token     bigint NOT NULL,
	PRIMARY KEY (namespace, key)
) WITH (
	-- Updates stay in their page, and vacuum comes soon.
	fillfactor = 50,
	autovacuum_vacuum_scale_factor = 0,
	autovacuum_vacuum_threshold = 1000,
	autovacuum_vacuum_cost_delay = 0
);

-- fence_v1 raises the marks of several leases, or fails and so ends the transaction. Fence sees to it
-- that the call is the first query of the transaction, and stands in no savepoint.
--
-- namespaces, keys, tokens: one element per lease; names are UTF-8 as hexadecimal digits
-- left_ms: the time that is left of the first lease to end
--
-- ZF001: a mark is above the token; the detail is "lease <number from 1>, mark <mark>"
CREATE FUNCTION {schema}.fence_v1(namespaces text[], keys text[], tokens bigint[], left_ms bigint) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	lease   record;
	seen    bigint;
	present bigint := extract(epoch FROM current_setting('idle_in_transaction_session_timeout')::interval) * 1000;
BEGIN
	-- The order is the same in all transactions, so they cause no deadlock.
	FOR lease IN
		SELECT convert_from(decode(l.namespace, 'hex'), 'UTF8') AS namespace, convert_from(decode(l.key, 'hex'), 'UTF8') AS key,
			l.token, l.number
		FROM unnest(namespaces, keys, tokens) WITH ORDINALITY AS l (namespace, key, token, number)
		ORDER BY l.namespace, l.key
	LOOP
		-- An equal token writes the mark, too: at REPEATABLE READ, a transaction that began before the
		-- end of this one then fails.
		INSERT INTO {schema}.mark AS m (namespace, key, token) VALUES (lease.namespace, lease.key, lease.token)
			ON CONFLICT (namespace, key) DO UPDATE SET token = excluded.token WHERE m.token <= excluded.token;
		IF NOT FOUND THEN
			SELECT token INTO seen FROM {schema}.mark WHERE namespace = lease.namespace AND key = lease.key;
			RAISE EXCEPTION 'a later lease has been here' USING ERRCODE = 'ZF001',
				DETAIL = format('lease %s, mark %s', lease.number, seen);
		END IF;
	END LOOP;

	-- Zero means no timeout, for the present value and for a new one. A shorter timeout stays.
	left_ms := least(greatest(left_ms, 1), 2147483647);
	IF present NOT BETWEEN 1 AND left_ms THEN
		PERFORM set_config('idle_in_transaction_session_timeout', left_ms::text, true);
	END IF;
END $$;

REVOKE ALL ON FUNCTION {schema}.fence_v1(text[], text[], bigint[], bigint) FROM PUBLIC;
