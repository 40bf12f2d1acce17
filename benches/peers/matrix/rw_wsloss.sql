-- cases: rw_wsloss
CREATE MATRIX s AS SELECT row, col, val FROM '{data}/{case}.s.parquet' NODES BY row, col;
CREATE MATRIX u FROM '{data}/{case}.u.npy';
CREATE MATRIX v FROM '{data}/{case}.v.npy';
-- timed
CREATE OR REPLACE MATRIX r = sum((s <> 0) * (s - u @ t(v)) ^ 2);
-- checksum dense r
