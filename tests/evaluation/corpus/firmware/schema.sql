-- Measurements as they come from the sea.
CREATE TABLE measurement (
    buoy_id     text NOT NULL,
    measured_at timestamptz NOT NULL,
    salinity    real,
    temperature real,
    pressure    real,
    PRIMARY KEY (buoy_id, measured_at)
) PARTITION BY RANGE (measured_at);

-- One row for each deployment: who laid the buoy out, where, and with which anchor.
CREATE TABLE deployment (
    buoy_id   text NOT NULL,
    laid_out  date NOT NULL,
    recovered date,
    ship      text NOT NULL,
    anchor_kg integer NOT NULL CHECK (anchor_kg >= 180)
);
