-- cases: relu_fma_50m
CREATE MATRIX a FROM '{data}/{case}.a.npy';
CREATE MATRIX b FROM '{data}/{case}.b.npy';
CREATE MATRIX c FROM '{data}/{case}.c.npy';
-- timed
CREATE OR REPLACE MATRIX r = greatest(a * b + c, 0);
-- checksum dense r
