-- What workers have done since the database was made, added up. They have no port to be asked on, and come and go; the API shows
-- these numbers to Prometheus. Of a histogram each bucket is a row with its own count, and `sum` one more.
CREATE TABLE docwell.work_total (
    name   text NOT NULL,
    label  text NOT NULL DEFAULT '',
    detail text NOT NULL DEFAULT '',
    value  double precision NOT NULL,
    PRIMARY KEY (name, label, detail)
);
-- A few dozen rows that are rewritten after every batch: room for that in their pages spares the index.
ALTER TABLE docwell.work_total SET (fillfactor = 50);
ALTER TABLE docwell.work_total ENABLE ROW LEVEL SECURITY;
ALTER TABLE docwell.work_total FORCE ROW LEVEL SECURITY;
CREATE POLICY owner_works ON docwell.work_total TO CURRENT_USER USING (true) WITH CHECK (true);
