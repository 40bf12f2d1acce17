-- cases: gauss_50m
CREATE MATRIX a FROM '{data}/{case}.a.npy';
-- timed
CREATE OR REPLACE MATRIX r = exp(-a * a / 2);
-- checksum dense r
