-- cases: eigh_1000
CREATE MATRIX file FROM '{data}/{case}.a.npy';
CREATE MATRIX a = (file + t(file)) / 2;
-- timed
CREATE OR REPLACE MATRIX c = vstack(t(eigh(a).values), eigh(a).vectors);
CREATE OR REPLACE MATRIX s = c[1, :];
-- checksum dense s
