-- cases: qr_2000x1000
CREATE MATRIX a FROM '{data}/{case}.a.npy';
-- timed
CREATE OR REPLACE MATRIX c = vstack(qr(a).q, qr(a).r);
CREATE OR REPLACE MATRIX s = abs(diag(c[2001:3000, :]));
-- checksum dense s
