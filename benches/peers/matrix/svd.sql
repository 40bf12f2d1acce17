-- cases: svd_1000x1000 svd_2000x500
CREATE MATRIX a FROM '{data}/{case}.a.npy';
-- timed
CREATE OR REPLACE MATRIX c = vstack(t(svd(a).s), svd(a).u, svd(a).vt);
CREATE OR REPLACE MATRIX s = c[1, :];
-- checksum dense s
