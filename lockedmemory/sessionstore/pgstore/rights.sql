-- The application needs EXECUTE on the functions, and no right to a table.
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA {schema} FROM PUBLIC;
