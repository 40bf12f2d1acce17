-- cases: softmax_10000x1000
CREATE MATRIX a FROM '{data}/{case}.a.npy';
-- timed
CREATE OR REPLACE MATRIX r = exp(a - row_maxs(a)) / row_sums(exp(a - row_maxs(a)));
-- checksum dense r
