-- cases: spmv_1m spmm_1m_64
CREATE MATRIX s AS
    SELECT row, col, val FROM '{data}/{case}.s.parquet'
    ROWS BY row COLUMNS BY col OVER (SELECT value FROM generate_series(0, 999999));
CREATE MATRIX x FROM '{data}/{case}.x.npy';
-- timed
CREATE OR REPLACE MATRIX r = s @ x;
-- checksum labelled r
