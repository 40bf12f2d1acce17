-- cases: linear_relu_10000x1024
CREATE MATRIX x FROM '{data}/{case}.x.npy';
CREATE MATRIX w FROM '{data}/{case}.w.npy';
CREATE MATRIX column_b FROM '{data}/{case}.b.npy';
CREATE MATRIX b = t(column_b);
-- timed
CREATE OR REPLACE MATRIX r = greatest(x @ w + b, 0);
-- checksum dense r
