-- cases: expm_500
CREATE MATRIX a FROM '{data}/{case}.a.npy';
-- timed
CREATE OR REPLACE MATRIX c = expm(a);
-- checksum dense c
