-- cases: sumsq_diff_50m
CREATE MATRIX a FROM '{data}/{case}.a.npy';
CREATE MATRIX b FROM '{data}/{case}.b.npy';
-- timed
CREATE OR REPLACE MATRIX r = sum((a - b) ^ 2);
-- checksum dense r
