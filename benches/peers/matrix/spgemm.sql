-- cases: spgemm_100k
CREATE MATRIX s AS SELECT row, col, val FROM '{data}/{case}.s.parquet' NODES BY row, col;
-- timed
CREATE OR REPLACE MATRIX r = s @ s;
-- checksum sparse r
