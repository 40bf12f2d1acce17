-- cases: bn_relu_20000x1024
CREATE MATRIX a FROM '{data}/{case}.a.npy';
-- timed
CREATE OR REPLACE MATRIX r =
    greatest((a - col_means(a)) / sqrt(col_means((a - col_means(a)) ^ 2) + 1e-5) + 0.1, 0);
-- checksum dense r
