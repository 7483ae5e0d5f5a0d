-- Run once by the PostgreSQL image, as the superuser, when the volume is new. Nothing uses the superuser afterwards.
\set ON_ERROR_STOP on
\getenv owner_password DOCWELL_OWNER_PASSWORD
\getenv reader_password DOCWELL_READER_PASSWORD

-- `docwell` owns the database and migrates it: no superuser, and it may make no roles.
CREATE ROLE docwell LOGIN PASSWORD :'owner_password';
-- What a reader may see is granted to `docwell_reader`; the query server logs in as `docwell_query` and puts that role on.
CREATE ROLE docwell_reader NOLOGIN;
GRANT docwell_reader TO docwell WITH INHERIT FALSE, SET TRUE;
CREATE ROLE docwell_query LOGIN NOINHERIT PASSWORD :'reader_password' IN ROLE docwell_reader;

REVOKE ALL ON DATABASE postgres, template1 FROM PUBLIC;
CREATE DATABASE docwell OWNER docwell;
REVOKE ALL ON DATABASE docwell FROM PUBLIC;
GRANT CONNECT ON DATABASE docwell TO docwell_query;

\connect docwell
CREATE EXTENSION vector;
