-- cases: transpose_1m
CREATE MATRIX s AS SELECT row, col, val FROM '{data}/{case}.s.parquet' NODES BY row, col;
-- timed
CREATE OR REPLACE MATRIX r = t(s);
-- checksum sparse r
