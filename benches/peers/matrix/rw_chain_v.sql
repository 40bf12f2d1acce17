-- cases: rw_chain_v
CREATE MATRIX a FROM '{data}/{case}.a.npy';
CREATE MATRIX b FROM '{data}/{case}.b.npy';
CREATE MATRIX c FROM '{data}/{case}.c.npy';
CREATE MATRIX v FROM '{data}/{case}.v.npy';
-- timed
CREATE OR REPLACE MATRIX r = a @ b @ c @ v;
-- checksum dense r
