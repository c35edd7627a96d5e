-- The application has EXECUTE alone, after GRANT USAGE ON SCHEMA and GRANT EXECUTE ON ALL FUNCTIONS. Only
-- the functions of this part are named: the schema may hold other ones.
REVOKE ALL ON FUNCTION
  {schema}.clock_v1, {schema}.lease_lock_v1, {schema}.hand_off_v1, {schema}.acquire_v1,
  {schema}.release_v1, {schema}.break_v1, {schema}.extend_v1, {schema}.raise_v1, {schema}.ask_v1,
  {schema}.inspect_v1, {schema}.list_v1, {schema}.sweep_v1, {schema}.notify_v1, {schema}.poll_v1
  FROM PUBLIC;
