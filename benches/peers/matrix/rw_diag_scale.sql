-- cases: rw_diag_scale
CREATE MATRIX a FROM '{data}/{case}.a.npy';
CREATE MATRIX v FROM '{data}/{case}.v.npy';
-- timed
CREATE OR REPLACE MATRIX r = diag(v) @ a;
-- checksum dense r
