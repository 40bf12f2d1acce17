-- cases: coo2csr_20m
CREATE TABLE triples AS SELECT row, col, val FROM '{data}/{case}.s.parquet';
-- timed
CREATE OR REPLACE MATRIX r WITH (duplicates = 'sum') AS
    SELECT row, col, val FROM triples ROWS BY row COLUMNS BY col;
-- checksum sparse r
